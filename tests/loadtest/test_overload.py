"""What `make bench-load` says of the figures it has seen."""

from __future__ import annotations

import pytest
from benchmarks.overload import Overload, Rest, checks, memory_at
from tests.loadtest.written_outcomes import answered, call, figures_of, missed, refused

from duolog.loadtest.limit_search import Goal
from duolog.loadtest.load_figures import LoadFigures
from duolog.loadtest.server_figures import ServerSample

pytestmark = pytest.mark.pure

GOAL = Goal("p99", 1_500)
IDLE = ServerSample(0.0, 0, 200, 14, 0, None)


def waiting(latency_ms: float, told_ms: float | None = None) -> LoadFigures:
    calls = [call(0, *(answered(number, latency_ms) for number in range(20)))]
    return figures_of(calls if told_ms is None else [*calls, refused(1, "overload", told_ms)])


def seen(
    overload: LoadFigures, *, after: LoadFigures | None = None, rest: ServerSample | None = IDLE
) -> dict[str, bool]:
    rested = None if rest is None else Rest(IDLE, rest, 0.5)
    found = Overload(10, waiting(1_000), overload, after or waiting(1_000), 200.0, rested)
    return {check.what: check.holds for check in checks(found, GOAL)}


def test_all_is_well() -> None:
    assert all(seen(waiting(1_499, told_ms=40)).values())


@pytest.mark.parametrize(
    ("overload", "broken"),
    [
        (waiting(1_510), "calls that were taken keep their p99"),
        (figures_of([call(0, answered(0, 900.0), missed(1))]), "calls that were taken keep their p99"),
        (waiting(1_000, told_ms=1_200), "refused callers are told, p99"),
    ],
)
def test_what_breaks_under_overload(overload: LoadFigures, broken: str) -> None:
    assert [what for what, holds in seen(overload).items() if not holds] == [broken]


@pytest.mark.parametrize(
    ("rest", "broken"),
    [
        (ServerSample(0.0, 1, 200, 14, 0, None), "no call is left"),
        (ServerSample(0.0, 0, 200, 15, 0, None), "no task is left"),
        (ServerSample(0.0, 0, 233, 14, 0, None), "memory stands still"),
        (None, "nothing leaks"),
    ],
)
def test_what_is_left_over(rest: ServerSample | None, broken: str) -> None:
    assert [what for what, holds in seen(waiting(1_000), rest=rest).items() if not holds] == [broken]


def test_a_server_that_stays_slow_has_not_recovered() -> None:
    shown = seen(waiting(1_000), after=waiting(1_600))
    assert [what for what, holds in shown.items() if not holds] == ["10 s later the goal holds again"]


def test_memory_at_a_time_is_that_of_the_nearest_look() -> None:
    samples = [ServerSample(float(at), 0, 100.0 + at, 0, 0, None) for at in (0, 2, 4)]
    assert memory_at([*samples, ServerSample(3.0, 0, None, 0, 0, None)], 3.1) == 104
    assert memory_at([], 3.0) is None
