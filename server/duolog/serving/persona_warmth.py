"""Keeps the beginning of each persona's calls in each replica's cache: the first turn is as fast as the tenth.

    what a call of the persona begins with ─▶ whole blocks ─▶ not in the replica's cache? ─▶ Batcher (class WARM_UP)

Only while nobody is served: after the start, after a restart of the engine, after a persona has changed, and when its
blocks were evicted. Whatever comes ends a warm-up at once; what it has computed stays in the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import aclosing
from enum import StrEnum

import anyio
import structlog

from duolog.ports.errors import EngineError, Overloaded
from duolog.ports.llm import ChatMessage, FinishReason, GenerationEnd, GenerationRequest, PromptEnd, Sampling
from duolog.serving.batcher import Batcher, BatcherRequest, RequestClass
from duolog.serving.load_limits import LoadLimits
from duolog.serving.pins.chains import Chain
from duolog.serving.pins.placement import PinnedPlacement, Replica
from duolog.serving.prefill import CHUNK_TOKENS, UNSETTLED_TOKENS
from duolog.telemetry import metrics

log = structlog.get_logger(__name__)

LOOK_EVERY_S = 0.5
IDLE_S = 1.0
"""Nobody has asked for anything for so long."""
AGAIN_AFTER_S = 30.0
"""Between two warm-ups of a persona at a replica: where the cache is too small, it is not filled again and again."""
RETRY_S = 5.0
"""After a failure."""
CACHE_SHARE = 0.25
"""Of a replica's cache, for the beginnings of all personas; those that do not fit any more are not warmed up."""
DEADLINE_S = 5.0
SAMPLING = Sampling(temperature=0.0, max_tokens=1)

Messages = tuple[ChatMessage, ...]


class Outcome(StrEnum):
    DONE = "done"
    GAVE_WAY = "gave_way"
    FAILED = "failed"


class PersonaWarmth:
    """`run` must be running; nobody waits for it."""

    def __init__(
        self,
        batcher: Batcher,
        placement: PinnedPlacement,
        limits: LoadLimits,
        openings: Callable[[], Mapping[str, Messages]],
    ) -> None:
        """`openings`: of each persona as it is now, the messages its calls begin with; the most important first."""
        self._batcher = batcher
        self._placement = placement
        self._limits = limits
        self._openings = openings
        self._chains: dict[Messages, Chain] = {}
        self._not_before: dict[tuple[str, tuple[int, ...]], float] = {}
        """(replica, names of the blocks) → when they may be warmed up again."""
        self._sent = 0

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await anyio.sleep(LOOK_EVERY_S)
            if self._may_work:
                openings = self._openings()
                self._chains = {one: chain for one, chain in self._chains.items() if one in openings.values()}
                for replica in self._placement.replicas.values():
                    await self._warm(replica, openings)

    @property
    def _may_work(self) -> bool:
        return self._batcher.idle_s >= IDLE_S and self._limits.may_keep_warm

    async def _warm(self, replica: Replica, openings: Mapping[str, Messages]) -> None:
        blocks: set[int] = set()
        room = int((replica.kept.total_blocks or replica.residency.capacity_blocks) * CACHE_SHARE)
        for persona, messages in openings.items():
            chain = self._chain(messages)
            blocks |= set(chain.hashes)
            if len(blocks) > room:
                return
            if replica.alive and self._is_due(replica, chain) and not await self._warm_persona(replica, persona, chain):
                return

    def _chain(self, messages: Messages) -> Chain:
        """Empty where the engine keeps its token ids to itself, or is not ready."""
        if (known := self._chains.get(messages)) is not None:
            return known
        try:
            ids = self._batcher.prompt_ids(messages, PromptEnd.OPEN)
        except EngineError:  # the template refuses it; the call itself will say so
            ids = ()
        size = self._placement.options.block_tokens
        settled = max(0, len(ids) - UNSETTLED_TOKENS) // size * size
        chain = Chain(size).of(ids[: settled + 1] if settled else ())
        if ids:
            self._chains[messages] = chain
        return chain

    def _is_due(self, replica: Replica, chain: Chain) -> bool:
        not_before = self._not_before.get((replica.name, chain.hashes), 0.0)
        return replica.residency.resident_blocks(chain.hashes) < len(chain.hashes) and (
            anyio.current_time() >= not_before
        )

    async def _warm_persona(self, replica: Replica, persona: str, chain: Chain) -> bool:
        """False where there is no time for more now."""
        began_at, key = anyio.current_time(), (replica.name, chain.hashes)
        reason = "lost" if key in self._not_before else "new"
        resident_tokens = replica.residency.resident_blocks(chain.hashes) * self._placement.options.block_tokens
        outcome = Outcome.DONE
        for ids in chain.pieces(resident_tokens, CHUNK_TOKENS):
            outcome = await self._request(replica, ids) if self._may_work else Outcome.GAVE_WAY
            if outcome is not Outcome.DONE:
                break
        now = anyio.current_time()
        metrics.WARM_UPS.labels(reason, outcome.value).inc()
        if outcome is Outcome.DONE:
            self._not_before[key] = now + AGAIN_AFTER_S
            log.info(
                "persona warmed up",
                persona=persona,
                replica=replica.name,
                reason=reason,
                tokens=len(chain.ids),
                seconds=round(now - began_at, 3),
            )
        elif outcome is Outcome.FAILED:
            await anyio.sleep(RETRY_S)
        return outcome is Outcome.DONE

    async def _request(self, replica: Replica, ids: tuple[int, ...]) -> Outcome:
        self._sent += 1
        generation = GenerationRequest(
            request_id=f"warm_up_{self._sent}",
            messages=(),
            sampling=SAMPLING,
            prompt_ids=ids,
            prefill=True,
            replica=replica.name,
        )
        request = BatcherRequest(generation, RequestClass.WARM_UP, anyio.current_time() + DEADLINE_S)
        try:
            async with aclosing(self._batcher.generate(request)) as stream:
                async for value in stream:
                    if isinstance(value, GenerationEnd):
                        return Outcome.GAVE_WAY if value.reason is FinishReason.ABORTED else Outcome.DONE
        except (EngineError, Overloaded) as error:
            log.info("a persona could not be warmed up", replica=replica.name, error=str(error))
        return Outcome.FAILED
