"""A cache of two levels: this process, then the store that all processes share. Knows nothing of what it holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Generic, TypeVar

import anyio

from duolog.ports.cache import ByteCache
from duolog.serving.byte_lru import ByteLru
from duolog.serving.store_worker import StoreWorker
from duolog.telemetry import metrics

T = TypeVar("T")


class Level(StrEnum):
    """Where a value was found."""

    MEMORY = "memory"
    REDIS = "redis"


@dataclass(frozen=True, slots=True)
class Found(Generic[T]):
    value: T
    level: Level


@dataclass(frozen=True, slots=True)
class CacheOptions:
    max_bytes: int
    """In this process."""
    ttl_s: float
    wait_s: float = 0.008
    """Longest wait for the shared level, then it is a miss."""


class TieredCache:
    """Keys are `{name}:…` at both levels. Must be used from one event loop."""

    def __init__(self, name: str, store: ByteCache, worker: StoreWorker, options: CacheOptions) -> None:
        self._name = name
        self._store = store
        self._worker = worker
        self._options = options
        self._memory = ByteLru(options.max_bytes)

    async def find(self, key: str, decode: Callable[[bytes], T]) -> Found[T] | None:
        """The value, or None. One that `decode` refuses with ValueError is a miss, and forgotten at both levels."""
        found = self._in_memory(key) or await self._in_store(key)
        if found is None:
            self._count("miss")
            return None
        try:
            value = decode(found.value)
        except ValueError:
            self._memory.remove(key)
            self._worker.submit(partial(self._store.delete, self._full(key)))
            self._count("unreadable")
            return None
        if found.level is Level.REDIS:
            self._remember(key, found.value)
        self._count(found.level.value)
        return Found(value, found.level)

    def keep(self, key: str, value: bytes, *, shared: bool = True) -> None:
        """Returns at once. `shared`: also for the other server processes."""
        self._remember(key, value)
        if shared:
            self._worker.submit(partial(self._store.put, self._full(key), value, self._options.ttl_s))

    def share(self, key: str) -> None:
        """Give the other processes, too, what this one keeps. Returns at once."""
        if (found := self._in_memory(key)) is not None:
            self.keep(key, found.value)

    def _in_memory(self, key: str) -> Found[bytes] | None:
        value = self._memory.get(key, anyio.current_time())
        return None if value is None else Found(value, Level.MEMORY)

    async def _in_store(self, key: str) -> Found[bytes] | None:
        value = await self._worker.ask(partial(self._store.get, self._full(key)), self._options.wait_s)
        return None if value is None else Found(value, Level.REDIS)

    def _remember(self, key: str, value: bytes) -> None:
        self._memory.put(key, value, anyio.current_time() + self._options.ttl_s)
        metrics.CACHE_BYTES.labels(self._name).set(self._memory.used_bytes)

    def _full(self, key: str) -> str:
        return f"{self._name}:{key}"

    def _count(self, result: str) -> None:
        metrics.CACHE_LOOKUPS.labels(self._name, result).inc()
