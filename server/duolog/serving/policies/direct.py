"""`direct`: the engine's own scheduler decides, by the priorities of the classes."""

from __future__ import annotations

from collections.abc import Sequence

from duolog.serving.policies.admission import Decision, FlightRequest, QueuedRequest
from duolog.serving.policies.rules import urgency


class DirectPolicy:
    """Lets every request in at once, the most urgent first."""

    def decide(self, queue: Sequence[QueuedRequest], in_flight: Sequence[FlightRequest], now: float) -> Decision:  # noqa: ARG002 - rejected: the Protocol's parameters
        return Decision(admit=tuple(request.ticket for request in sorted(queue, key=urgency)))
