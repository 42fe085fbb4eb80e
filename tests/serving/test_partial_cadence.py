"""How often captions are decoded: the share of the core holds, whoever asks."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duolog.serving.partial_cadence import MIN_NEW_AUDIO_S, WINDOW_S, PartialCadence

pytestmark = pytest.mark.pure


def test_half_a_second_of_new_audio_is_enough_while_nothing_is_known() -> None:
    cadence = PartialCadence(0.4)
    assert not cadence.may_start("a", MIN_NEW_AUDIO_S - 0.01, now=0.0)
    assert cadence.may_start("a", MIN_NEW_AUDIO_S, now=0.0)


def test_the_interval_stretches_with_cost_and_calls() -> None:
    cadence = PartialCadence(0.4)
    cadence.record(0.4, now=0.0)
    assert cadence.interval_s(0.0) == pytest.approx(1.0)
    for call in "abc":
        cadence.may_start(call, 0.0, now=0.1)
    assert cadence.interval_s(0.1) == pytest.approx(3.0)


def test_under_load_partials_are_further_apart() -> None:
    cadence = PartialCadence(0.4)
    cadence.record(0.4, now=0.0)
    cadence.stretch = 3.0
    assert cadence.interval_s(0.0) == pytest.approx(3.0)
    assert not cadence.may_start("a", 2.9, now=0.0)
    assert cadence.may_start("a", 3.1, now=0.0)


def test_calls_that_stopped_speaking_no_longer_count() -> None:
    cadence = PartialCadence(0.4)
    cadence.record(0.4, now=0.0)
    cadence.may_start("a", 0.0, now=0.0)
    cadence.may_start("b", 0.0, now=5.0)
    assert cadence.interval_s(5.0) == pytest.approx(1.0)


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 8), st.floats(0.02, 0.6), st.floats(0.1, 1.0))
def test_all_calls_together_stay_within_the_share(calls: int, cost_s: float, share: float) -> None:
    cadence, now, busy_until = PartialCadence(share), 0.0, 0.0
    captioned = dict.fromkeys(range(calls), 0.0)
    while now < 30:
        for call in captioned:
            if now >= busy_until and cadence.may_start(str(call), now - captioned[call], now):
                captioned[call], busy_until = now, now + cost_s
                cadence.record(cost_s, busy_until)
        now += 0.032
        assert cadence.spent_s(now) <= share * WINDOW_S + cost_s
