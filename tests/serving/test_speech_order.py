"""The order of phrases, as a pure rule."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duolog.serving.speech_order import (
    FIRST_GUESS_S_PER_CHAR,
    MARGIN_S,
    MOST_OVERTAKEN,
    SpeechPace,
    Waiting,
    next_up,
)

pytestmark = pytest.mark.pure

WORK_S = 0.2
CLOSE_S = 2 * WORK_S + MARGIN_S
"""A continuation with less slack than this comes too late behind a first phrase."""


def first(number: int, overtaken: int = 0) -> Waiting:
    return Waiting(number, WORK_S, None, overtaken)


def continuation(number: int, slack_s: float) -> Waiting:
    return Waiting(number, WORK_S, slack_s)


@pytest.mark.parametrize(
    ("waiting", "wanted"),
    [
        pytest.param([continuation(1, 3), first(2)], 2, id="nobody hears the first yet"),
        pytest.param([first(2), first(1)], 1, id="firsts in the order of arrival"),
        pytest.param([continuation(1, 5), continuation(2, 4)], 2, id="the client that runs dry sooner"),
        pytest.param([continuation(1, CLOSE_S - 0.01), first(2)], 1, id="a voice would break off"),
        pytest.param([continuation(1, CLOSE_S + 0.01), first(2)], 2, id="there is just time for a first"),
        pytest.param([continuation(1, -0.5), first(2)], 1, id="a voice has broken off"),
        pytest.param(
            [continuation(1, CLOSE_S + 0.1), continuation(2, CLOSE_S + 0.1), first(3)],
            1,
            id="the second would break off",
        ),
        pytest.param([continuation(1, 0), first(2, MOST_OVERTAKEN)], 2, id="overtaken often enough"),
    ],
)
def test_the_rule(waiting: list[Waiting], wanted: int) -> None:
    assert next_up(waiting).number == wanted


slacks = st.one_of(st.none(), st.floats(-5, 30))


@given(waiting=st.lists(st.tuples(slacks, st.floats(0, 2), st.integers(0, 3)), min_size=1, max_size=8))
def test_one_of_those_who_wait_is_chosen_and_it_is_the_most_urgent_of_its_kind(
    waiting: list[tuple[float | None, float, int]],
) -> None:
    queue = [Waiting(number, work_s, slack_s, overtaken) for number, (slack_s, work_s, overtaken) in enumerate(waiting)]
    chosen = next_up(queue)
    if chosen.slack_s is None:
        assert chosen.number == min(one.number for one in queue if one.slack_s is None)
    else:
        assert chosen.slack_s == min(one.slack_s for one in queue if one.slack_s is not None)


def test_nobody_waits() -> None:
    with pytest.raises(ValueError, match="empty"):
        next_up([])


def test_the_pace_is_learned() -> None:
    pace = SpeechPace()
    assert pace.work_s(10) == pytest.approx(10 * FIRST_GUESS_S_PER_CHAR)
    pace.learn(10, 1.0)
    assert pace.work_s(20) == pytest.approx(2.0)
    for _ in range(60):
        pace.learn(10, 0.5)
    assert pace.work_s(20) == pytest.approx(1.0, rel=0.01)
    pace.learn(0, 9.0)
    assert pace.work_s(20) == pytest.approx(1.0, rel=0.01)
