"""What one replica's cache holds, as its events and the usage of requests tell. Pure.

Events count physical copies. Usage is the truth where the two disagree: after a request its whole prompt was there.
Without events this is an estimate: the newest blocks that fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

DEFAULT_CAPACITY_BLOCKS = 4_096


class ResidencyMap:
    """Blocks by name."""

    def __init__(self) -> None:
        self._copies: dict[int, int] = {}
        self._believed: dict[int, None] = {}
        """Seen by usage and not yet in an event; oldest first."""
        self.capacity_blocks = DEFAULT_CAPACITY_BLOCKS
        self.has_events = False
        """Events have come: what they do not name is not there."""
        self.allocated_blocks = 0
        """Ever, as far as seen: how far the cache's queue of free blocks has moved on."""

    def __len__(self) -> int:
        return len(self._copies.keys() | self._believed.keys())

    def __contains__(self, name: int) -> bool:
        return name in self._copies or name in self._believed

    def copies_of(self, name: int) -> int:
        """As events tell."""
        return self._copies.get(name, 0)

    def stored(self, names: Iterable[int]) -> None:
        self.has_events = True
        for name in names:
            self._copies[name] = self._copies.get(name, 0) + 1
            self._believed.pop(name, None)
            self.allocated_blocks += 1

    def removed(self, names: Iterable[int]) -> None:
        """One copy of each."""
        self.has_events = True
        for name in names:
            self._believed.pop(name, None)
            copies = self._copies.pop(name, 0)
            if copies > 1:
                self._copies[name] = copies - 1

    def believe(self, names: Iterable[int]) -> None:
        """A request with these blocks has just run."""
        for name in names:
            if name in self._copies:
                continue
            if self._believed.pop(name, 0) == 0 and not self.has_events:
                self.allocated_blocks += 1
            self._believed[name] = None
        while len(self._believed) > self.capacity_blocks:
            del self._believed[next(iter(self._believed))]

    def disbelieve(self, names: Iterable[int]) -> None:
        """The engine had to compute these although they were held to be there."""
        for name in names:
            self._believed.pop(name, None)
            self._copies.pop(name, None)

    def clear(self) -> None:
        self._copies.clear()
        self._believed.clear()

    def resident_blocks(self, chain: Sequence[int]) -> int:
        """Blocks at the chain's beginning that are there, without a gap."""
        for count, name in enumerate(chain):
            if name not in self:
                return count
        return len(chain)
