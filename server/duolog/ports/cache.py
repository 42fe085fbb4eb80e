"""Bytes by key, each with a time to live, shared by all server processes. Never awaited inside a turn."""

from __future__ import annotations

from typing import Protocol


class ByteCache(Protocol):
    """A cache may forget anything at any time. Keys begin with the name of what they hold: `prompt:…`, `speech:…`."""

    async def get(self, key: str) -> bytes | None:
        """The value, or None where there is none (any more). Raises EngineError."""
        ...

    async def put(self, key: str, value: bytes, ttl_s: float) -> None:
        """Store or replace. Raises EngineError."""
        ...

    async def delete(self, key: str) -> None:
        """Forget a key; one there is not is fine. Raises EngineError."""
        ...

    async def aclose(self) -> None:
        """Close connections. Idempotent."""
        ...
