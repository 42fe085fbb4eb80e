"""The search for the most calls that a goal holds for."""

from __future__ import annotations

import pytest
from tests.loadtest.written_outcomes import answered, call, figures_of, missed, refused

from duolog.loadtest.limit_search import Goal, LimitSearch, parse_goal
from duolog.loadtest.profile import SearchPlan
from duolog.ports.errors import ConfigurationError

pytestmark = pytest.mark.pure


def levels_tried(search: LimitSearch, limit: int) -> list[int]:
    tried: list[int] = []
    while (level := search.next_level) is not None:
        tried.append(level)
        search.record(level, held=level <= limit)
    return tried


@pytest.mark.parametrize("limit", range(1, 65))
def test_it_finds_the_limit(limit: int) -> None:
    search = LimitSearch(SearchPlan(most_calls=256, most_steps=20))
    tried = levels_tried(search, limit)
    assert search.holds is not None
    assert limit - max(1, int(limit * 0.1)) <= search.holds <= limit
    assert search.bounded
    assert len(tried) == len(set(tried)) <= 14


def test_it_doubles_and_halves() -> None:
    assert levels_tried(LimitSearch(SearchPlan(most_steps=20)), 11) == [1, 2, 4, 8, 16, 12, 10, 11]


def test_nothing_holds() -> None:
    search = LimitSearch(SearchPlan(first_calls=4))
    assert levels_tried(search, 0) == [4, 2, 1]
    assert search.holds is None


def test_the_bounds_end_it() -> None:
    search = LimitSearch(SearchPlan(most_calls=6))
    assert levels_tried(search, 1_000) == [1, 2, 4, 6]
    assert (search.holds, search.bounded) == (6, False)
    short = LimitSearch(SearchPlan(most_steps=3))
    assert levels_tried(short, 11) == [1, 2, 4]
    assert (short.holds, short.bounded) == (4, False)


def test_goals() -> None:
    assert parse_goal("p99=1500") == Goal("p99", 1_500)
    assert parse_goal(" p99.9 = 80.5 ms ") == Goal("p99.9", 80.5)
    assert str(parse_goal("p95=1500")) == "p95 ≤ 1,500 ms"


@pytest.mark.parametrize("wrong", ["p98=1", "p99", "p99=", "p99=0", "fast", "p99=-1", "1500"])
def test_what_is_no_goal(wrong: str) -> None:
    with pytest.raises(ConfigurationError, match=r"write one of p50, p95, p99, p99\.9 and milliseconds"):
        parse_goal(wrong)


def test_a_goal_looks_at_the_tail_misses_and_refusals() -> None:
    goal = Goal("p99", 1_000)
    good = [call(0, *(answered(number, 900.0) for number in range(50)))]
    assert goal.holds(figures_of(good), 0.01)
    assert not goal.holds(figures_of([call(0, *(answered(number, 1_100.0) for number in range(50)))]), 0.01)
    assert not goal.holds(figures_of([call(0, answered(0, 900.0), missed(1))]), 0.01)
    assert not goal.holds(figures_of([*good, refused(1, "session_limit_reached")]), 0.01)
    assert goal.holds(figures_of([*good, refused(1, "session_limit_reached")]), 0.5)
    assert not goal.holds(figures_of([]), 0.01)
