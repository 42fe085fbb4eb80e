"""The one way to the chat model: every LLM request of every call waits here until the policy lets it in.

Continuous batching is the engine's work; the batcher decides what may be in flight and in which order. It has no task
of its own: whoever arrives, ends or wakes up asks the policy again.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace
from enum import StrEnum

import anyio

from duolog.ports.errors import EngineError, EngineProtocolError, EngineTimeout, Overloaded
from duolog.ports.llm import (
    ChatMessage,
    FinishReason,
    GenerationEnd,
    GenerationRequest,
    LanguageModel,
    PromptEnd,
    TextDelta,
    TokenUsage,
)
from duolog.serving.placement import OneReplica, Placement
from duolog.serving.policies import (
    ENGINE_PRIORITY,
    AdmissionPolicy,
    Drop,
    DropReason,
    QueuedRequest,
    RequestClass,
)
from duolog.serving.predictor import ServiceTimePredictor
from duolog.serving.prefill import BLOCK_TOKENS
from duolog.serving.recent_prompts import RecentPrompts
from duolog.serving.service_times import ServiceTimes
from duolog.serving.tickets import Ticket, by_class
from duolog.telemetry import metrics

__all__ = [
    "Admitted",
    "Batcher",
    "BatcherOptions",
    "BatcherRequest",
    "BatcherSnapshot",
    "RequestClass",
]


_GIVEN_UP = GenerationEnd(FinishReason.ABORTED, TokenUsage())
_SHORTEST_WAIT_S = 0.001
"""A policy that asks to be asked again at once is asked this much later: nobody spins."""


@dataclass(frozen=True, slots=True)
class BatcherRequest:
    generation: GenerationRequest
    """Its `priority`, `replica` and `batch` are the batcher's to set."""
    klass: RequestClass
    deadline: float
    """When its first token is wanted, `anyio.current_time()` seconds: orders requests, never cuts one off."""
    committed: anyio.Event | None = None
    """Of a SPECULATIVE request: where it is set before the request arrives, this is a FINAL; see `Batcher.promote`."""

    @property
    def klass_now(self) -> RequestClass:
        certain = self.committed is not None and self.committed.is_set()
        return RequestClass.FINAL if certain and self.klass is RequestClass.SPECULATIVE else self.klass


@dataclass(frozen=True, slots=True)
class Admitted:
    """First value of a stream: the request has entered the engine."""

    waited_s: float


@dataclass(frozen=True, slots=True)
class BatcherOptions:
    first_token_timeout_s: float = 20.0
    """From admission to the first token."""
    inter_token_timeout_s: float = 10.0
    queue_timeout_s: float = 20.0
    """A request that the policy has not let in by then ends with Overloaded."""
    max_queued: int = 1024
    """The next request is refused with Overloaded."""
    prefill_chunk_tokens: int | None = None
    """A prefill of more tokens that are not cached goes in pieces of so many, each let in by itself; None: whole."""
    prefill_piece_s: float = 0.2
    """Pieces are shorter, down to one block, where the engine would need longer for them: a final waits for one."""
    retry_after_s: float = 2.0


class Outcome(StrEnum):
    """How a request ended; each ends in exactly one way."""

    FINISHED = "finished"
    ABORTED = "aborted"
    """Closed or cancelled by its caller, or given up by the policy."""
    FAILED = "failed"
    """The engine raised."""
    TIMED_OUT = "timed_out"
    REFUSED = "refused"
    """Never entered the engine: no capacity."""


@dataclass(frozen=True, slots=True)
class BatcherSnapshot:
    """Counters for metrics. `arrived` is the sum of `queued`, `in_flight` and all outcomes."""

    arrived: int
    queued: dict[RequestClass, int]
    in_flight: dict[RequestClass, int]
    ended: dict[Outcome, int]
    waited_s_total: float
    """Time in the queue of all requests that were let in."""
    aborted_in_engine: dict[RequestClass, int]
    """Of the aborted, those the engine had begun: its work for nothing, but for the KV blocks that stay cached."""
    aborted_s_total: float
    """Time those had spent in the engine."""


