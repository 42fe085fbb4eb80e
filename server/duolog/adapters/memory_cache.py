"""Cache and idempotency keys in this process: for tests, and for one server without Redis."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import anyio

from duolog.ports.idempotency import Claim, Standing


@dataclass(frozen=True, slots=True)
class _Kept:
    value: bytes
    owner: str
    """Of a lock; empty for a value."""
    expires_at: float


class MemoryByteCache:
    """Unbounded but for the time to live."""

    def __init__(self, now: Callable[[], float] = anyio.current_time) -> None:
        self._now = now
        self._kept: dict[str, _Kept] = {}

    async def get(self, key: str) -> bytes | None:
        kept = _alive(self._kept, key, self._now())
        return kept.value if kept is not None else None

    async def put(self, key: str, value: bytes, ttl_s: float) -> None:
        self._kept[key] = _Kept(value, "", self._now() + ttl_s)

    async def delete(self, key: str) -> None:
        self._kept.pop(key, None)

    async def aclose(self) -> None:
        self._kept.clear()


class MemoryIdempotencyStore:
    """As the one in Redis; atomic because nothing is awaited."""

    def __init__(self, now: Callable[[], float] = anyio.current_time) -> None:
        self._now = now
        self._kept: dict[str, _Kept] = {}

    async def begin(self, key: str, owner: str, lock_s: float) -> Claim:
        now = self._now()
        kept = _alive(self._kept, key, now)
        if kept is not None and not kept.owner:
            return Claim(Standing.DONE, kept.value)
        if kept is not None and kept.owner != owner:
            return Claim(Standing.RUNNING)
        self._kept[key] = _Kept(b"", owner, now + lock_s)
        return Claim(Standing.CLAIMED)

    async def finish(self, key: str, owner: str, result: bytes, ttl_s: float) -> bool:
        now = self._now()
        kept = _alive(self._kept, key, now)
        if kept is None or kept.owner != owner:
            return False
        self._kept[key] = _Kept(result, "", now + ttl_s)
        return True

    async def release(self, key: str, owner: str) -> None:
        kept = self._kept.get(key)
        if kept is not None and kept.owner == owner:
            del self._kept[key]

    async def aclose(self) -> None:
        self._kept.clear()


def _alive(kept: dict[str, _Kept], key: str, now: float) -> _Kept | None:
    found = kept.get(key)
    if found is not None and found.expires_at <= now:
        del kept[key]
        return None
    return found
