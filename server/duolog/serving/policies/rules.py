"""Rules that several policies share. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from duolog.serving.policies.admission import (
    Decision,
    Drop,
    DropReason,
    FlightRequest,
    QueuedRequest,
    RequestClass,
)


def urgency(request: QueuedRequest) -> tuple[int, float, int]:
    """Sorts by class, then earliest deadline, then order of arrival."""
    return request.klass, request.deadline, request.ticket


def by_replica(
    queue: Sequence[QueuedRequest], in_flight: Sequence[FlightRequest]
) -> list[tuple[list[QueuedRequest], list[FlightRequest]]]:
    """For each replica that something waits for: what waits, and what is in flight there."""
    flights: dict[str, list[FlightRequest]] = defaultdict(list)
    for flight in in_flight:
        flights[flight.queued.replica].append(flight)
    waiting: dict[str, list[QueuedRequest]] = defaultdict(list)
    for request in queue:
        waiting[request.replica].append(request)
    return [(requests, flights[replica]) for replica, requests in waiting.items()]


def merged(decisions: Iterable[Decision]) -> Decision:
    """All of them in one."""
    several = list(decisions)
    times = [decision.look_again_at for decision in several if decision.look_again_at is not None]
    return Decision(
        admit=tuple(ticket for decision in several for ticket in decision.admit),
        refuse=tuple(ticket for decision in several for ticket in decision.refuse),
        abort=tuple(drop for decision in several for drop in decision.abort),
        look_again_at=min(times, default=None),
    )


def coalesced(queue: Sequence[QueuedRequest]) -> list[Drop]:
    """Waiting prefills that a newer request of the same session makes needless.

    The newest prefill of a class replaces the older ones, and an answer replaces every prefill that came before it.
    """
    newest: dict[tuple[str, RequestClass], int] = {}
    for request in queue:
        key = (request.session_id, request.klass)
        newest[key] = max(newest.get(key, 0), request.ticket)
    return [
        Drop(request.ticket, DropReason.COALESCED)
        for request in queue
        if request.session_id
        and not request.klass.answers
        and request.ticket
        < max(
            newest[request.session_id, request.klass],
            newest.get((request.session_id, RequestClass.FINAL), 0),
            newest.get((request.session_id, RequestClass.SPECULATIVE), 0),
        )
    ]


def superfluous_prefills(finals: Sequence[QueuedRequest], in_flight: Sequence[FlightRequest]) -> list[FlightRequest]:
    """What makes room for waiting finals: other calls' partials and touches. A guess takes nothing from others.

    A final's own call knows whether its prefill computes what the final needs, and aborts it where it does not.
    """
    sessions = {request.session_id for request in finals if request.klass is RequestClass.FINAL}
    return [
        flight
        for flight in in_flight
        if sessions and flight.queued.klass >= RequestClass.PARTIAL and flight.queued.session_id not in sessions
    ]