class Batcher:
    """Shared by all calls of a process. Must be used from one event loop."""

    def __init__(
        self,
        engine: LanguageModel,
        policy: AdmissionPolicy,
        options: BatcherOptions | None = None,
        placement: Placement | None = None,
        predictor: ServiceTimePredictor | None = None,
    ) -> None:
        """`predictor` is the policy's, to be taught."""
        self._engine = engine
        self._policy = policy
        self._options = options or BatcherOptions()
        self._placement = placement or OneReplica()
        self._times = ServiceTimes(predictor or ServiceTimePredictor())
        self._recent = RecentPrompts()
        self._queue: dict[int, Ticket] = {}
        self._flight: dict[int, Ticket] = {}
        self._look_again_at: float | None = None
        self._arrived = 0
        self._batches = 0
        self._ended: Counter[Outcome] = Counter()
        self._waited_s = 0.0
        self._aborted: Counter[RequestClass] = Counter()
        self._aborted_s = 0.0
        self._worked_at = -math.inf
        """When the last request that was no warm-up arrived or ended."""

    def prompt_ids(self, messages: tuple[ChatMessage, ...], end: PromptEnd) -> tuple[int, ...]:
        """The engine's: see `LanguageModel.prompt_ids`. Raises EngineRejected."""
        return self._engine.prompt_ids(messages, end)

    def replica_of(self, generation: GenerationRequest) -> str:
        """Where the request would run now; the same name each time where there is one replica only."""
        return self._place(generation)[0]

    def generate(self, request: BatcherRequest) -> AsyncGenerator[Admitted | TextDelta | GenerationEnd, None]:
        """Stream an answer: Admitted, TextDelta…, then one GenerationEnd. Use it under `aclosing`.

        Where the policy gives a waiting request up, its stream is a GenerationEnd with FinishReason.ABORTED alone.
        Closing the generator or cancelling withdraws the request, from the queue or from the engine.
        Raises Overloaded where it is not let in, EngineTimeout where the engine is stuck, and what the engine raises.
        """
        generation = request.generation
        if not generation.prefill or self._options.prefill_chunk_tokens is None:
            return self._whole(request)
        replica, cached_tokens = self._place(generation)
        if len(generation.prompt_ids) - cached_tokens <= self._piece_tokens(replica):
            return self._whole(request)
        return self._in_pieces(request, replica, cached_tokens)

    def _piece_tokens(self, replica: str) -> int:
        """Whole blocks."""
        most = self._options.prefill_chunk_tokens or 0
        token_s = self._times.predictor.prefill_s(replica, 1)
        affordable = self._options.prefill_piece_s / token_s if token_s > 0 else most
        return max(BLOCK_TOKENS, int(min(most, affordable)) // BLOCK_TOKENS * BLOCK_TOKENS)

    async def _in_pieces(
        self, request: BatcherRequest, replica: str, done: int
    ) -> AsyncGenerator[Admitted | TextDelta | GenerationEnd, None]:
        """A long prefill, `done` tokens of it cached, as prefixes that grow: between two of them finals go first."""
        generation, cached, admitted = request.generation, None, False
        while True:
            done = min(len(generation.prompt_ids), done + self._piece_tokens(replica))
            ids, name = generation.prompt_ids[:done], f"{generation.request_id}-{done}"
            piece = replace(request, generation=replace(generation, request_id=name, prompt_ids=ids))
            end = _GIVEN_UP
            async with aclosing(self._whole(piece)) as stream:
                async for part in stream:
                    if isinstance(part, GenerationEnd):
                        end = part
                    elif not admitted:
                        admitted = True
                        yield part
            cached = end.usage.cached_tokens if cached is None else cached
            if end.reason is FinishReason.ABORTED or done == len(generation.prompt_ids):
                yield replace(end, usage=replace(end.usage, cached_tokens=cached))
                return

    async def _whole(self, request: BatcherRequest) -> AsyncGenerator[Admitted | TextDelta | GenerationEnd, None]:
        """One ticket, from arrival to end."""
        ticket = self._arrive(request)
        outcome = Outcome.ABORTED
        try:
            waited_s = await self._admission(ticket)
            if waited_s is None:
                self._settle(ticket, outcome)
                yield _GIVEN_UP
                return
            yield Admitted(waited_s)
            async with aclosing(self._engine.generate(ticket.generation)) as stream:
                while True:
                    value = await self._next_value(ticket, stream)
                    if isinstance(value, GenerationEnd):
                        break
                    given_at = anyio.current_time()
                    yield value
                    ticket.held_s += anyio.current_time() - given_at
            outcome = self._finish(ticket, value)
            yield value
        except Overloaded:
            outcome = Outcome.REFUSED
            raise
        except EngineError as error:
            outcome = Outcome.TIMED_OUT if isinstance(error, EngineTimeout) else Outcome.FAILED
            metrics.ENGINE_ERRORS.labels("llm", type(error).__name__).inc()
            raise
        finally:
            self._settle(ticket, outcome)

    def promote(self, request_id: str) -> None:
        """A SPECULATIVE request, waiting or in the engine, is a FINAL from now on. Nothing happens where it is gone."""
        for ticket in (*self._queue.values(), *self._flight.values()):
            if ticket.generation.request_id == request_id and ticket.queued.klass is RequestClass.SPECULATIVE:
                ticket.queued = replace(ticket.queued, klass=RequestClass.FINAL)
                self._ask_policy()
                return

    @property
    def idle_s(self) -> float:
        """For how long there has been no request, warm-ups not counted; 0 while there is one."""
        tickets = (*self._queue.values(), *self._flight.values())
        if any(ticket.queued.klass is not RequestClass.WARM_UP for ticket in tickets):
            return 0.0
        return anyio.current_time() - self._worked_at

    def oldest_wait_s(self) -> dict[RequestClass, float]:
        """Of each class, how long the request waits that has waited longest; 0 where none does."""
        now, oldest = anyio.current_time(), dict.fromkeys(RequestClass, 0.0)
        for ticket in self._queue.values():
            klass = ticket.queued.klass
            oldest[klass] = max(oldest[klass], now - ticket.queued.arrived_at)
        return oldest

    def snapshot(self) -> BatcherSnapshot:
        return BatcherSnapshot(
            arrived=self._arrived,
            queued=by_class(self._queue),
            in_flight=by_class(self._flight),
            ended={outcome: self._ended[outcome] for outcome in Outcome},
            waited_s_total=self._waited_s,
            aborted_in_engine={klass: self._aborted[klass] for klass in RequestClass},
            aborted_s_total=self._aborted_s,
        )

    def _arrive(self, request: BatcherRequest) -> Ticket:
        self._arrived += 1
        generation = request.generation
        replica, cached_tokens = self._place(generation)
        queued = QueuedRequest(
            ticket=self._arrived,
            session_id=generation.session_id,
            klass=request.klass_now,
            deadline=request.deadline,
            arrived_at=anyio.current_time(),
            prompt_tokens=len(generation.prompt_ids) or estimated_tokens(generation),
            max_tokens=generation.sampling.max_tokens,
            replica=replica,
            cached_tokens=cached_tokens,
            prompt_ids=generation.prompt_ids,
        )
        ticket = Ticket(queued, generation)
        if len(self._queue) >= self._options.max_queued:
            self._refuse(ticket, "queue_full")
        self._queue[queued.ticket] = ticket
        if queued.klass is not RequestClass.WARM_UP:
            self._worked_at = queued.arrived_at
            self._make_way()
        return ticket

    def _make_way(self) -> None:
        """Work has come: warm-ups end."""
        for number, ticket in [*self._queue.items(), *self._flight.items()]:
            if ticket.queued.klass is RequestClass.WARM_UP:
                self._drop(Drop(number, DropReason.MADE_ROOM))

    def _place(self, generation: GenerationRequest) -> tuple[str, int]:
        """Replica, and tokens cached there."""
        placed = self._placement.place(generation)
        cached = placed.cached_tokens
        if cached is None:
            cached = self._recent.cached_tokens(placed.replica, generation.session_id, generation.prompt_ids)
        return placed.replica, cached

    async def _admission(self, ticket: Ticket) -> float | None:
        """Wait until the policy lets the request in: seconds waited, None where it was given up. Raises Overloaded."""
        give_up_at = ticket.queued.arrived_at + self._options.queue_timeout_s
        if not ticket.refused:
            self._ask_policy()
        while ticket.admitted_at is None:
            if ticket.aborted:
                return None
            if anyio.current_time() >= give_up_at:
                self._refuse(ticket, "queue_timeout")
            if ticket.refused:
                raise Overloaded(
                    "The language model has more requests than it can take; try again in a moment.",
                    retry_after_s=self._options.retry_after_s,
                )
            wake_at = give_up_at if self._look_again_at is None else min(give_up_at, self._look_again_at)
            with anyio.move_on_after(wake_at - anyio.current_time()) as waiting:
                await ticket.wake.wait()
            if not waiting.cancelled_caught:
                ticket.wake = anyio.Event()
            elif self._look_again_at is not None and anyio.current_time() >= self._look_again_at:
                self._ask_policy()
        return ticket.admitted_at - ticket.queued.arrived_at

    async def _next_value(
        self, ticket: Ticket, stream: AsyncGenerator[TextDelta | GenerationEnd, None]
    ) -> TextDelta | GenerationEnd:
        """The engine's next value, within its time limit. Raises EngineTimeout, EngineProtocolError."""
        limit_s = self._options.inter_token_timeout_s if ticket.tokens else self._options.first_token_timeout_s
        value = None
        with anyio.move_on_after(0 if ticket.aborted else limit_s) as ticket.pull:
            value = await anext(stream, None)
            if value is None:
                raise EngineProtocolError("The language model's stream stopped without an end.", engine="llm")
        ticket.pull = None
        if ticket.aborted:
            return _GIVEN_UP
        if value is None:
            raise EngineTimeout(f"The language model was silent for {limit_s:g} s; see its log.", engine="llm")
        if isinstance(value, TextDelta):
            self._count_token(ticket)
        return value

    def _count_token(self, ticket: Ticket) -> None:
        ticket.tokens += 1
        if ticket.tokens == 1:
            self._times.first_token(ticket.queued.ticket, anyio.current_time())
            self._computed(ticket)
            self._ask_policy()

    def _computed(self, ticket: Ticket) -> None:
        """The engine has its whole prompt."""
        self._recent.computed(ticket.queued.replica, ticket.queued.session_id, ticket.queued.prompt_ids)

    def _finish(self, ticket: Ticket, end: GenerationEnd) -> Outcome:
        """The engine's stream has ended by itself, or was given up by the policy."""
        outcome = Outcome.ABORTED if end.reason is FinishReason.ABORTED else Outcome.FINISHED
        if outcome is Outcome.FINISHED:
            _export_tokens(end.usage)
            self._computed(ticket)
            self._times.ended(ticket.queued.ticket, end.usage, ticket.held_s, anyio.current_time())
        self._settle(ticket, outcome)
        return outcome

    def _settle(self, ticket: Ticket, outcome: Outcome) -> None:
        """Take an ended request out of the books, once."""
        number, klass = ticket.queued.ticket, ticket.queued.klass
        if not (self._queue.pop(number, None) or self._flight.pop(number, None)):
            return
        self._times.ended(number, None, 0.0, anyio.current_time())
        if klass is not RequestClass.WARM_UP:
            self._worked_at = anyio.current_time()
        self._ended[outcome] += 1
        metrics.REQUESTS_ENDED.labels(klass.name.lower(), outcome.value).inc()
        if outcome is Outcome.FINISHED and ticket.admitted_at is not None:
            metrics.ENGINE_SECONDS.labels("llm", klass.name.lower()).observe(anyio.current_time() - ticket.admitted_at)
        if outcome is Outcome.ABORTED and ticket.admitted_at is not None:
            self._aborted[klass] += 1
            self._aborted_s += anyio.current_time() - ticket.admitted_at
            metrics.REQUEST_ABORTED_SECONDS.labels(klass.name.lower()).inc(anyio.current_time() - ticket.admitted_at)
        self._ask_policy()

    def _ask_policy(self) -> None:
        """Let the policy decide and carry it out."""
        now = anyio.current_time()
        waiting = [ticket.queued for ticket in self._queue.values() if ticket.waits]
        flying = [ticket.flight(now) for ticket in self._flight.values()]
        decision = self._policy.decide(waiting, flying, now)
        for drop in decision.abort:
            self._drop(drop)
        for number in decision.refuse:
            if (refused := self._queue.get(number)) and refused.waits:
                self._refuse(refused, DropReason.SHED)
        entering = [ticket for number in decision.admit if (ticket := self._queue.get(number)) and ticket.waits]
        self._batches += bool(entering)
        for ticket in entering:
            self._admit(ticket, now, len(entering))
        self._look_again(decision.look_again_at, now)

    def _look_again(self, at: float | None, now: float) -> None:
        """Remember when to ask again. Waiters sleep no longer than that: they are woken only for an earlier time."""
        before, self._look_again_at = self._look_again_at, None if at is None else max(at, now + _SHORTEST_WAIT_S)
        if self._look_again_at is not None and (before is None or self._look_again_at < before):
            for ticket in self._queue.values():
                ticket.wake.set()

    def _admit(self, ticket: Ticket, now: float, batch_size: int) -> None:
        replica, cached_tokens = self._place(ticket.generation)
        ticket.queued = replace(ticket.queued, replica=replica, cached_tokens=cached_tokens)
        ticket.generation = replace(
            ticket.generation,
            priority=ENGINE_PRIORITY[ticket.queued.klass],
            replica=replica,
            batch=self._batches,
            batch_size=batch_size,
        )
        del self._queue[ticket.queued.ticket]
        ticket.admitted_at = now
        self._times.entered(ticket.queued, [other.flight(now) for other in self._flight.values()], now)
        self._flight[ticket.queued.ticket] = ticket
        waited_s = now - ticket.queued.arrived_at
        self._waited_s += waited_s
        metrics.QUEUE_SECONDS.labels(ticket.queued.klass.name.lower()).observe(waited_s)
        ticket.wake.set()

    def _refuse(self, ticket: Ticket, reason: str) -> None:
        if not ticket.refused:
            ticket.refused = True
            metrics.REQUESTS_DROPPED.labels(ticket.queued.klass.name.lower(), reason).inc()
            ticket.wake.set()

    def _drop(self, drop: Drop) -> None:
        ticket = self._queue.get(drop.ticket) or self._flight.get(drop.ticket)
        if ticket is None or ticket.refused or ticket.aborted:
            return
        ticket.aborted = True
        metrics.REQUESTS_DROPPED.labels(ticket.queued.klass.name.lower(), drop.reason.value).inc()
        ticket.wake.set()
        if ticket.pull is not None:
            ticket.pull.cancel()


def estimated_tokens(generation: GenerationRequest) -> int:
    """About how long the prompt is: four characters a token in Latin script, one in Chinese."""
    text = "".join(message.content for message in generation.messages)
    wide = sum(char >= "\u2e80" for char in text)
    return math.ceil(wide + (len(text) - wide) / 4) + 4 * len(generation.messages)


def _export_tokens(usage: TokenUsage) -> None:
    metrics.PROMPT_TOKENS.labels("cached").inc(usage.cached_tokens)
    metrics.PROMPT_TOKENS.labels("computed").inc(usage.prompt_tokens - usage.cached_tokens)
    metrics.COMPLETION_TOKENS.inc(usage.completion_tokens)
