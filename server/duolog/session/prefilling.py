"""Keeps the engine's cache one step ahead of one call: its history between turns, the caption while the user speaks.

    history_changed, caption ──▶ PrefillPlan ──pieces, one at a time──▶ Batcher
    final ─────────────────────▶ drops what waits, aborts what it has no use for

A failed prefill costs nothing but time later; it is counted, and tried again with the next change.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing

import anyio
import structlog

from duolog.ports.errors import EngineError, Overloaded
from duolog.ports.llm import ChatMessage, FinishReason, GenerationEnd, GenerationRequest, PromptEnd, Sampling
from duolog.serving.batcher import Admitted, Batcher, BatcherRequest
from duolog.serving.prefill import Piece, PrefillPlan
from duolog.serving.token_ids import TokenIds
from duolog.telemetry import metrics

log = structlog.get_logger(__name__)

DEADLINE_S = 1.0
"""When a piece is wanted, for the order among prefills."""
SAMPLING = Sampling(temperature=0.0, max_tokens=1)


class Prefilling:
    """The prefills of one call. `run` must be running; the other methods never wait."""

    def __init__(
        self, batcher: Batcher, session_id: str, open_prompt: Callable[[str], tuple[ChatMessage, ...]]
    ) -> None:
        """`open_prompt` gives the messages for what the user has said so far."""
        self._batcher = batcher
        self._session_id = session_id
        self._open_prompt = open_prompt
        self._plan = PrefillPlan()
        self._replica: str | None = None
        """Where the last piece went."""
        self._said: str | None = None
        """What is to be looked at next; None: nothing new."""
        self._woken = anyio.Event()
        self._piece: Piece | None = None
        self._admitted = False
        self._scope = anyio.CancelScope()
        self._sent = 0
        self.idle = anyio.Event()
        """Set while nothing is to be computed."""
        self.idle.set()

    def history_changed(self) -> None:
        """At the call's start, after an answer, a cut, an update; and when the user begins to speak."""
        self._look_at("")

    def caption(self, said: str) -> None:
        """The stable words of the utterance have grown."""
        self._look_at(said)

    def final(self, ids: TokenIds) -> None:
        """The turn's own request is on its way: prefills give way, but for one that computes what it needs.

        It is taken to be computed, so that late captions of the same words are not; else tell `final_failed`.
        """
        self._said = None
        self._plan.drop()
        piece = self._piece
        if piece is not None and not (self._admitted and self._plan.is_useful(piece.ids, ids)):
            self._scope.cancel()
        self._plan.computed(ids)

    def final_failed(self, ids: TokenIds) -> None:
        """It ended before its first token."""
        self._plan.not_computed(ids)

    async def run(self) -> None:
        """Prefill until cancelled."""
        while True:
            self._take_newest()
            piece = self._next_piece()
            if piece is not None:
                await self._compute(piece)
                continue
            self.idle.set()
            self._woken = anyio.Event()
            await self._woken.wait()

    def _look_at(self, said: str) -> None:
        self._said = said
        self.idle = anyio.Event() if self.idle.is_set() else self.idle
        self._woken.set()
        if self._piece is not None and not self._admitted:
            self._scope.cancel()

    def _take_newest(self) -> None:
        said, self._said = self._said, None
        if said is None:
            return
        try:
            ids = self._batcher.prompt_ids(self._open_prompt(said), PromptEnd.OPEN)
        except EngineError as error:
            self._give_up(error)
        else:
            self._plan.want(ids, history=not said)

    def _next_piece(self) -> Piece | None:
        """At another replica than before nothing is computed yet: it gets the prompt from its beginning, in chunks."""
        piece = self._plan.next()
        if piece is None:
            return None
        replica = self._batcher.replica_of(self._generation(piece))
        if self._replica not in (None, replica):
            self._plan.forget()
            piece = self._plan.next()
        self._replica = replica
        return piece

    async def _compute(self, piece: Piece) -> None:
        self._piece, self._admitted = piece, False
        try:
            with anyio.CancelScope() as self._scope:
                await self._request(piece)
        except (EngineError, Overloaded) as error:
            self._give_up(error)
        finally:
            self._piece = None

    async def _request(self, piece: Piece) -> None:
        self._sent += 1
        request = BatcherRequest(self._generation(piece), piece.klass, anyio.current_time() + DEADLINE_S)
        async with aclosing(self._batcher.generate(request)) as stream:
            async for part in stream:
                if isinstance(part, Admitted):
                    self._admitted = True
                elif isinstance(part, GenerationEnd) and part.reason is FinishReason.ABORTED:
                    self._plan.drop()  # room was needed; the next caption asks again
                elif isinstance(part, GenerationEnd):
                    self._plan.computed(piece.ids)

    def _generation(self, piece: Piece) -> GenerationRequest:
        return GenerationRequest(
            request_id=f"prefill_{self._session_id}_{self._sent}",
            messages=(),
            sampling=SAMPLING,
            session_id=self._session_id,
            prompt_ids=piece.ids,
            prefill=True,
        )

    def _give_up(self, error: EngineError | Overloaded) -> None:
        self._plan.drop()
        self._plan.forget()
        metrics.DROPS.labels("prefill", type(error).__name__).inc()
        log.info("prefill failed", error=str(error))
