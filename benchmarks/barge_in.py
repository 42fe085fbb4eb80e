"""`make bench-barge-in`: how fast an interruption silences the caller's loudspeaker, over the real socket.

The server decides after so many windows of voice; the caller knows which of its frames held the last of them, and when
it was sent. From there to the flush that stops its player is our own code and the wire, both ways. The engines are
scripted: they cost nothing and hear a tone as voice, window by window. Writes benchmarks/results/barge_in.json.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import anyio
import numpy as np
import typer
from numpy.typing import NDArray

from benchmarks.stack import ROOT, duolog_stack
from duolog.loadtest.failures import CallFailed
from duolog.loadtest.pacing import FRAME_SAMPLES
from duolog.loadtest.results import machine_facts
from duolog.loadtest.wire_client import Call, CallOptions, place_call
from duolog.loadtest.wire_text import Message, text_field
from duolog.ports.asr import SAMPLE_RATE_HZ
from duolog.ports.errors import DuologError
from duolog.ports.vad import WINDOW_SAMPLES
from duolog.session.engines import CallOptions as SessionOptions
from duolog.turns.activity import SAMPLES_PER_MS

CONFIRM_WINDOWS = -(-SessionOptions().confirm_ms * SAMPLES_PER_MS // WINDOW_SAMPLES)
"""Windows of voice after which the server interrupts."""
WORDS_S = 0.7
PATIENCE_S = 10.0
RESULTS = ROOT / "benchmarks" / "results" / "barge_in.json"
LOG = ROOT / ".duolog" / "logs" / "bench-barge-in.log"


@dataclass
class Interruptions:
    """What one caller has seen."""

    decided_to_flush_ms: list[float] = field(default_factory=list)
    sound_to_flush_ms: list[float] = field(default_factory=list)


class Ears:
    """Wakes whoever waits for a kind of event."""

    def __init__(self) -> None:
        self._waiting: dict[str, anyio.Event] = {}

    def observe(self, message: Message) -> None:
        event = self._waiting.pop(text_field(message, "type"), None)
        if event is not None:
            event.set()

    def expect(self, kind: str) -> anyio.Event:
        return self._waiting.setdefault(kind, anyio.Event())


def main(
    calls: Annotated[str, typer.Option(help="Calls at once, each measured by itself.")] = "1,4",
    count: Annotated[int, typer.Option(min=1, help="Interruptions of each part, over all its calls.")] = 40,
    out: Annotated[Path, typer.Option(help="JSON file to write.")] = RESULTS,
) -> None:
    try:
        runs = anyio.run(_measure, [int(number) for number in calls.split(",")], count)
    except DuologError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from error
    out.parent.mkdir(parents=True, exist_ok=True)
    fields = {"machine": machine_facts(("duolog",)), "confirm_ms": SessionOptions().confirm_ms, "runs": runs}
    out.write_text(json.dumps(fields, indent=2) + "\n", encoding="utf-8")
    typer.echo(out)


async def _measure(parts: Sequence[int], count: int) -> list[dict[str, object]]:
    runs = []
    async with duolog_stack("tiny", scripted=True, log=LOG) as stack:
        for calls in parts:
            seen = [Interruptions() for _ in range(calls)]
            async with anyio.create_task_group() as tasks:
                for number, one in enumerate(seen):
                    tasks.start_soon(_call_and_interrupt, stack.url, number, -(-count // calls), one)
            runs.append(_summary(calls, seen))
            typer.echo(json.dumps(runs[-1]))
    return runs


async def _call_and_interrupt(url: str, number: int, count: int, seen: Interruptions) -> None:
    dice, ears = random.Random(number), Ears()
    async with place_call(CallOptions(url, "bench"), ears.observe) as call:
        speaks = ears.expect("duolog.speech.started")
        await call.pause(dice.uniform(0.3, 1.0))
        await _begin_to_say(call)
        for _ in range(count):
            await _within_patience(speaks, "the answer")
            await call.pause(dice.uniform(0.1, 1.0))
            flushed, speaks = ears.expect("duolog.flush"), ears.expect("duolog.speech.started")
            first_sample = await _begin_to_say(call)
            await _within_patience(flushed, "the flush")
            now_s = anyio.current_time()
            seen.sound_to_flush_ms.append((now_s - call.sent.time_of_sample(first_sample)) * 1000)
            seen.decided_to_flush_ms.append((now_s - call.sent.time_of_sample(_decided_at(first_sample))) * 1000)


async def _begin_to_say(call: Call) -> int:
    """Give words to the microphone; returns the index of their first sample in the call."""
    first_sample = len(call.sent) * FRAME_SAMPLES
    with anyio.move_on_after(0):
        await call.say(_words(), "interruption")
    return first_sample


def _words() -> NDArray[np.int16]:
    time = np.arange(int(SAMPLE_RATE_HZ * WORDS_S)) / SAMPLE_RATE_HZ
    return (np.sin(2 * np.pi * 220 * time) * 10_000).astype(np.int16)


def _decided_at(first_sample: int) -> int:
    """The last sample of the window with which the interruption is confirmed."""
    return (first_sample // WINDOW_SAMPLES + CONFIRM_WINDOWS) * WINDOW_SAMPLES - 1


async def _within_patience(event: anyio.Event, what: str) -> None:
    with anyio.move_on_after(PATIENCE_S):
        await event.wait()
        return
    raise CallFailed(f"{what} did not come within {PATIENCE_S:.0f} s; the server's output is in {LOG}")


def _summary(calls: int, seen: Sequence[Interruptions]) -> dict[str, object]:
    decided = [value for one in seen for value in one.decided_to_flush_ms]
    sounded = [value for one in seen for value in one.sound_to_flush_ms]
    return {
        "calls": calls,
        "interruptions": len(decided),
        "decided_to_flush_ms": _percentiles(decided),
        "sound_to_flush_ms": _percentiles(sounded),
    }


def _percentiles(values: Sequence[float]) -> dict[str, float]:
    return {f"p{share}": round(float(np.percentile(values, share)), 1) for share in (50, 95, 99)}


if __name__ == "__main__":
    typer.run(main)
