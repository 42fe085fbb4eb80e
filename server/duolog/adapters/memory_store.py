"""A session store in this process: for one server without Redis, and for tests."""

from __future__ import annotations

from collections.abc import Callable

import anyio

from duolog.ports.store import StoredSession


class MemorySessionStore:
    """Sessions live `ttl_s` after their last save, at most until the process ends."""

    def __init__(self, ttl_s: float, now: Callable[[], float] = anyio.current_time) -> None:
        self._ttl_s = ttl_s
        self._now = now
        self._sessions: dict[str, tuple[float, StoredSession]] = {}

    async def load(self, session_id: str) -> StoredSession | None:
        self._forget_expired()
        found = self._sessions.get(session_id)
        return found[1] if found else None

    async def save(self, session: StoredSession) -> None:
        self._forget_expired()
        self._sessions.pop(session.session_id, None)
        self._sessions[session.session_id] = (self._now() + self._ttl_s, session)

    async def ping(self) -> None:
        """Always there."""

    async def aclose(self) -> None:
        self._sessions.clear()

    def _forget_expired(self) -> None:
        """The dict is in order of expiry, as every save moves a session to its end."""
        now = self._now()
        for session_id, (expires_at, _) in list(self._sessions.items()):
            if expires_at > now:
                break
            del self._sessions[session_id]
