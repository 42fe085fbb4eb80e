"""`target_size`: waits until so many requests are there, or the first has waited long enough."""

from __future__ import annotations

from collections.abc import Sequence

from duolog.serving.policies.admission import Decision, FlightRequest, PolicyOptions, QueuedRequest
from duolog.serving.policies.rules import by_replica, merged, urgency


class TargetSizePolicy:
    """A priority queue for each replica; whoever waits and finds no room enters first when there is some."""

    def __init__(self, options: PolicyOptions) -> None:
        self._options = options

    def decide(self, queue: Sequence[QueuedRequest], in_flight: Sequence[FlightRequest], now: float) -> Decision:
        return merged(self._on_replica(*group, now) for group in by_replica(queue, in_flight))

    def _on_replica(self, queue: list[QueuedRequest], in_flight: list[FlightRequest], now: float) -> Decision:
        free = self._options.max_batch - len(in_flight)
        if not queue or free <= 0:
            return Decision()
        full_at = min(request.arrived_at for request in queue) + self._options.max_wait_s
        if len(queue) < self._options.target_batch and now < full_at:
            return Decision(look_again_at=full_at)
        return Decision(admit=tuple(request.ticket for request in sorted(queue, key=urgency)[:free]))
