"""Callers in virtual time: they keep their plan, and no stall of the server is hidden."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import anyio
import pytest
from tests.loadtest.conftest import FakeLine, dial_failing, dial_with
from trio.testing import MockClock

from duolog.loadtest.call_plan import CallPlan, Playwright, TurnKind
from duolog.loadtest.failures import CallFailed, CallRefused
from duolog.loadtest.open_caller import Rehearsal, act_out
from duolog.loadtest.outcomes import CallEnding, CallRecord, Miss, TurnEnding
from duolog.loadtest.profile import LoadProfile, Mix, Mode
from duolog.loadtest.repertoire import Sound
from duolog.loadtest.wire_text import Message

pytestmark = pytest.mark.session

ONLY_TALK = LoadProfile(turns=(4, 4), mix=Mix(barge_in=0, think=0, silence=0, noise=0))


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "trio", {"clock": MockClock(autojump_threshold=0)}


async def played(dial: Any, plan: CallPlan, ends_s: float = 1e6) -> CallRecord:
    record = CallRecord(plan.index, plan.arrives_s)
    run = Rehearsal(anyio.current_time(), ends_s)
    await anyio.sleep(plan.arrives_s)
    await act_out(dial, plan, run, record)
    return record


def plan_of(sounds: list[Sound], profile: LoadProfile = ONLY_TALK, index: int = 0) -> CallPlan:
    return Playwright(profile, sounds).call(index, 3.0)


def plan_with(sounds: list[Sound], mix: Mix, first: TurnKind, then: TurnKind) -> CallPlan:
    """A call of two turns of these kinds."""
    playwright = Playwright(LoadProfile(turns=(2, 2), mix=mix), sounds)
    plans = (playwright.call(index, 0.0) for index in range(1_000))
    return next(plan for plan in plans if [turn.kind for turn in plan.turns] == [first, then])


async def test_latency_counts_from_the_planned_end(sounds: list[Sound]) -> None:
    record = await played(dial_with(delays_s=(0.5, 0.9)), plan_of(sounds))
    assert record.ending is CallEnding.COMPLETED
    assert record.connected_ms == 0
    assert [turn.latency_ms for turn in record.turns] == pytest.approx([500, 900, 900, 900], abs=1)
    assert {turn.ending for turn in record.turns} == {TurnEnding.ANSWERED}
    assert record.turns[0].marks_ms["heard"] == pytest.approx(500, abs=1)
    assert record.ended_s == pytest.approx(3.0 + plan_of(sounds).length_s)


async def test_a_server_that_takes_a_call_late_is_waited_for_from_the_schedule(sounds: list[Sound]) -> None:
    """The first turn was due 1 s after the call; the line was up only after 6 s. Its caller waited those 5 s, too."""
    line = dial_with(delays_s=(0.5,))

    @asynccontextmanager
    async def slow(observe: Callable[[Message], None]) -> AsyncIterator[FakeLine]:
        await anyio.sleep(6.0)
        async with line(observe) as up:
            yield up

    record = await played(slow, plan_of(sounds))
    first, second = record.turns[:2]
    assert first.latency_ms == pytest.approx(5_500, abs=1)
    assert first.late_ms == pytest.approx(5_000, abs=1)
    assert second.latency_ms == pytest.approx(500, abs=1)


async def test_what_is_not_heard_before_the_caller_goes_on_is_missed(sounds: list[Sound]) -> None:
    record = await played(dial_with(delays_s=(20.0, None, 0.5)), plan_of(sounds))
    plan = plan_of(sounds)
    assert [turn.ending for turn in record.turns] == ["missed", "missed", "answered", "answered"]
    assert [turn.miss for turn in record.turns[:2]] == [Miss.NO_ANSWER, Miss.NO_ANSWER]
    assert [turn.end_s for turn in record.turns] == pytest.approx([3.0 + turn.end_s for turn in plan.turns])


async def test_a_late_answer_to_what_was_said_before_answers_nothing(sounds: list[Sound]) -> None:
    """It begins after the caller has spoken again, as if it answered that within 0.3 s."""
    plan = plan_of(sounds)
    gap_s = plan.turns[1].end_s - plan.turns[0].end_s
    record = await played(dial_with(delays_s=(gap_s + 0.3, None)), plan)
    assert [turn.ending for turn in record.turns] == ["missed"] * 4
    assert record.turns[0].miss is Miss.NO_ANSWER


async def test_a_refused_call_has_no_turns(sounds: list[Sound]) -> None:
    refusal = CallRefused("All lines are busy.", code="session_limit_reached", retry_after_s=5)
    record = await played(dial_failing(refusal, after_s=0.05), plan_of(sounds))
    assert (record.ending, record.reason, record.turns) == (CallEnding.REFUSED, "session_limit_reached", [])
    assert record.told_ms == pytest.approx(50)


async def test_the_rest_of_a_broken_call_is_missed(sounds: list[Sound]) -> None:
    plan = plan_of(sounds)
    record = await played(dial_with(breaks_after_s=plan.turns[1].end_s), plan)
    assert (record.ending, record.reason) == (CallEnding.FAILED, "The line is dead.")
    assert [turn.ending for turn in record.turns] == ["answered", "missed", "missed", "missed"]
    assert {turn.miss for turn in record.turns[1:]} == {Miss.CALL_FAILED}


async def test_a_call_that_cannot_be_placed_misses_all_of_it(sounds: list[Sound]) -> None:
    ends_s = 3.0 + plan_of(sounds).turns[1].end_s + 0.01
    record = await played(dial_failing(CallFailed("No server answers.")), plan_of(sounds), ends_s)
    assert (record.ending, record.connected_ms) == (CallEnding.FAILED, None)
    assert [turn.number for turn in record.turns] == [0, 1]


async def test_no_turn_is_begun_that_would_end_after_the_run(sounds: list[Sound]) -> None:
    plan = plan_of(sounds)
    record = await played(dial_with(), plan, ends_s=3.0 + plan.turns[2].end_s)
    assert [turn.number for turn in record.turns] == [0, 1]
    assert record.ending is CallEnding.COMPLETED


async def test_an_interruption_is_timed_from_its_first_word(sounds: list[Sound]) -> None:
    plan = plan_with(sounds, Mix(talk=1, barge_in=5, think=0, silence=0, noise=0), TurnKind.TALK, TurnKind.BARGE_IN)
    record = await played(dial_with(answer_s=10.0), plan)
    barge = record.turns[1]
    assert barge.interrupted
    assert barge.barge_in_stop_ms == pytest.approx(200, abs=25)
    assert barge.latency_ms == pytest.approx(500, abs=1)


async def test_an_interruption_that_is_not_obeyed_or_meets_silence(sounds: list[Sound]) -> None:
    plan = plan_with(sounds, Mix(talk=1, barge_in=5, think=0, silence=0, noise=0), TurnKind.TALK, TurnKind.BARGE_IN)
    stubborn = (await played(dial_with(answer_s=10.0, obeys=False), plan)).turns[1]
    assert (stubborn.interrupted, stubborn.barge_in_stop_ms) == (True, None)
    silent = (await played(dial_with(answer_s=0.5), plan)).turns[1]
    assert (silent.interrupted, silent.barge_in_stop_ms) == (False, None)


@pytest.mark.parametrize(("delay_s", "ending"), [(None, TurnEnding.QUIET), (0.2, TurnEnding.PHANTOM)])
async def test_noise_must_not_be_answered(sounds: list[Sound], delay_s: float | None, ending: TurnEnding) -> None:
    plan = plan_with(sounds, Mix(talk=1, barge_in=0, think=0, silence=0, noise=9), TurnKind.TALK, TurnKind.NOISE)
    plan = replace(plan, turns=(plan.turns[0], replace(plan.turns[1], deadline_s=plan.turns[1].deadline_s + 2)))
    record = await played(dial_with(delays_s=(0.5, delay_s)), plan)
    assert record.turns[1].ending is ending


async def test_silence_after_a_missed_turn_is_no_phantom(sounds: list[Sound]) -> None:
    plan = plan_with(sounds, Mix(talk=1, barge_in=0, think=0, silence=9, noise=0), TurnKind.TALK, TurnKind.SILENCE)
    late_s = plan.turns[0].deadline_s - plan.turns[0].end_s + 0.5
    record = await played(dial_with(delays_s=(late_s,)), plan)
    assert [turn.ending for turn in record.turns] == ["missed", "quiet"]


async def test_somebody_who_types_waits_for_text(sounds: list[Sound]) -> None:
    plan = plan_of([], LoadProfile(mode=Mode.TEXT, turns=(3, 3)))
    record = await played(dial_with(delays_s=(0.25,)), plan)
    assert [turn.kind for turn in record.turns] == ["typed"] * 3
    assert [turn.latency_ms for turn in record.turns] == pytest.approx([250] * 3, abs=1)
