"""Bytes in this process, by key: bounded in bytes and time; who was not used for longest goes first. Pure."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

ENTRY_BYTES = 200
"""What an entry costs beside its value, about."""


@dataclass(frozen=True, slots=True)
class _Entry:
    value: bytes
    expires_at: float

    @property
    def size(self) -> int:
        return len(self.value) + ENTRY_BYTES


class ByteLru:
    """The caller gives the time, in seconds of any one clock."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._used_bytes = 0

    @property
    def used_bytes(self) -> int:
        """At most `max_bytes`."""
        return self._used_bytes

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: str, now: float) -> bytes | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        if entry.expires_at <= now:
            self.remove(key)
            return None
        self._entries.move_to_end(key)
        return entry.value

    def put(self, key: str, value: bytes, expires_at: float) -> None:
        """Store or replace. A value that is larger than the whole bound is not kept."""
        self.remove(key)
        entry = _Entry(value, expires_at)
        if entry.size > self._max_bytes:
            return
        self._entries[key] = entry
        self._used_bytes += entry.size
        while self._used_bytes > self._max_bytes:
            self.remove(next(iter(self._entries)))

    def remove(self, key: str) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._used_bytes -= entry.size
