"""Rules that several policies share. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from duolog.serving.policies.admission import FlightRequest, QueuedRequest, RequestClass


def urgency(request: QueuedRequest) -> tuple[int, float, int]:
    """Sorts by class, then earliest deadline, then order of arrival."""
    return request.klass, request.deadline, request.ticket


def admissible_prefills(queue: Sequence[QueuedRequest], in_flight: Sequence[FlightRequest]) -> list[QueuedRequest]:
    """At most one request that is no final, and only while no final waits for its first token.

    vLLM's priorities do not hold back a prefill that runs: two of them take the whole budget of each step, and a final
    behind two long ones waited 2.15 s, behind one 0.29 s.
    """
    finals_wait = any(request.klass is RequestClass.FINAL for request in queue)
    final_prefills = any(request.queued.klass is RequestClass.FINAL and request.prefilling for request in in_flight)
    prefills = any(request.queued.klass is not RequestClass.FINAL for request in in_flight)
    waiting = [request for request in queue if request.klass is not RequestClass.FINAL]
    if not waiting or finals_wait or final_prefills or prefills:
        return []
    return [min(waiting, key=urgency)]


def superfluous_prefills(finals: Sequence[QueuedRequest], in_flight: Sequence[FlightRequest]) -> list[FlightRequest]:
    """What makes room for the finals that enter now: other calls' partials and touches.

    A final's own call knows whether its prefill computes what the final needs, and aborts it where it does not.
    """
    sessions = {request.session_id for request in finals}
    return [
        request
        for request in in_flight
        if sessions and request.queued.klass >= RequestClass.PARTIAL and request.queued.session_id not in sessions
    ]
