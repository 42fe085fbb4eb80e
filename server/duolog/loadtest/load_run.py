"""Lets planned calls arrive at their moments and writes down what becomes of them; ends by itself, or when told to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import anyio

from duolog.loadtest.call_plan import CallPlan, offered_calls
from duolog.loadtest.histogram import LatencyHistogram, milliseconds
from duolog.loadtest.load_figures import LoadFigures, Window, load_figures
from duolog.loadtest.open_caller import Dial, Rehearsal, act_out
from duolog.loadtest.outcomes import CallEnding, CallRecord, TurnEnding, TurnOutcome
from duolog.loadtest.profile import Phase
from duolog.loadtest.server_figures import Scrape, ServerSample, sample_of

PROGRESS_EVERY_S = 5.0
SAMPLE_EVERY_S = 2.0

Look = Callable[[], Awaitable[Scrape | None]]
"""One look at the server's figures."""


@dataclass(slots=True)
class LoadResult:
    """All that was seen in one run through the phases, also of one that was stopped."""

    windows: tuple[Window, ...]
    calls: list[CallRecord] = field(default_factory=list)
    samples: list[ServerSample] = field(default_factory=list)
    ran_s: float = 0.0
    stopped: bool = False
    """Before its end."""

    def figures(self) -> LoadFigures:
        """Of the stretches that count, as far as they were reached."""
        return load_figures(self.calls, [window for window in self._reached() if window.counts])

    def by_window(self) -> list[tuple[Window, LoadFigures]]:
        return [(window, load_figures(self.calls, [window])) for window in self._reached()]

    def _reached(self) -> list[Window]:
        """Stretches that were begun, the last as far as it went."""
        return [
            Window(window.name, window.starts_s, min(window.ends_s, self.ran_s), window.counts)
            for window in self.windows
            if window.starts_s < self.ran_s
        ]


@dataclass(frozen=True, slots=True)
class Stage:
    """What a run needs of the world."""

    dial: Dial
    look: Look
    say: Callable[[str], None]
    """Told one progress line at a time."""
    stop: anyio.Event
    """Set by whoever wants the run to end at once."""


def windows_of(phases: Sequence[Phase]) -> tuple[Window, ...]:
    ends = [sum(phase.seconds for phase in phases[: number + 1]) for number in range(len(phases))]
    return tuple(
        Window(phase.name, end - phase.seconds, end, phase.counts) for phase, end in zip(phases, ends, strict=True)
    )


async def run_load(stage: Stage, phases: Sequence[Phase], plans: Sequence[CallPlan]) -> LoadResult:
    """Let the calls arrive; returns when the last has ended. Turns that would end after the phases are not begun."""
    run = Rehearsal(anyio.current_time(), sum(phase.seconds for phase in phases))
    result = LoadResult(windows_of(phases))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_cancel_when, stage.stop, tasks.cancel_scope)
        tasks.start_soon(_report_progress, stage, phases, run, result)
        tasks.start_soon(_sample_server, stage, run, result)
        await _place_all(stage.dial, plans, run, result)
        await anyio.sleep_until(run.origin_s + run.ends_s)
        tasks.cancel_scope.cancel()
    result.ran_s = anyio.current_time() - run.origin_s
    result.stopped = stage.stop.is_set()
    return result


async def _place_all(dial: Dial, plans: Sequence[CallPlan], run: Rehearsal, result: LoadResult) -> None:
    async with anyio.create_task_group() as calls:
        for plan in plans:
            await anyio.sleep_until(run.origin_s + plan.arrives_s)
            record = CallRecord(plan.index, plan.arrives_s)
            result.calls.append(record)
            calls.start_soon(act_out, dial, plan, run, record)


async def _cancel_when(stop: anyio.Event, scope: anyio.CancelScope) -> None:
    await stop.wait()
    scope.cancel()


async def _sample_server(stage: Stage, run: Rehearsal, result: LoadResult) -> None:
    while True:
        seen = await stage.look()
        if seen is not None:
            result.samples.append(sample_of(seen, anyio.current_time() - run.origin_s))
        await anyio.sleep(SAMPLE_EVERY_S)


async def _report_progress(stage: Stage, phases: Sequence[Phase], run: Rehearsal, result: LoadResult) -> None:
    tally = Tally()
    while True:
        await anyio.sleep(PROGRESS_EVERY_S)
        tally.take(result.calls)
        stage.say(progress_line(phases, result, tally, anyio.current_time() - run.origin_s))


class Tally:
    """What was seen so far, warm-up included. Takes only what is new: it works on the loop that the callers share."""

    def __init__(self) -> None:
        self.answered = 0
        self.latency = LatencyHistogram()
        self.endings: Counter[CallEnding] = Counter()
        self._taken: dict[int, int] = {}
        """Turns taken of each call that is not over."""
        self._over: set[int] = set()

    def take(self, calls: Sequence[CallRecord]) -> None:
        for call in calls:
            if call.index in self._over:
                continue
            self._take_turns(call.turns[self._taken.get(call.index, 0) :])
            self._taken[call.index] = len(call.turns)
            if call.ending is not CallEnding.ON_THE_LINE:
                self._over.add(call.index)
                self.endings[call.ending] += 1

    def _take_turns(self, turns: Sequence[TurnOutcome]) -> None:
        for turn in turns:
            self.answered += turn.ending is TurnEnding.ANSWERED
            self.latency.missed += turn.ending is TurnEnding.MISSED
            if turn.latency_ms is not None:
                self.latency.record(turn.latency_ms)


def progress_line(phases: Sequence[Phase], result: LoadResult, tally: Tally, at_s: float) -> str:
    """How far the run is and what was seen so far."""
    phase = next((window.name for window in result.windows if window.holds(at_s)), "last answers")
    on_the_line = len(result.calls) - tally.endings.total()
    trouble = "".join(
        f"  {tally.endings[ending]} {ending}"
        for ending in (CallEnding.REFUSED, CallEnding.FAILED)
        if tally.endings[ending]
    )
    p50, p99 = (milliseconds(tally.latency.quantile(share), tally.latency.missed) for share in (0.5, 0.99))
    return (
        f"  {int(at_s) // 60:02}:{int(at_s) % 60:02}  {phase:<12} {on_the_line:>3} calls "
        f"(asked {offered_calls(phases, at_s):.1f})  {tally.answered} answered  {tally.latency.missed} missed  "
        f"p50 {p50}  p99 {p99} ms{trouble}"
    )
