"""The rules for prefills that all policies share."""

from __future__ import annotations

import pytest

from duolog.serving.policies import DirectPolicy, FlightRequest, QueuedRequest, RequestClass

pytestmark = pytest.mark.pure

FINAL, NEXT_TURN, PARTIAL, TOUCH = RequestClass


def waiting(ticket: int, klass: RequestClass, session: str = "", deadline: float = 0.0) -> QueuedRequest:
    return QueuedRequest(ticket, session or f"call-{ticket}", klass, deadline, 0.0, 100, 1)


def flying(ticket: int, klass: RequestClass, session: str = "", *, prefilling: bool = True) -> FlightRequest:
    return FlightRequest(waiting(ticket, klass, session), 0.0, prefilling=prefilling)


def decide(queue: list[QueuedRequest], in_flight: list[FlightRequest]) -> tuple[list[int], list[int]]:
    """Tickets to admit, tickets to abort."""
    decision = DirectPolicy().decide(queue, in_flight, 0.0)
    return list(decision.admit), [drop.ticket for drop in decision.abort]


def test_every_final_enters_at_once_the_most_urgent_first() -> None:
    queue = [waiting(1, FINAL, deadline=3.0), waiting(2, FINAL, deadline=1.0), waiting(3, FINAL, deadline=2.0)]
    assert decide(queue, [flying(9, FINAL), flying(8, NEXT_TURN)]) == ([2, 3, 1], [])


def test_one_prefill_enters_the_most_urgent() -> None:
    queue = [waiting(1, TOUCH), waiting(2, PARTIAL), waiting(3, NEXT_TURN, deadline=2.0), waiting(4, NEXT_TURN)]
    assert decide(queue, []) == ([4], [])


@pytest.mark.parametrize("klass", [NEXT_TURN, PARTIAL, TOUCH])
def test_no_prefill_enters_beside_another(klass: RequestClass) -> None:
    assert decide([waiting(1, NEXT_TURN)], [flying(2, klass)]) == ([], [])


def test_prefills_wait_until_the_finals_have_their_first_token() -> None:
    assert decide([waiting(1, NEXT_TURN)], [flying(2, FINAL)]) == ([], [])
    assert decide([waiting(1, NEXT_TURN), waiting(2, FINAL)], []) == ([2], [])
    assert decide([waiting(1, NEXT_TURN)], [flying(2, FINAL, prefilling=False)]) == ([1], [])


def test_a_final_aborts_partials_and_touches_of_other_calls() -> None:
    queue = [waiting(1, FINAL, "anna")]
    assert decide(queue, [flying(2, PARTIAL, "ben")]) == ([1], [2])
    assert decide(queue, [flying(2, TOUCH, "ben")]) == ([1], [2])


def test_a_final_leaves_its_own_calls_partial_and_everybodys_history_alone() -> None:
    queue = [waiting(1, FINAL, "anna")]
    assert decide(queue, [flying(2, PARTIAL, "anna")]) == ([1], [])
    assert decide(queue, [flying(2, NEXT_TURN, "ben")]) == ([1], [])


def test_nothing_is_aborted_where_no_final_enters() -> None:
    assert decide([waiting(1, NEXT_TURN)], [flying(2, PARTIAL)]) == ([], [])
