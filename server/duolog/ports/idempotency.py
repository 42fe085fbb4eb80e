"""Who may carry out a request, and what came of it: shared by all server processes. Never awaited inside a turn.

A key is free, locked by the owner that carries its request out, or holds the result. A lock that is not renewed
expires: its owner has crashed, and the request may be carried out again.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class Standing(StrEnum):
    CLAIMED = "claimed"
    """The asker holds the lock now."""
    RUNNING = "running"
    """Another owner holds it."""
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Claim:
    standing: Standing
    result: bytes = b""
    """Where it is done."""


class IdempotencyStore(Protocol):
    """Every method is atomic."""

    async def begin(self, key: str, owner: str, lock_s: float) -> Claim:
        """Take the lock for `lock_s`, where the key is free, or renew it where the owner has it. Raises EngineError."""
        ...

    async def finish(self, key: str, owner: str, result: bytes, ttl_s: float) -> bool:
        """Put the result in the lock's place. False, and nothing changes, where `owner` has lost the lock.

        Raises EngineError.
        """
        ...

    async def release(self, key: str, owner: str) -> None:
        """Give the owner's lock up without a result; a lock that is not theirs stays. Raises EngineError."""
        ...

    async def aclose(self) -> None:
        """Close connections. Idempotent."""
        ...
