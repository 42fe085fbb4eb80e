"""Admission policies of the batcher: which waiting requests may enter the engine now.

Pure: a policy is shown the queue, what is in flight and the time; it never awaits, never sees an engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol


class RequestClass(IntEnum):
    """What a request is for; a lower class goes first."""

    FINAL = 0
    """The answer to a turn that has ended, or very likely has: somebody waits."""
    NEXT_TURN = 1
    """Prefill of the system prompt and history for the turn that has begun."""
    PARTIAL = 2
    """Prefill of a stable partial transcript."""
    TOUCH = 3
    """Keeps a session's KV blocks warm."""


ENGINE_PRIORITY = {
    RequestClass.FINAL: 0,
    RequestClass.NEXT_TURN: 10,
    RequestClass.PARTIAL: 20,
    RequestClass.TOUCH: 30,
}
"""vLLM's priorities: lower runs first."""


@dataclass(frozen=True, slots=True)
class QueuedRequest:
    """A request that waits, as a policy sees it."""

    ticket: int
    """Unique in this process; grows in order of arrival."""
    session_id: str
    klass: RequestClass
    deadline: float
    """When its first token is wanted, in seconds of the loop's clock."""
    arrived_at: float
    prompt_tokens: int
    """Estimated."""
    max_tokens: int


@dataclass(frozen=True, slots=True)
class FlightRequest:
    """A request in the engine, as a policy sees it."""

    queued: QueuedRequest
    admitted_at: float
    prefilling: bool
    """True until its first token came."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What a policy wants done now. Tickets that are not in the queue any more are ignored."""

    admit: tuple[int, ...] = ()
    """Tickets that enter the engine, in this order."""
    refuse: tuple[int, ...] = ()
    """Waiting tickets that end with Overloaded."""
    abort: tuple[int, ...] = ()
    """Tickets in flight whose work is given up; their streams end with FinishReason.ABORTED."""
    look_again_at: float | None = None
    """Ask again at this time at the latest; None: only when something arrives or ends."""


class AdmissionPolicy(Protocol):
    """Chooses what may be in flight, and in which order."""

    def decide(self, queue: Sequence[QueuedRequest], in_flight: Sequence[FlightRequest], now: float) -> Decision:
        """Asked after every arrival, first token and end, and at `look_again_at`. `queue` is in order of arrival."""
        ...


class DirectPolicy:
    """Lets everything in at once, most urgent first; the engine's own priorities do the rest."""

    def decide(self, queue: Sequence[QueuedRequest], in_flight: Sequence[FlightRequest], now: float) -> Decision:  # noqa: ARG002 - rejected: the Protocol's parameters, of which this policy needs one
        return Decision(admit=tuple(request.ticket for request in sorted(queue, key=_urgency)))


def _urgency(request: QueuedRequest) -> tuple[int, float, int]:
    """Class, then earliest deadline, then order of arrival."""
    return request.klass, request.deadline, request.ticket
