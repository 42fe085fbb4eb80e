"""The background of KV pins: news from the replicas, keep-alive touches, and the store that other servers read.

KvEvents, ReplicaMonitor ──▶ PinnedPlacement ◀──claims──▶ PinStore
                                  │ due
                                  └──touches──▶ Batcher (class TOUCH: last in line, first to be dropped)
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass

import anyio
import structlog

from duolog.ports.errors import EngineError, Overloaded
from duolog.ports.llm import FinishReason, GenerationEnd, GenerationRequest, Sampling
from duolog.ports.pin_store import PinRecord, PinStore
from duolog.ports.replicas import AllBlocksCleared, BlocksRemoved, BlocksStored, KvEvent, KvEvents, ReplicaMonitor
from duolog.serving.batcher import Batcher, BatcherRequest, RequestClass
from duolog.serving.load_limits import LoadLimits
from duolog.serving.pins.keep_warm import Due, TouchReason
from duolog.serving.pins.placement import TOUCH_ID, PinnedPlacement, Replica, Session
from duolog.serving.prefill import CHUNK_TOKENS
from duolog.telemetry import metrics

log = structlog.get_logger(__name__)

LOOK_EVERY_S = 0.1
"""Between two looks at who is to be touched."""
STATS_EVERY_S = 2.0
SAVE_EVERY_S = 0.25
STORE_RETRY_S = 2.0
DROPPED_TOUCH_RETRY_S = 1.0
REROUTE_JITTER_S = 0.2
TOUCH_DEADLINE_S = 5.0
SAMPLING = Sampling(temperature=0.0, max_tokens=1)


@dataclass(frozen=True, slots=True)
class PinSources:
    """Whatever is there: without events residency is an estimate, without a store another server starts cold."""

    events: Mapping[str, KvEvents]
    monitor: ReplicaMonitor | None = None
    store: PinStore | None = None


class PinKeeper:
    """`run` must be running; nobody waits for it."""

    def __init__(
        self, placement: PinnedPlacement, batcher: Batcher, sources: PinSources, limits: LoadLimits | None = None
    ) -> None:
        self._limits = limits or LoadLimits()
        self._placement = placement
        self._batcher = batcher
        self._sources = sources
        self._sent = 0
        self._random = random.Random(0)

    async def run(self) -> None:
        """Until cancelled."""
        async with anyio.create_task_group() as tasks:
            for name, events in self._sources.events.items():
                tasks.start_soon(self._follow, self._placement.replicas[name], events)
            for replica in self._placement.replicas.values():
                tasks.start_soon(self._touch_due, replica)
                if self._sources.monitor is not None:
                    tasks.start_soon(self._ask, replica, self._sources.monitor)
            if self._sources.store is not None:
                tasks.start_soon(self._save, self._sources.store)

    async def _follow(self, replica: Replica, events: KvEvents) -> None:
        async with aclosing(events.read()) as stream:
            async for event in stream:
                apply_event(replica, event)

    async def _ask(self, replica: Replica, monitor: ReplicaMonitor) -> None:
        while True:
            try:
                stats = await monitor.stats(replica.name)
            except EngineError as error:
                log.debug("a replica does not say how it is", replica=replica.name, error=str(error))
            else:
                self._placement.learn(replica.name, stats)
                metrics.KV_CACHE_UTILIZATION.labels(replica.name).set(stats.kv_usage_ratio)
            self._placement.forget_idle(anyio.current_time())
            self._export(replica)
            await anyio.sleep(STATS_EVERY_S)

    def _export(self, replica: Replica) -> None:
        kept, size = replica.kept, self._placement.options.block_tokens
        metrics.PIN_SESSIONS.labels(replica.name).set(len(kept))
        metrics.PIN_TOKENS.labels(replica.name).set(kept.blocks * size)
        metrics.PIN_RESIDENT_RATIO.labels(replica.name).set(kept.resident_blocks / kept.blocks if kept.blocks else 0.0)

    async def _touch_due(self, replica: Replica) -> None:
        """One touch at a time: their cost is bounded, whatever is due."""
        while True:
            await anyio.sleep(LOOK_EVERY_S)
            if not replica.alive:
                await self._move_away(replica)
                continue
            for due in replica.kept.due() if self._limits.may_keep_warm else ():
                if not replica.alive or not await self._touch(replica, due):
                    break

    async def _move_away(self, dead: Replica) -> None:
        """Its kept sessions are computed elsewhere, those that spoke last first, a little apart."""
        if not any(replica.alive for replica in self._placement.replicas.values()):
            return
        sessions = [session for name in dead.kept.sessions if (session := self._placement.sessions.get(name))]
        for session in sorted(sessions, key=lambda one: -one.used_at):
            if session.session_id in dead.kept:
                self._placement.reroute(session)
                await anyio.sleep(self._random.uniform(0, REROUTE_JITTER_S))

    async def _touch(self, replica: Replica, due: Due) -> bool:
        """False: there is no room for touches now."""
        session = self._placement.sessions.get(due.session_id)
        if session is None or session.computed is None or session.replica != replica.name:
            replica.kept.drop(due.session_id)
            return True
        if due.reason is TouchReason.EVICTED:
            metrics.PIN_LOST.labels("evicted").inc()
        for ids in session.computed.pieces(self._placement.resident_tokens(session), CHUNK_TOKENS):
            if not await self._request(session, ids):
                metrics.DROPS.labels("touch", due.reason.value).inc()
                await anyio.sleep(DROPPED_TOUCH_RETRY_S)
                return False
        metrics.PIN_TOUCHES.labels(due.reason.value).inc()
        replica.kept.touched(due.session_id)
        return True

    async def _request(self, session: Session, ids: tuple[int, ...]) -> bool:
        self._sent += 1
        generation = GenerationRequest(
            request_id=f"{TOUCH_ID}{session.session_id}_{self._sent}",
            messages=(),
            sampling=SAMPLING,
            session_id=session.session_id,
            prompt_ids=ids,
            prefill=True,
        )
        request = BatcherRequest(generation, RequestClass.TOUCH, anyio.current_time() + TOUCH_DEADLINE_S)
        try:
            async with aclosing(self._batcher.generate(request)) as stream:
                async for value in stream:
                    if isinstance(value, GenerationEnd):
                        return value.reason is not FinishReason.ABORTED
        except (EngineError, Overloaded) as error:
            log.info("touch failed", session_id=session.session_id, error=str(error))
        return False

    async def _save(self, store: PinStore) -> None:
        while True:
            await anyio.sleep(SAVE_EVERY_S)
            unsaved = [session for session in self._placement.sessions.values() if session.unsaved]
            live = {one.name: one.epoch for one in self._placement.replicas.values() if one.alive}
            if not unsaved and not self._placement.store_is_gone:
                continue
            for session in unsaved:
                session.unsaved = False
            try:
                routes = await store.claim([self._record(session) for session in unsaved], live)
            except EngineError as error:
                self._store_is_gone(str(error))
                for session in unsaved:
                    session.unsaved = True
                await anyio.sleep(STORE_RETRY_S)
                continue
            self._store_is_gone("")
            for route in routes:
                self._placement.adopt(route.session_id, route.replica, route.epoch)

    def _store_is_gone(self, why: str) -> None:
        if bool(why) != self._placement.store_is_gone:
            log.info("KV pins are shared with other servers again" if not why else "KV pins are not shared", error=why)
        self._placement.store_is_gone = bool(why)

    def _record(self, session: Session) -> PinRecord:
        return PinRecord(
            session_id=session.session_id,
            replica=session.replica,
            epoch=session.epoch,
            moved_from=session.moved_from,
            prompt_tokens=len(session.asked.ids),
            resident_tokens=self._placement.resident_tokens(session),
            tip=session.asked.hashes[-1] if session.asked.hashes else 0,
        )


def apply_event(replica: Replica, event: KvEvent) -> None:
    """Put one piece of news into the replica's map."""
    residency = replica.residency
    if isinstance(event, BlocksStored):
        residency.stored(event.hashes)
    elif isinstance(event, BlocksRemoved):
        residency.removed(event.hashes)
    else:
        if isinstance(event, AllBlocksCleared) and len(replica.kept):
            metrics.PIN_LOST.labels("cleared").inc(len(replica.kept))
        residency.clear()
