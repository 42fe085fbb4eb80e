"""Makes any policy serve an engine that runs one padded batch at a time: nothing enters while a batch runs."""

from __future__ import annotations

from collections.abc import Sequence

from duolog.serving.policies.admission import (
    AdmissionPolicy,
    Decision,
    FlightRequest,
    PolicyOptions,
    QueuedRequest,
)

PADDED_SHARE = 2.0
"""A batch has rows whose prompts differ in length by no more than this factor: less than half of it is padding."""
SHORT_TOKENS = 64
"""Shorter prompts count as so long: what they pad is nothing."""


class OneBatchAtATime:
    """Lets in of each decision of `policy` the first request and those of similar length, where nothing runs.

    Nobody is left out for ever: the first in the order of `policy` always enters.
    """

    def __init__(self, policy: AdmissionPolicy, options: PolicyOptions) -> None:
        self._policy = policy
        self._options = options

    def decide(self, queue: Sequence[QueuedRequest], in_flight: Sequence[FlightRequest], now: float) -> Decision:
        busy = {flight.queued.replica for flight in in_flight}
        free = [request for request in queue if request.replica not in busy]
        decision = self._policy.decide(free, (), now)
        return Decision(
            admit=tuple(request.ticket for request in self._batch(free, decision.admit)),
            refuse=decision.refuse,
            abort=decision.abort,
            look_again_at=decision.look_again_at,
        )

    def _batch(self, queue: list[QueuedRequest], admitted: tuple[int, ...]) -> list[QueuedRequest]:
        requests = {request.ticket: request for request in queue}
        ordered = [requests[ticket] for ticket in admitted if ticket in requests]
        if not ordered:
            return []
        first = ordered[0]
        alike = [request for request in ordered if request.replica == first.replica and _are_alike(request, first)]
        return alike[: self._options.max_batch]


def _are_alike(one: QueuedRequest, other: QueuedRequest) -> bool:
    lengths = [max(SHORT_TOKENS, request.prompt_tokens) for request in (one, other)]
    return max(lengths) <= PADDED_SHARE * min(lengths)
