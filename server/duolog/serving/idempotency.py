"""Requests that may come twice are carried out once: by key, in this process and, through the store, in all others.

    begin ──▶ CLAIMED: carry it out, then `finish` or `release`
          ──▶ DONE: here is what came of it
          ──▶ RUNNING: it is being carried out; `wait` for the end

A store that is down or slow makes every new key CLAIMED: rather twice than not at all. What a crashed process has
claimed is free again when its lock expires; a living one renews its locks.
"""

from __future__ import annotations

import hashlib
import itertools
import uuid
from dataclasses import dataclass
from functools import partial

import anyio

from duolog.ports.idempotency import Claim, IdempotencyStore, Standing
from duolog.serving.byte_lru import ByteLru
from duolog.serving.store_worker import StoreWorker
from duolog.telemetry import metrics

POLL_S = 0.1
"""Between two looks at a request that somebody else carries out."""
DIGEST_BYTES = 32
"""A result is stored behind the digest of what was asked."""


class DifferentRequest(Exception):
    """The key came before, with another content."""


@dataclass(frozen=True, slots=True)
class RequestKey:
    """What is to be carried out once."""

    key: str
    """Names the request in the store; without anything secret in the clear."""
    digest: bytes
    """Of its content: the same key with another content is a mistake of the client's."""

    @classmethod
    def of(cls, kind: str, names: tuple[str, ...], content: bytes) -> RequestKey:
        """`names`: whose request it is, and what its sender calls it."""
        named = hashlib.sha256("\0".join(names).encode("utf-8", "surrogatepass")).hexdigest()
        return cls(f"idem:{kind}:{named}", hashlib.sha256(content).digest())


@dataclass(frozen=True, slots=True)
class IdempotencyOptions:
    ttl_s: float = 600.0
    """How long a result is kept."""
    lock_s: float = 10.0
    """Without a renewal for this long, an owner has crashed."""
    wait_s: float = 0.05
    """Longest wait for the store, then the request is carried out."""
    max_bytes: int = 8_388_608
    """Of results in this process."""


@dataclass(frozen=True, slots=True)
class Begun:
    standing: Standing
    result: bytes = b""
    """Where it is done."""
    owner: str = ""
    """Where it is claimed: for `finish` and `release`."""


@dataclass(frozen=True, slots=True)
class _Running:
    owner: str
    digest: bytes


class Idempotency:
    """Shared by all calls and HTTP requests of a process. `run` must be running, and the worker's."""

    def __init__(self, store: IdempotencyStore, worker: StoreWorker, options: IdempotencyOptions | None = None) -> None:
        """`worker` must keep the order of its jobs."""
        self._store = store
        self._worker = worker
        self._options = options or IdempotencyOptions()
        self._process = uuid.uuid4().hex
        self._numbers = itertools.count()
        self._running: dict[str, _Running] = {}
        """What this process carries out, by key."""
        self._done = ByteLru(self._options.max_bytes)

    async def run(self) -> None:
        """Renew the locks of what runs here, until cancelled."""
        while True:
            await anyio.sleep(self._options.lock_s / 3)
            for key, running in self._running.items():
                self._submit_claim(key, running.owner)

    async def begin(self, request: RequestKey, *, fresh: bool = False) -> Begun:
        """Ask to carry the request out. `fresh`: no other process can know the key; the store is not waited for.

        Raises DifferentRequest. Cancellation claims nothing.
        """
        here = self._here(request)
        if here is not None:
            return here
        owner = f"{self._process}:{next(self._numbers)}"
        self._running[request.key] = _Running(owner, request.digest)
        if fresh:
            self._submit_claim(request.key, owner)
            return Begun(Standing.CLAIMED, owner=owner)
        asked = False
        try:
            ask = partial(self._store.begin, request.key, owner, self._options.lock_s)
            claim = await self._worker.ask(ask, self._options.wait_s)
            asked = True
        finally:
            if not asked:
                self.release(request, owner)
        return self._begun(request, owner, claim)

    async def wait(self, request: RequestKey, at_most_s: float) -> Begun:
        """As `begin`, but RUNNING only where whoever carries it out has not ended, given up or crashed by then."""
        give_up_at = anyio.current_time() + at_most_s
        while (begun := await self.begin(request)).standing is Standing.RUNNING:
            if anyio.current_time() >= give_up_at:
                break
            await anyio.sleep(POLL_S)
        return begun

    def finish(self, request: RequestKey, owner: str, result: bytes, ttl_s: float | None = None) -> None:
        """It has been carried out. Returns at once. Nothing happens where the owner has released it before."""
        if not self._give_up(request.key, owner):
            return
        ttl_s = self._options.ttl_s if ttl_s is None else min(ttl_s, self._options.ttl_s)
        kept = request.digest + result
        self._done.put(request.key, kept, anyio.current_time() + ttl_s)
        self._worker.submit(partial(self._store.finish, request.key, owner, kept, ttl_s))

    def release(self, request: RequestKey, owner: str) -> None:
        """It has not been carried out: whoever comes next may. Returns at once."""
        if self._give_up(request.key, owner):
            self._worker.submit(partial(self._store.release, request.key, owner))

    def _give_up(self, key: str, owner: str) -> bool:
        running = self._running.get(key)
        if running is None or running.owner != owner:
            return False
        del self._running[key]
        return True

    def _here(self, request: RequestKey) -> Begun | None:
        kept = self._done.get(request.key, anyio.current_time())
        if kept is not None:
            return _done(request, kept)
        running = self._running.get(request.key)
        if running is None:
            return None
        if running.digest != request.digest:
            raise DifferentRequest
        return Begun(Standing.RUNNING)

    def _begun(self, request: RequestKey, owner: str, claim: Claim | None) -> Begun:
        if claim is None or claim.standing is Standing.CLAIMED:
            return Begun(Standing.CLAIMED, owner=owner)
        self._give_up(request.key, owner)
        return _done(request, claim.result) if claim.standing is Standing.DONE else Begun(claim.standing)

    def _submit_claim(self, key: str, owner: str) -> None:
        self._worker.submit(partial(self._store.begin, key, owner, self._options.lock_s))


def count_repeat(kind: str, outcome: str) -> None:
    """Count a request that came again, by what became of it."""
    metrics.REPEATS.labels(kind, outcome).inc()


def _done(request: RequestKey, kept: bytes) -> Begun:
    if kept[:DIGEST_BYTES] != request.digest:
        raise DifferentRequest
    return Begun(Standing.DONE, kept[DIGEST_BYTES:])
