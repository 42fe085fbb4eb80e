"""Which sessions' blocks are kept in one replica's cache, and when one must be touched. Pure.

vLLM evicts the blocks that were used longest ago, and there is no way to ask it to keep any: a request that uses them
puts them last in line again. Time does not evict, allocation does, so touches follow allocation.

    cache   [ free, next to go ······ kept sessions ······ used last ]
    touch when  allocated since the last use  >  touch_share x (free blocks - kept blocks)
          or    a block of the session is gone

A budget bounds what is kept. When it is full, a session that spoke lately keeps its place and the newcomer is not
kept: of callers who take turns, the one who spoke last is the one who comes back last, so that keeping the newest would
keep nobody until they return.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from duolog.serving.pins.residency import ResidencyMap


class TouchReason(StrEnum):
    ALLOCATED = "allocated"
    """So much was allocated since that the blocks come near the end of the line."""
    EVICTED = "evicted"
    """Some are gone already."""
    REROUTED = "rerouted"
    """The session has a new replica, which has none of them."""


@dataclass(frozen=True, slots=True)
class KeepWarmOptions:
    budget_share: float = 0.5
    """Of the replica's cache, for kept sessions; running requests need the rest."""
    protect_s: float = 60.0
    """A session that was used within this time keeps its place."""
    touch_share: float = 0.8
    """Of what may be allocated before kept blocks go; the rest is for what is allocated while a touch waits."""


@dataclass(frozen=True, slots=True)
class Due:
    session_id: str
    reason: TouchReason


@dataclass(slots=True)
class _Kept:
    hashes: Sequence[int]
    used_at: float
    allocated_at_touch: int
    is_new_here: bool = False


class KeepWarm:
    """The kept sessions of one replica."""

    def __init__(self, options: KeepWarmOptions, residency: ResidencyMap) -> None:
        self._options = options
        self._residency = residency
        self._kept: dict[str, _Kept] = {}
        self._blocks: Counter[int] = Counter()
        """How many kept sessions have the block: a shared system prompt takes its room once."""
        self.total_blocks: int | None = None
        """Of the cache; None: unknown, and nothing is kept."""
        self.busy_blocks = 0
        """Held by running requests."""

    def __contains__(self, session_id: str) -> bool:
        return session_id in self._kept

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def sessions(self) -> tuple[str, ...]:
        return tuple(self._kept)

    @property
    def blocks(self) -> int:
        """Distinct blocks of all kept sessions."""
        return len(self._blocks)

    @property
    def resident_blocks(self) -> int:
        """Of `blocks`, those that are there."""
        return sum(name in self._residency for name in self._blocks)

    @property
    def budget_blocks(self) -> int:
        return int((self.total_blocks or 0) * self._options.budget_share)

    def used(self, session_id: str, hashes: Sequence[int], now: float, *, is_new_here: bool = False) -> None:
        """The session's own request ran with these blocks, or (`is_new_here`) they are to be computed here."""
        self.drop(session_id)
        own = set(hashes)
        if not own:
            return
        for other in sorted(self._kept, key=lambda name: self._kept[name].used_at):
            if self._room_for(own) or now - self._kept[other].used_at <= self._options.protect_s:
                break
            self.drop(other)
        if self._room_for(own):
            self._kept[session_id] = _Kept(hashes, now, self._residency.allocated_blocks, is_new_here)
            self._blocks.update(own)

    def touched(self, session_id: str) -> None:
        """Its blocks are last in line again."""
        if kept := self._kept.get(session_id):
            kept.allocated_at_touch = self._residency.allocated_blocks
            kept.is_new_here = False

    def drop(self, session_id: str) -> None:
        """It is kept no longer; the engine may evict it when its time comes."""
        if kept := self._kept.pop(session_id, None):
            self._blocks.subtract(set(kept.hashes))
            self._blocks = +self._blocks

    def due(self) -> list[Due]:
        """Who has to be touched now, the most urgent first."""
        headroom = (self.total_blocks or 0) - self.busy_blocks - self.blocks
        limit = max(1.0, self._options.touch_share * headroom)
        found: list[tuple[float, Due]] = []
        for session_id, kept in self._kept.items():
            allocated = self._residency.allocated_blocks - kept.allocated_at_touch
            if kept.is_new_here:
                found.append((allocated, Due(session_id, TouchReason.REROUTED)))
            elif self._residency.resident_blocks(kept.hashes) < len(kept.hashes):
                found.append((allocated, Due(session_id, TouchReason.EVICTED)))
            elif allocated > limit:
                found.append((allocated, Due(session_id, TouchReason.ALLOCATED)))
        order = {TouchReason.ALLOCATED: 0, TouchReason.REROUTED: 1, TouchReason.EVICTED: 2}
        return [due for _, due in sorted(found, key=lambda item: (order[item[1].reason], -item[0]))]

    def _room_for(self, blocks: set[int]) -> bool:
        return len(self._blocks) + sum(name not in self._blocks for name in blocks) <= self.budget_blocks
