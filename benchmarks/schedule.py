"""In which order systems are measured, and for how long: interleaved in rounds, so that a machine that slows down or
speeds up does so for all of them, and never past a limit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import anyio

from duolog.loadtest.campaign import Caller, Progress, Utterance, run_callers
from duolog.loadtest.measured_turn import MeasuredTurn
from duolog.loadtest.results import Run
from duolog.loadtest.timeline import percentiles

TURNS_PER_CALL = 3


@dataclass(frozen=True, slots=True)
class Part:
    """One system at one number of calls."""

    system: str
    calls: int
    profile: str
    """Which models."""
    utterances_per_round: int = 3
    rounds: int | None = None
    """None: all of them."""


@dataclass(frozen=True, slots=True)
class Budget:
    rounds: int
    limit_s: float


@dataclass(slots=True)
class Collected:
    rounds: list[tuple[MeasuredTurn, ...]] = field(default_factory=list)


async def measure(
    parts: Sequence[Part],
    callers: Mapping[str, Caller],
    utterances: Sequence[Utterance],
    *,
    budget: Budget,
    say: Progress,
) -> list[Run]:
    """Every part once a round, each round with the next utterances; what no longer fits into the limit is left out."""
    collected = {part: Collected() for part in parts}
    longest_s: dict[Part, float] = {}
    ends_s = anyio.current_time() + budget.limit_s
    for number in range(budget.rounds):
        for part in parts:
            if part.rounds is not None and number >= part.rounds:
                continue
            started_s = anyio.current_time()
            if started_s + longest_s.get(part, 0.0) > ends_s:
                say(f"  no time left for {part.system} with {part.calls} calls in round {number + 1}")
                continue
            chosen = _chosen(utterances, number, part.utterances_per_round)
            turns = await run_callers(callers[part.system], chosen, calls=part.calls, turns_per_call=TURNS_PER_CALL)
            collected[part].rounds.append(tuple(turns))
            longest_s[part] = max(longest_s.get(part, 0.0), anyio.current_time() - started_s)
            say(_line(number, part, turns))
    return [Run(part.system, part.calls, part.profile, tuple(found.rounds)) for part, found in collected.items()]


def _chosen(utterances: Sequence[Utterance], number: int, count: int) -> list[Utterance]:
    """`count` utterances, beginning where the round before stopped."""
    return [utterances[(number * count + index) % len(utterances)] for index in range(count)]


def _line(number: int, part: Part, turns: Sequence[MeasuredTurn]) -> str:
    heard = percentiles(turn.timeline.heard_ms for turn in turns if turn.rejected is None and turn.timeline)
    median = "no turn counts" if heard is None else f"heard after {heard.p50:,.0f} ms (median)"
    failed = [turn.failure for turn in turns if turn.failure]
    trouble = f"; {len(failed)} failed: {failed[0]}" if failed else ""
    return f"  round {number + 1}  {part.system:<12} {part.calls} call(s)  {len(turns):>2} turns  {median}{trouble}"
