"""Which replica holds a session's key-value blocks, shared by all server processes. Never awaited inside a turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class PinRecord:
    """What a server process knows of one session."""

    session_id: str
    replica: str
    epoch: str
    """Incarnation of the replica that computed the blocks."""
    moved_from: str = ""
    """The session was taken away from this replica on purpose; empty: it was not."""
    prompt_tokens: int = 0
    resident_tokens: int = 0
    """Tokens at the prompt's beginning that the replica held when this was written."""
    tip: int = 0
    """Hash of the prompt's last whole block; 0: none."""


@dataclass(frozen=True, slots=True)
class Route:
    session_id: str
    replica: str
    epoch: str


class PinStore(Protocol):
    """Routing of sessions, each with a time to live."""

    async def claim(self, records: Sequence[PinRecord], live: Mapping[str, str]) -> list[Route]:
        """The routes that hold, one for each record, decided atomically: that of another process where its replica is
        in `live` (replica → epoch) with the same epoch and is not the one moved from, else the record's own, which is
        then stored. Renews the time to live. Raises EngineError.
        """
        ...

    async def aclose(self) -> None:
        """Close connections. Idempotent."""
        ...
