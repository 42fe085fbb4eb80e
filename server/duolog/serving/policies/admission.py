"""What the batcher and its policies tell each other. Pure: no clock, no loop, no engine.

queue, in flight, time ──▶ AdmissionPolicy.decide ──▶ Decision: who enters, who is refused, whose work is given up
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Protocol


class RequestClass(IntEnum):
    """What a request is for; a lower class goes first."""

    FINAL = 0
    """The answer to a turn that has ended: somebody waits."""
    SPECULATIVE = 1
    """The answer to a turn that has likely ended: it becomes a FINAL when the turn is committed."""
    NEXT_TURN = 2
    """Prefill of the system prompt and history for the turn that has begun."""
    PARTIAL = 3
    """Prefill of a stable partial transcript."""
    TOUCH = 4
    """Keeps a session's KV blocks warm."""
    WARM_UP = 5
    """Prefill of a persona's prompt while nobody is served: gives way to whatever comes, under every policy."""

    @property
    def answers(self) -> bool:
        """It generates; the others only fill the cache."""
        return self <= RequestClass.SPECULATIVE


ENGINE_PRIORITY = {
    RequestClass.FINAL: 0,
    RequestClass.SPECULATIVE: 5,
    RequestClass.NEXT_TURN: 10,
    RequestClass.PARTIAL: 20,
    RequestClass.TOUCH: 30,
    RequestClass.WARM_UP: 40,
}
"""vLLM's priorities: lower runs first. A guess that has entered keeps its own when it becomes a final."""


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
    """Estimated where the engine keeps its token ids to itself."""
    max_tokens: int
    replica: str = ""
    """Where it would run now."""
    cached_tokens: int = 0
    """Tokens at the prompt's beginning that are very likely in the replica's cache."""
    prompt_ids: tuple[int, ...] = field(default=(), repr=False)
    """Empty where they are not known."""

    @property
    def uncached_tokens(self) -> int:
        """What the engine has to compute before the first token; never less than one."""
        return max(1, self.prompt_tokens - self.cached_tokens)


@dataclass(frozen=True, slots=True)
class FlightRequest:
    """A request in the engine, as a policy sees it."""

    queued: QueuedRequest
    admitted_at: float
    prefilling: bool
    """True until its first token came; of a prefill until its end."""
    tokens: int = 0
    """Generated so far."""


class DropReason(StrEnum):
    """Why a request's work was given up."""

    COALESCED = "coalesced"
    """A newer request of its session computes the same and more."""
    MADE_ROOM = "made_room"
    """The final of another call needs the engine."""
    SHED = "shed"
    """More is asked than the engine can do in time."""


@dataclass(frozen=True, slots=True)
class Drop:
    ticket: int
    reason: DropReason


@dataclass(frozen=True, slots=True)
class Decision:
    """What a policy wants done now. Tickets that are gone by then are ignored."""

    admit: tuple[int, ...] = ()
    """Tickets that enter the engine, in this order."""
    refuse: tuple[int, ...] = ()
    """Waiting tickets that end with Overloaded."""
    abort: tuple[Drop, ...] = ()
    """Waiting or in flight; their streams end with FinishReason.ABORTED."""
    look_again_at: float | None = None
    """Ask again at this time at the latest; None: only when something arrives or ends."""


@dataclass(frozen=True, slots=True)
class PolicyOptions:
    """What the policies need to know about the engine, and their limits, each for one replica."""

    one_batch_at_a_time: bool = False
    """The engine has no continuous batching; see AdmissionPolicy."""
    target_batch: int = 4
    """`target_size`: as many waiting requests enter at once."""
    max_batch: int = 32
    """`target_size`: requests in flight. Every policy: requests of one batch where `one_batch_at_a_time`."""
    max_wait_s: float = 0.05
    """`target_size`: no request waits longer for others. `token_window`: time between two looks at the queue."""
    window_tokens: int = 2_048
    """`token_window`: fewer waiting tokens wait on, twice as many are split."""
    prefill_budget_tokens: int = 512
    """`slo`: uncached tokens of finals in flight, a long prompt counted as one chunk."""
    chunk_tokens: int = 128
    """What the engine computes of one prompt in a step where it has others; longer prompts are long."""
    token_pace_s: float = 0.15
    """`slo`: no final enters where running ones would get their tokens slower. Speech takes about 0.2 s a token."""
    collect_s: float = 0.005
    """`slo`: finals that arrive together within this time enter together while other calls' prompts are computed."""


class AdmissionPolicy(Protocol):
    """Asked whenever a request arrives, has its first token or ends, and when it said `look_again_at`.

    **Engines without continuous batching** (`PolicyOptions.one_batch_at_a_time`). Every policy then admits nothing on a
    replica while anything is in flight there, and at most `max_batch` requests in one decision, of similar length where
    it can choose. The batcher gives all requests of one decision the same `GenerationRequest.batch` (a number that
    is never used again, from 1) and their count as `batch_size`; they reach `LanguageModel.generate` one after another,
    in the same turn of the loop where their callers read at once. The engine runs them as one padded batch: it begins
    when `batch_size` requests of that number are there, or a few milliseconds after the first (a caller may have been
    cancelled in between), and streams each row to its own request. A row may end or be closed before the others; the
    next batch is admitted when the last row has ended. A `batch` of 0 came past the batcher and runs alone.
    """

    def decide(self, queue: Sequence[QueuedRequest], in_flight: Sequence[FlightRequest], now: float) -> Decision: ...
