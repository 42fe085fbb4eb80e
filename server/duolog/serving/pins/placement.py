"""Places requests by what is known, in memory, of sessions and replicas; never waits.

requests ──▶ PinnedPlacement.place ──▶ Batcher ──▶ ObservedEngine ──▶ engine
                  ▲        begun, ended: load, usage ──┘
PinKeeper: events, statistics, the store
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import anyio

from duolog.ports.llm import GenerationRequest, TokenUsage
from duolog.ports.replicas import ReplicaStats
from duolog.serving.pins.chains import Chain
from duolog.serving.pins.choice import Candidate, choose
from duolog.serving.pins.keep_warm import KeepWarm, KeepWarmOptions
from duolog.serving.pins.residency import ResidencyMap
from duolog.serving.placement import Placed
from duolog.telemetry import metrics

TOUCH_ID = "touch_"
"""How the request ids of touches begin."""


@dataclass(frozen=True, slots=True)
class PinOptions:
    block_tokens: int = 32
    """Of the engine's cache."""
    forget_after_s: float = 900.0
    """A session without a request for so long is forgotten."""
    keep_warm: KeepWarmOptions = field(default_factory=KeepWarmOptions)


class Replica:
    """What is known of one replica."""

    def __init__(self, name: str, options: PinOptions) -> None:
        self.name = name
        self.alive = True
        self.epoch = ""
        """Of the incarnation that is known; empty until it was asked."""
        self.stats: ReplicaStats | None = None
        self.residency = ResidencyMap()
        self.kept = KeepWarm(options.keep_warm, self.residency)
        self.busy_tokens = 0
        self.cached_tokens = 0
        self.prompt_tokens = 0


@dataclass(slots=True)
class Session:
    """What is known of one session."""

    session_id: str
    asked: Chain
    """Of its last request, for the names of the next one's blocks."""
    used_at: float
    replica: str = ""
    epoch: str = ""
    moved_from: str = ""
    unsaved: bool = True
    """The store does not know it yet as it is."""
    computed: Chain | None = None
    """Of its last request that finished: what a replica held."""


