"""`direct`: the engine's own scheduler decides, by the priorities of the classes."""

from __future__ import annotations

from collections.abc import Sequence

from duolog.serving.policies.admission import Decision, Drop, DropReason, FlightRequest, QueuedRequest, RequestClass
from duolog.serving.policies.rules import admissible_prefills, superfluous_prefills, urgency


class DirectPolicy:
    """Lets every final request in at once, most urgent first; prefills by the rules that all policies share."""

    def decide(self, queue: Sequence[QueuedRequest], in_flight: Sequence[FlightRequest], now: float) -> Decision:  # noqa: ARG002 - rejected: the Protocol's parameters, of which this policy needs two
        finals = sorted((request for request in queue if request.klass is RequestClass.FINAL), key=urgency)
        return Decision(
            admit=tuple(request.ticket for request in (*finals, *admissible_prefills(queue, in_flight))),
            abort=tuple(
                Drop(request.queued.ticket, DropReason.MADE_ROOM) for request in superfluous_prefills(finals, in_flight)
            ),
        )
