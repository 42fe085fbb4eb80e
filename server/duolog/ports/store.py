"""What must outlive a call. Never awaited inside a turn: one writer task per process talks to the store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class StoredSession:
    """A call as another server can take it up."""

    session_id: str
    persona: str
    items: tuple[str, ...]
    """Conversation items in order, each as JSON (`turns/conversation.py` encodes and decodes them)."""
    updated_at: float
    """Unix time in seconds."""


class SessionStore(Protocol):
    """Sessions by id, each with a time to live."""

    async def load(self, session_id: str) -> StoredSession | None:
        """The session, or None where there is none (any more). Raises EngineError."""
        ...

    async def save(self, session: StoredSession) -> None:
        """Store or replace; renews the time to live. Raises EngineError."""
        ...

    async def ping(self) -> None:
        """Raises EngineUnavailable where the store does not answer."""
        ...

    async def aclose(self) -> None:
        """Close connections. Idempotent."""
        ...
