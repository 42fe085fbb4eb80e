"""Each policy's decisions, one at a time."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duolog.serving.policies import (
    Decision,
    DirectPolicy,
    DropReason,
    FlightRequest,
    PolicyOptions,
    QueuedRequest,
    RequestClass,
)
from duolog.serving.policies.factory import PolicyName, make_policy
from duolog.serving.policies.slo import SloPolicy
from duolog.serving.policies.target_size import TargetSizePolicy
from duolog.serving.policies.token_window import TokenWindowPolicy
from duolog.serving.predictor import DecodeWork, ServiceTimePredictor

pytestmark = pytest.mark.pure

FINAL, SPECULATIVE, NEXT_TURN, PARTIAL, TOUCH, _ = RequestClass


def waiting(ticket: int, klass: RequestClass, session: str = "", deadline: float = 0.0) -> QueuedRequest:
    return QueuedRequest(ticket, session or f"call-{ticket}", klass, deadline, 0.0, 100, 1)


def flying(ticket: int, klass: RequestClass, session: str = "", *, prefilling: bool = True) -> FlightRequest:
    return FlightRequest(waiting(ticket, klass, session), 0.0, prefilling=prefilling)


def tickets(decision: Decision) -> tuple[list[int], dict[int, DropReason]]:
    """Those that enter, and those given up."""
    return list(decision.admit), {drop.ticket: drop.reason for drop in decision.abort}


def decide(queue: list[QueuedRequest], in_flight: list[FlightRequest], now: float = 0.5) -> tuple[list[int], list[int]]:
    """What `slo` admits and aborts, after any time of collecting."""
    admitted, aborted = tickets(SloPolicy().decide(queue, in_flight, now))
    return admitted, list(aborted)


def test_direct_lets_everything_in_by_class_and_deadline() -> None:
    queue = [waiting(1, TOUCH), waiting(2, PARTIAL), waiting(3, FINAL, deadline=2.0), waiting(4, FINAL, deadline=1.0)]
    assert DirectPolicy().decide(queue, [flying(9, PARTIAL)], 0.0) == Decision(admit=(4, 3, 2, 1))


def test_slo_finals_enter_at_once_the_most_urgent_first() -> None:
    queue = [waiting(1, FINAL, deadline=3.0), waiting(2, FINAL, deadline=1.0), waiting(3, FINAL, deadline=2.0)]
    assert decide(queue, [], now=0.0) == ([2, 3, 1], [])


def test_slo_guesses_come_after_finals_and_take_nothing_from_other_calls() -> None:
    queue = [waiting(1, SPECULATIVE, deadline=1.0), waiting(2, FINAL, deadline=2.0), waiting(3, PARTIAL)]
    assert decide(queue, [], now=0.0) == ([2, 1], [])
    guess = [waiting(1, SPECULATIVE, "anna")]
    assert decide(guess, [flying(2, PARTIAL, "ben")]) == ([1], [])
    assert decide([waiting(3, PARTIAL, "ben")], [flying(1, SPECULATIVE)]) == ([], [])


def test_slo_a_guess_replaces_the_prefills_of_its_call() -> None:
    queue = [waiting(1, PARTIAL, "anna"), waiting(2, SPECULATIVE, "anna")]
    assert tickets(SloPolicy().decide(queue, [], 0.0)) == ([2], {1: DropReason.COALESCED})


def test_slo_guesses_wait_where_finals_fill_the_budget() -> None:
    finals = [waiting(number, FINAL) for number in range(1, 9)]
    guess = waiting(0, SPECULATIVE, deadline=-1.0)
    admitted, _ = decide([guess, *finals], [])
    assert admitted
    assert guess.ticket not in admitted


def test_slo_one_prefill_enters_the_most_urgent() -> None:
    queue = [waiting(1, TOUCH), waiting(2, PARTIAL), waiting(3, NEXT_TURN, deadline=2.0), waiting(4, NEXT_TURN)]
    assert decide(queue, []) == ([4], [])


@pytest.mark.parametrize("klass", [NEXT_TURN, PARTIAL, TOUCH])
def test_slo_no_prefill_enters_beside_another(klass: RequestClass) -> None:
    assert decide([waiting(1, NEXT_TURN)], [flying(2, klass)]) == ([], [])


def test_slo_prefills_wait_until_the_finals_have_their_first_token() -> None:
    assert decide([waiting(1, NEXT_TURN)], [flying(2, FINAL)]) == ([], [])
    assert decide([waiting(1, NEXT_TURN), waiting(2, FINAL)], []) == ([2], [])
    assert decide([waiting(1, NEXT_TURN)], [flying(2, FINAL, prefilling=False)]) == ([1], [])


def test_slo_history_that_waited_long_enters_beside_finals_a_partial_does_not() -> None:
    asked = SloPolicy().decide([waiting(1, NEXT_TURN)], [flying(2, FINAL)], 0.5)
    assert asked == Decision(look_again_at=1.0)
    assert decide([waiting(1, NEXT_TURN)], [flying(2, FINAL)], now=1.0) == ([1], [])
    assert decide([waiting(1, PARTIAL)], [flying(2, FINAL)], now=1.0) == ([], [])


def test_slo_a_final_aborts_partials_and_touches_of_other_calls() -> None:
    queue = [waiting(1, FINAL, "anna")]
    assert decide(queue, [flying(2, PARTIAL, "ben")]) == ([1], [2])
    assert decide(queue, [flying(2, TOUCH, "ben")]) == ([1], [2])


def test_slo_a_final_leaves_its_own_calls_partial_and_everybodys_history_alone() -> None:
    queue = [waiting(1, FINAL, "anna")]
    assert decide(queue, [flying(2, PARTIAL, "anna")]) == ([1], [])
    assert decide(queue, [flying(2, NEXT_TURN, "ben")]) == ([1], [])


def test_slo_the_newest_partial_replaces_the_older_and_a_final_all_before_it() -> None:
    queue = [waiting(1, PARTIAL, "anna"), waiting(2, PARTIAL, "anna"), waiting(3, PARTIAL, "ben")]
    assert tickets(SloPolicy().decide(queue, [flying(9, TOUCH)], 0.0)) == ([], {1: DropReason.COALESCED})
    queue += [waiting(4, FINAL, "anna"), waiting(5, NEXT_TURN, "anna")]
    admitted, aborted = tickets(SloPolicy().decide(queue, [], 0.0))
    assert admitted == [4]
    assert aborted == {1: DropReason.COALESCED, 2: DropReason.COALESCED}


def test_slo_long_prompts_one_at_a_time_short_ones_beside_them() -> None:
    queue = [replace(waiting(number, FINAL), prompt_tokens=900) for number in (1, 2)] + [waiting(3, FINAL)]
    assert decide(queue, []) == ([1, 3], [])


def test_slo_finals_beyond_the_budget_wait() -> None:
    queue = [waiting(number, FINAL) for number in range(1, 9)]
    assert decide(queue, []) == ([1, 2, 3, 4, 5], [])


def test_slo_what_is_cached_costs_no_budget() -> None:
    queue = [replace(waiting(number, FINAL), cached_tokens=96) for number in range(1, 31)]
    assert len(decide(queue, [])[0]) > 20


def test_slo_a_final_waits_for_another_that_computes_its_beginning() -> None:
    ids = tuple(range(100))
    queue = [replace(waiting(number, FINAL), prompt_ids=(*ids, number)) for number in (1, 2)]
    assert decide(queue, []) == ([1], [])
    assert decide([replace(queue[1], cached_tokens=96)], [FlightRequest(queue[0], 0.0, prefilling=True)]) == ([2], [])


def test_slo_collects_only_while_another_calls_prompt_is_computed() -> None:
    queue = [waiting(1, FINAL, "anna")]
    busy = [flying(2, NEXT_TURN, "ben")]
    assert SloPolicy().decide(queue, busy, 0.0) == Decision(look_again_at=0.005)
    assert decide(queue, busy, now=0.005) == ([1], [])
    assert decide(queue, [flying(2, NEXT_TURN, "anna")], now=0.0) == ([1], [])
    assert decide(queue, [flying(2, FINAL, "ben", prefilling=False)], now=0.0) == ([1], [])


def test_slo_no_final_slows_running_answers_below_their_pace() -> None:
    predictor = ServiceTimePredictor()
    for others in list(range(6)) * 20:
        predictor.saw_decoding("", DecodeWork(others), 0.05 + 0.04 * others)
    policy = SloPolicy(PolicyOptions(token_pace_s=0.15), predictor)
    running = [flying(number, FINAL, prefilling=False) for number in range(10, 13)]
    assert policy.decide([waiting(1, FINAL)], running[:2], 0.0).admit == (1,)
    assert policy.decide([waiting(1, FINAL)], running, 0.0).admit == ()


def test_slo_sheds_touches_before_partials_and_never_finals() -> None:
    prefills = [waiting(1, PARTIAL), waiting(2, TOUCH)]
    few = [waiting(number, FINAL) for number in range(3, 9)]
    assert tickets(SloPolicy().decide([*prefills, *few], [], 0.0))[1] == {2: DropReason.SHED}
    many = [waiting(number, FINAL) for number in range(3, 15)]
    decision = SloPolicy().decide([*prefills, *many], [], 0.0)
    assert tickets(decision)[1] == {1: DropReason.SHED, 2: DropReason.SHED}
    assert decision.refuse == ()


def test_slo_replicas_do_not_disturb_each_other() -> None:
    here, there = (replace(waiting(number, FINAL), replica=name) for number, name in ((1, "a"), (2, "b")))
    busy = FlightRequest(replace(waiting(9, PARTIAL), replica="b"), 0.0, prefilling=True)
    assert decide([here], [busy]) == ([1], [])
    assert decide([there], [busy]) == ([2], [9])


@given(st.integers(1, 60), st.integers(0, 5))
def test_slo_a_flood_of_one_session_lets_others_through(flood: int, behind: int) -> None:
    queue = [waiting(number, FINAL, "flood", deadline=-9.0) for number in range(1, flood + 1)]
    queue += [waiting(100 + number, FINAL, f"call-{number}", deadline=9.0) for number in range(behind)]
    admitted = SloPolicy().decide(queue, [], 0.0).admit
    assert admitted[:1] == (1,)
    assert sorted(admitted[1 : behind + 1]) == [100 + number for number in range(min(behind, 4))][: len(admitted) - 1]


def test_target_size_waits_for_the_batch_or_the_time() -> None:
    policy = TargetSizePolicy(PolicyOptions(target_batch=3, max_batch=4))
    queue = [waiting(1, PARTIAL), waiting(2, FINAL)]
    assert policy.decide(queue, [], 0.0) == Decision(look_again_at=0.05)
    assert policy.decide(queue, [], 0.05).admit == (2, 1)
    assert policy.decide([*queue, waiting(3, FINAL)], [], 0.0).admit == (2, 3, 1)


def test_target_size_has_no_more_than_the_maximum_in_flight() -> None:
    policy = TargetSizePolicy(PolicyOptions(target_batch=2, max_batch=3))
    queue = [waiting(number, FINAL) for number in range(1, 6)]
    assert policy.decide(queue, [], 0.0).admit == (1, 2, 3)
    assert policy.decide(queue, [flying(7, FINAL), flying(8, FINAL)], 0.0).admit == (1,)
    assert policy.decide(queue, [flying(number, FINAL) for number in (7, 8, 9)], 9.0) == Decision()


def test_token_window_waits_but_no_longer_than_the_slack() -> None:
    policy = TokenWindowPolicy(PolicyOptions(), ServiceTimePredictor())
    queue = [waiting(1, FINAL, deadline=0.5)]
    assert policy.decide(queue, [], 0.0) == Decision(look_again_at=0.05)
    assert policy.decide(queue, [], 0.02) == Decision(look_again_at=0.05)
    assert policy.decide(queue, [], 0.35).admit == ()
    assert policy.decide(queue, [], 0.375).admit == (1,), "it needs 0.13 s"


def test_token_window_runs_a_full_window_and_splits_more() -> None:
    policy = TokenWindowPolicy(PolicyOptions(), ServiceTimePredictor())
    queue = [replace(waiting(number, FINAL, deadline=10.0 - number), prompt_tokens=1_000) for number in range(1, 7)]
    assert policy.decide(queue[:3], [], 0.0).admit == (3, 2, 1)
    assert policy.decide(queue, [], 0.01) == Decision(look_again_at=0.05)
    split = policy.decide(queue, [], 0.05)
    assert split == Decision(admit=(6, 5, 4, 3), look_again_at=0.1)


@pytest.mark.parametrize("name", PolicyName)
def test_one_batch_at_a_time_admits_nothing_beside_a_batch(name: PolicyName) -> None:
    policy = make_policy(name, PolicyOptions(one_batch_at_a_time=True, max_batch=4), ServiceTimePredictor())
    queue = [waiting(number, FINAL, deadline=-1.0) for number in range(1, 8)]
    assert policy.decide(queue, [flying(9, FINAL, prefilling=False)], 9.0).admit == ()
    assert policy.decide(queue, [], 9.0).admit == (1, 2, 3, 4)


def test_one_batch_at_a_time_groups_by_length() -> None:
    policy = make_policy(PolicyName.DIRECT, PolicyOptions(one_batch_at_a_time=True), ServiceTimePredictor())
    queue = [
        replace(waiting(number, FINAL), prompt_tokens=tokens)
        for number, tokens in enumerate((900, 20, 500, 64, 1_801), start=1)
    ]
    assert policy.decide(queue, [], 0.0).admit == (1, 3)
    assert policy.decide([queue[1], queue[3]], [], 0.0).admit == (2, 4)


def test_one_batch_at_a_time_slo_takes_long_prompts_together_as_far_as_the_pace_allows() -> None:
    predictor = ServiceTimePredictor()
    policy = make_policy(PolicyName.SLO, PolicyOptions(one_batch_at_a_time=True, max_batch=8), predictor)
    ids = tuple(range(600))
    queue = [replace(waiting(number, FINAL), prompt_tokens=600, prompt_ids=(*ids, number)) for number in range(1, 6)]
    assert policy.decide(queue, [], 0.0).admit == (1, 2, 3, 4, 5), "nothing of one is in the cache for another"
    for others in list(range(6)) * 20:
        predictor.saw_decoding("", DecodeWork(others), 0.05 + 0.04 * others)
    assert policy.decide(queue, [], 0.0).admit == (1, 2, 3)


requests = st.builds(
    QueuedRequest,
    ticket=st.integers(1, 400),
    session_id=st.sampled_from(["anna", "ben", "cleo", ""]),
    klass=st.sampled_from(RequestClass),
    deadline=st.floats(0, 5),
    arrived_at=st.floats(0, 5),
    prompt_tokens=st.integers(1, 3_000),
    max_tokens=st.integers(1, 100),
    replica=st.sampled_from(["", "b"]),
    cached_tokens=st.integers(0, 2_000),
)


@given(
    st.sampled_from(PolicyName),
    st.booleans(),
    st.lists(requests, max_size=30, unique_by=lambda request: request.ticket),
    st.integers(0, 10),
)
def test_every_decision_is_sound_and_the_engine_is_never_left_idle(
    name: PolicyName, one_batch: bool, drawn: list[QueuedRequest], flights: int
) -> None:
    policy = make_policy(name, PolicyOptions(one_batch_at_a_time=one_batch), ServiceTimePredictor())
    in_flight = [FlightRequest(request, 5.0, prefilling=request.ticket % 2 == 0) for request in drawn[:flights]]
    queue = drawn[flights:]
    decision = policy.decide(queue, in_flight, 6.0)
    waits = {request.ticket for request in queue}
    aborted = {drop.ticket for drop in decision.abort}
    assert len(set(decision.admit)) == len(decision.admit)
    assert set(decision.admit) <= waits
    assert not set(decision.admit) & aborted
    assert not {request.ticket for request in queue if request.klass is FINAL} & {*aborted, *decision.refuse}
    if waits - aborted and not in_flight:
        assert decision.admit or decision.look_again_at is not None
