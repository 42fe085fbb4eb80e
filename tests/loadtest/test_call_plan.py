"""The callers' schedule: the same for the same seed, fixed before anything is heard, and as heavy as was asked for."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from duolog.loadtest.call_plan import CallPlan, Playwright, TurnKind, arrival_times, offered_calls
from duolog.loadtest.profile import LoadProfile, Mix, Mode, Pacing, Phase
from duolog.loadtest.repertoire import Sound, room_noise

pytestmark = pytest.mark.pure

RAMP = (Phase("ramp", 100, 10, from_calls=0), Phase("soak", 100, 10))


def schedule(plan: CallPlan) -> list[tuple[object, ...]]:
    return [(turn.kind, turn.label, turn.start_s, turn.end_s, turn.deadline_s) for turn in plan.turns]


def many(sounds: list[Sound], profile: LoadProfile | None = None) -> list[CallPlan]:
    return [Playwright(profile or LoadProfile(), sounds).call(index, 0.0) for index in range(60)]


def test_the_same_seed_gives_the_same_calls(sounds: list[Sound]) -> None:
    phases = LoadProfile().load
    first = Playwright(LoadProfile(), sounds).calls(phases, first_index=0, most=99)
    again = Playwright(LoadProfile(), sounds).calls(phases, first_index=0, most=99)
    other = Playwright(LoadProfile(seed=2), sounds).calls(phases, first_index=0, most=99)
    assert [(plan.arrives_s, schedule(plan)) for plan in first] == [(plan.arrives_s, schedule(plan)) for plan in again]
    assert [plan.arrives_s for plan in first] != [plan.arrives_s for plan in other]


def test_a_call_is_the_same_whenever_it_arrives(sounds: list[Sound]) -> None:
    playwright = Playwright(LoadProfile(), sounds)
    assert schedule(playwright.call(7, 0.0)) == schedule(playwright.call(7, 99.0))


def test_turns_follow_each_other_by_the_callers_own_clock(sounds: list[Sound]) -> None:
    pacing = Pacing()
    for plan in many(sounds):
        assert plan.turns[0].start_s == pacing.lead_s
        for turn, following in zip(plan.turns, plan.turns[1:], strict=False):
            assert following.start_s == turn.deadline_s
        for number, turn in enumerate(plan.turns):
            interrupted = number + 1 < len(plan.turns) and plan.turns[number + 1].kind is TurnKind.BARGE_IN
            gap_s = turn.deadline_s - turn.end_s
            if not turn.kind.expects_answer:
                assert gap_s == 0
            elif interrupted:
                assert gap_s == pytest.approx(pacing.barge_in_after_s)
            else:
                assert pacing.gap_s[0] <= gap_s <= pacing.gap_s[1]


def test_the_end_is_the_last_voiced_sample(sounds: list[Sound]) -> None:
    plan = many(sounds, LoadProfile(mix=Mix(barge_in=0, think=0, silence=0, noise=0)))[0]
    for turn in plan.turns:
        [said] = turn.parts
        assert turn.voiced_from_s - turn.start_s == pytest.approx(0.2, abs=0.02)
        assert turn.end_s - turn.start_s == pytest.approx(said.length_s - 0.2, abs=0.02)


def test_a_thinker_pauses_in_the_middle(sounds: list[Sound]) -> None:
    plans = many(sounds, LoadProfile(mix=Mix(talk=0.001, barge_in=0, think=9, silence=0, noise=0)))
    turn = next(turn for plan in plans for turn in plan.turns if turn.kind is TurnKind.THINK)
    first, second = turn.parts
    said = turn.samples()
    assert len(said) == len(first.samples) + len(second.samples) + round(0.35 * 16_000)
    assert not said[len(first.samples) : -len(second.samples)].any()
    assert turn.end_s - turn.start_s == pytest.approx(first.length_s + 0.35 + second.voiced_until_s)


def test_nobody_interrupts_what_cannot_be_there(sounds: list[Sound]) -> None:
    plans = many(sounds, LoadProfile(mix=Mix(talk=1, barge_in=9, think=1, silence=3, noise=3)))
    kinds = [[turn.kind for turn in plan.turns] for plan in plans]
    assert any(TurnKind.BARGE_IN in call for call in kinds)
    for call in kinds:
        for number, kind in enumerate(call):
            if kind is TurnKind.BARGE_IN:
                assert number > 0
                assert call[number - 1].expects_answer


def test_callers_who_type_say_nothing() -> None:
    for plan in many([], LoadProfile(mode=Mode.TEXT)):
        assert {turn.kind for turn in plan.turns} == {TurnKind.TYPED}
        assert all(turn.start_s == turn.end_s and not len(turn.samples()) for turn in plan.turns)


def test_as_many_arrive_as_keep_the_calls_on_the_line() -> None:
    times = arrival_times(RAMP, mean_call_s=20.0, rng=Random(3))
    ramp = [at for at in times if at < 100]
    assert len(times) == 75
    assert len(ramp) == 25
    assert times == sorted(times)
    assert times[-1] <= 200
    first_half = sum(1 for at in ramp if at < 50)
    assert first_half < len(ramp) / 2


def test_arrivals_are_irregular() -> None:
    times = arrival_times((Phase("soak", 10_000, 10),), mean_call_s=20.0, rng=Random(3))
    gaps = np.diff(times)
    assert np.std(gaps) == pytest.approx(np.mean(gaps), rel=0.1)


def test_a_falling_load() -> None:
    times = arrival_times((Phase("fall", 100, 0, from_calls=10),), mean_call_s=10.0, rng=Random(1))
    assert len(times) == 50
    assert sum(1 for at in times if at < 50) > 30
    assert arrival_times((Phase("none", 100, 0),), 10.0, Random(1)) == []


@pytest.mark.parametrize(("at_s", "calls"), [(0, 0), (50, 5), (100, 10), (199, 10), (200, 0)])
def test_what_was_asked_for(at_s: float, calls: float) -> None:
    assert offered_calls(RAMP, at_s) == calls


def test_arrivals_end_at_the_bound(sounds: list[Sound]) -> None:
    profile = replace(LoadProfile(), load=(Phase("soak", 600, 50),))
    assert len(Playwright(profile, sounds).calls(profile.load, first_index=0, most=12)) == 12


def test_noise_is_as_loud_as_it_should_be_and_repeats() -> None:
    noise = room_noise(2.0, 0.01, seed=4)
    level = float(np.sqrt(np.mean((noise.samples / 32_767) ** 2)))
    assert level == pytest.approx(0.01, rel=0.02)
    assert noise.length_s == 2.0
    assert np.array_equal(noise.samples, room_noise(2.0, 0.01, seed=4).samples)
    assert not len(room_noise(0.0, 0.01, seed=4).samples)