class PinnedPlacement:
    """Implements `Placement`. From one event loop only."""

    def __init__(self, replicas: Sequence[str], options: PinOptions | None = None) -> None:
        """`replicas`: ids, at least one."""
        self.options = options or PinOptions()
        self.replicas = {name: Replica(name, self.options) for name in replicas}
        self.sessions: dict[str, Session] = {}
        self.store_is_gone = False
        self._empty = Chain(self.options.block_tokens)
        self._begun: dict[str, tuple[str, int, int]] = {}
        """Request id → replica, tokens it has to compute, blocks that were held to be there."""

    def place(self, request: GenerationRequest) -> Placed:
        """The session's replica, or another where that one is away or much busier.

        A request of no session that names a replica that is alive goes there.
        """
        session = self.sessions.get(request.session_id)
        chain = (session.asked if session else self._empty).of(request.prompt_ids)
        home = session.replica if session else ""
        named = self.replicas.get(request.replica) if not request.session_id else None
        replica = named if named and named.alive else self.replicas[self._choose(request.session_id, chain, home)]
        if request.session_id and not request.request_id.startswith(TOUCH_ID):
            self._remember(session, request.session_id, chain, replica)
        cached = replica.residency.resident_blocks(chain.hashes) * self.options.block_tokens
        known = bool(chain.hashes) and len(replica.residency) > 0
        return Placed(replica.name if len(self.replicas) > 1 else "", cached if known else None)

    def begun(self, request: GenerationRequest) -> None:
        """The request has entered the engine."""
        replica, chain = self.replica_of(request), self._chain_of(request)
        resident = replica.residency.resident_blocks(chain.hashes)
        missing = max(0, len(request.prompt_ids) - resident * self.options.block_tokens)
        replica.busy_tokens += missing
        self._begun[request.request_id] = (replica.name, missing, resident)

    def computed(self, request: GenerationRequest, usage: TokenUsage) -> None:
        """The request has finished: all of its prompt was in the cache. Usage is believed against the events."""
        replica, chain = self.replica_of(request), self._chain_of(request)
        replica.prompt_tokens += usage.prompt_tokens
        replica.cached_tokens += usage.cached_tokens
        if replica.prompt_tokens:
            metrics.CACHED_TOKENS_RATIO.labels(replica.name).set(replica.cached_tokens / replica.prompt_tokens)
        if not chain.hashes:
            return
        _, _, resident = self._begun.get(request.request_id, ("", 0, 0))
        cached = usage.cached_tokens // self.options.block_tokens
        if (
            usage.prompt_tokens and cached < resident - 1
        ):  # the last block of a prompt may be computed although it is there
            metrics.PIN_DISAGREEMENTS.labels(replica.name).inc()
            replica.residency.disbelieve(chain.hashes[cached:resident])
        replica.residency.believe(chain.hashes)
        session = self.sessions.get(request.session_id)
        if session is not None and not request.request_id.startswith(TOUCH_ID):
            session.computed, session.unsaved = chain, True
            if session.replica == replica.name:
                replica.kept.used(request.session_id, chain.hashes, anyio.current_time())

    def ended(self, request: GenerationRequest) -> None:
        """However it ended. Once for each `begun`."""
        name, missing, _ = self._begun.pop(request.request_id, ("", 0, 0))
        if name:
            self.replicas[name].busy_tokens -= missing

    def set_alive(self, name: str, alive: bool) -> None:
        """From whoever probes. What a replica that is away held is not counted on."""
        replica = self.replicas[name]
        replica.alive = alive
        if not alive:
            self._lose(replica, "replica_dead")

    def learn(self, name: str, stats: ReplicaStats) -> None:
        """A look at a replica; a new epoch is a restart."""
        replica = self.replicas[name]
        replica.stats = stats
        if stats.kv_tokens:
            replica.kept.total_blocks = stats.kv_tokens // self.options.block_tokens
            replica.residency.capacity_blocks = replica.kept.total_blocks
            replica.kept.busy_blocks = int(stats.kv_usage_ratio * replica.kept.total_blocks)
        if replica.epoch and stats.epoch != replica.epoch:
            self._lose(replica, "replica_dead")
        for session in self.sessions.values():
            if session.replica == name and session.epoch != stats.epoch:
                session.epoch, session.unsaved = stats.epoch, True
        replica.epoch = stats.epoch

    def kv_usage(self) -> float | None:
        """Of the fullest replica that is alive, what running requests hold of its cache; None where none says."""
        told = [replica.stats for replica in self.replicas.values() if replica.alive]
        return max((stats.kv_usage_ratio for stats in told if stats is not None), default=None)

    def adopt(self, session_id: str, replica: str, epoch: str) -> None:
        """What the store says: the session's blocks are there."""
        session = self.sessions.get(session_id)
        if session and (known := self.replicas.get(replica)) and known.alive and known.epoch == epoch:
            if session.replica != replica:
                self.replicas[session.replica].kept.drop(session_id)
            session.replica, session.epoch, session.moved_from = replica, epoch, ""

    def forget_idle(self, now: float) -> None:
        for session in [*self.sessions.values()]:
            if now - session.used_at > self.options.forget_after_s:
                del self.sessions[session.session_id]
                for replica in self.replicas.values():
                    replica.kept.drop(session.session_id)

    def reroute(self, session: Session) -> Replica:
        """A replica for a session whose own is away; what is known of its prompt is to be computed there."""
        replica = self.replicas[self._choose(session.session_id, session.asked, "")]
        self._move(session, replica)
        if session.computed is not None:
            replica.kept.used(session.session_id, session.computed.hashes, session.used_at, is_new_here=True)
        return replica

    def replica_of(self, request: GenerationRequest) -> Replica:
        return self.replicas.get(request.replica) or next(iter(self.replicas.values()))

    def resident_tokens(self, session: Session) -> int:
        """Of its last prompt, what its replica holds now."""
        hashes = session.computed.hashes if session.computed else ()
        return self.replicas[session.replica].residency.resident_blocks(hashes) * self.options.block_tokens

    def _lose(self, replica: Replica, cause: str) -> None:
        if len(replica.kept):
            metrics.PIN_LOST.labels(cause).inc(len(replica.kept))
        replica.residency.clear()
        replica.residency.has_events = False

    def _choose(self, session_id: str, chain: Chain, home: str) -> str:
        alive = [replica for replica in self.replicas.values() if replica.alive] or [*self.replicas.values()]
        if len(alive) == 1:
            return alive[0].name
        counts = dict.fromkeys(self.replicas, 0)
        if not home:
            for session in self.sessions.values():
                counts[session.replica] += 1
        candidates = [
            Candidate(
                replica=replica.name,
                missing_tokens=len(chain.ids)
                - replica.residency.resident_blocks(chain.hashes) * self.options.block_tokens,
                busy_tokens=replica.busy_tokens,
                waiting=replica.stats.waiting if replica.stats else 0,
                kv_usage_ratio=replica.stats.kv_usage_ratio if replica.stats else 0.0,
                sessions=counts[replica.name],
            )
            for replica in alive
        ]
        return choose(session_id, candidates, home, by_hash=self.store_is_gone)

    def _remember(self, session: Session | None, session_id: str, chain: Chain, replica: Replica) -> None:
        now = anyio.current_time()
        if session is None:
            self.sessions[session_id] = Session(session_id, chain, now, replica.name, replica.epoch)
            return
        session.used_at, session.unsaved = now, True
        if chain.ids:
            session.asked = chain
        if session.replica != replica.name:
            self._move(session, replica)

    def _move(self, session: Session, replica: Replica) -> None:
        self.replicas[session.replica].kept.drop(session.session_id)
        session.moved_from = session.replica
        session.replica, session.epoch, session.unsaved = replica.name, replica.epoch, True

    def _chain_of(self, request: GenerationRequest) -> Chain:
        session = self.sessions.get(request.session_id)
        return (session.asked if session else self._empty).of(request.prompt_ids)
