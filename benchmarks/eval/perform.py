"""Plays one scenario over the real socket, at speaking pace."""

from __future__ import annotations

import anyio

from benchmarks.eval.scenario import Act, Edge, Scenario
from benchmarks.eval.sounds import Sound, Sounds
from benchmarks.eval.verdict import Performance, Seen
from duolog.loadtest.failures import CallFailed
from duolog.loadtest.pacing import FRAME_SAMPLES
from duolog.loadtest.timeline import first_audible_sample
from duolog.loadtest.wire_client import Call, CallOptions, place_call
from duolog.loadtest.wire_text import Message

LEAD_S = 0.5
"""Silence before the first act."""
EVENT_PATIENCE_S = 20.0
TICK_S = 0.01


async def perform(scenario: Scenario, url: str, sounds: Sounds) -> Performance:
    """One call. A call that fails is told in the performance."""
    performance = Performance(anyio.current_time())

    def note(message: Message) -> None:
        performance.events.append(Seen(anyio.current_time(), message))

    options = CallOptions(url, scenario.persona, scenario.greeting, session=scenario.session or None)
    try:
        async with place_call(options, note) as call:
            await call.pause(LEAD_S)
            for act in scenario.script:
                await _play(act, await sounds.of(act), call, performance)
            await call.pause(scenario.lasts_ms / 1000)
    except CallFailed as failure:
        performance.problem = str(failure)
    return performance


async def _play(act: Act, sound: Sound, call: Call, performance: Performance) -> None:
    """Wait for the act's time, speak, and return when its last voiced sample has been sent."""
    if act.after is not None:
        await _until_seen(act.after, performance)
    await call.pause(act.wait_ms / 1000)
    if act.silence_ms is not None:
        await call.pause(act.silence_ms / 1000)
        return
    first = len(call.sent) * FRAME_SAMPLES + (first_audible_sample(sound) or 0)
    turn = call.speak(sound, act.name)
    with anyio.move_on_after(len(sound) / 16_000 + EVENT_PATIENCE_S):
        while turn.last_voiced_s is None:  # noqa: ASYNC110 - rejected: the microphone offers a time and no event
            await anyio.sleep(TICK_S)
    performance.marks[act.name, Edge.BEGIN] = call.sent.time_of_sample(first)
    if turn.last_voiced_s is not None:
        performance.marks[act.name, Edge.END] = turn.last_voiced_s


async def _until_seen(kind: str, performance: Performance) -> None:
    """An event of this kind that no earlier act has begun with. Raises CallFailed where none comes."""
    known = sum(seen.kind == kind for seen in performance.events[: _events_before_last_act(performance)])
    with anyio.move_on_after(EVENT_PATIENCE_S):
        while sum(seen.kind == kind for seen in performance.events) <= known:  # noqa: ASYNC110 - as above
            await anyio.sleep(TICK_S)
        return
    raise CallFailed(f"`{kind}` did not come within {EVENT_PATIENCE_S:.0f} s.")


def _events_before_last_act(performance: Performance) -> int:
    """Events that came before the last act had ended."""
    ended_s = max((at for (_, edge), at in performance.marks.items() if edge is Edge.END), default=0.0)
    return sum(seen.at_s <= ended_s for seen in performance.events)
