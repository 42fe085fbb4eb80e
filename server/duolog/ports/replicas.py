"""What replicas of the chat model tell about their key-value caches: news of blocks, and their load."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class BlocksStored:
    """These blocks are in the cache now, in addition to copies that were."""

    hashes: tuple[int, ...]
    """As `serving/pins/chains.py` computes them."""


@dataclass(frozen=True, slots=True)
class BlocksRemoved:
    """One copy of each of these is gone."""

    hashes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AllBlocksCleared:
    """The cache is empty: it was cleared on purpose, or the replica began anew."""


@dataclass(frozen=True, slots=True)
class EventsLost:
    """News was missed and cannot be had again: what was known is not true any more."""


KvEvent = BlocksStored | BlocksRemoved | AllBlocksCleared | EventsLost


class KvEvents(Protocol):
    """The news of one replica."""

    def read(self) -> AsyncGenerator[KvEvent, None]:
        """Everything the replica still remembers, then news as it comes, until closed. Survives its restarts."""
        ...


@dataclass(frozen=True, slots=True)
class ReplicaStats:
    """One look at a replica."""

    epoch: str
    """Differs after each restart; the same for all who ask."""
    kv_tokens: int | None
    """Tokens its cache holds; None: it does not say."""
    kv_usage_ratio: float
    """Of the cache, what running requests hold. A warm cache of idle sessions counts as free."""
    running: int
    waiting: int


class ReplicaMonitor(Protocol):
    """Asks replicas how they are."""

    async def stats(self, replica: str) -> ReplicaStats:
        """Raises EngineError."""
        ...

    async def aclose(self) -> None:
        """Idempotent."""
        ...
