"""One request on its way through the batcher."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import anyio

from duolog.ports.llm import GenerationRequest
from duolog.serving.policies import FlightRequest, QueuedRequest, RequestClass


@dataclass(slots=True)
class Ticket:
    """The changing state of one request."""

    queued: QueuedRequest
    generation: GenerationRequest
    """As it is sent to the engine."""
    wake: anyio.Event = field(default_factory=anyio.Event)
    admitted_at: float | None = None
    refused: bool = False
    aborted: bool = False
    tokens: int = 0
    held_s: float = 0.0
    """Time that its reader took between tokens."""
    pull: anyio.CancelScope | None = None
    """Open while the engine is awaited for the next value."""

    @property
    def waits(self) -> bool:
        return self.admitted_at is None and not self.refused and not self.aborted

    def flight(self, now: float) -> FlightRequest:
        """As a policy sees it in the engine."""
        entered_at = now if self.admitted_at is None else self.admitted_at
        return FlightRequest(self.queued, entered_at, prefilling=self.tokens == 0, tokens=self.tokens)


def by_class(tickets: Mapping[int, Ticket]) -> dict[RequestClass, int]:
    """How many there are of each class."""
    counted = Counter(ticket.queued.klass for ticket in tickets.values())
    return {klass: counted[klass] for klass in RequestClass}
