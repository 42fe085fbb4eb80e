"""The one task of a process that writes sessions to the store, so that no turn ever waits for it."""

from __future__ import annotations

import anyio
import structlog

from duolog.ports.errors import EngineError, EngineTimeout, EngineUnavailable
from duolog.ports.store import SessionStore, StoredSession
from duolog.telemetry import metrics

log = structlog.get_logger(__name__)

FIRST_RETRY_S = 0.25
LONGEST_RETRY_S = 10.0
FLUSH_S = 3.0
"""At shutdown, what is still to be written has so long."""


class SessionWriter:
    """Writes what it was given, newest version of each session, oldest first; retries while the store is down."""

    def __init__(self, store: SessionStore, *, max_waiting: int = 4096) -> None:
        self._store = store
        self._max_waiting = max_waiting
        self._waiting: dict[str, StoredSession] = {}
        self._arrived = anyio.Event()
        self._healthy = True
        self._dropped = 0

    @property
    def healthy(self) -> bool:
        """False from the first write that failed to the next that succeeded."""
        return self._healthy

    @property
    def waiting(self) -> int:
        """Sessions that are not in the store yet."""
        return len(self._waiting)

    @property
    def dropped(self) -> int:
        """Versions given up: too many waited, or the store refused them."""
        return self._dropped

    def unsaved(self, session_id: str) -> StoredSession | None:
        """The version of the session that is not in the store yet: newer than what the store has."""
        return self._waiting.get(session_id)

    def submit(self, session: StoredSession) -> None:
        """Returns at once. A version of the same session that still waits is replaced, and keeps its place."""
        if session.session_id not in self._waiting and len(self._waiting) >= self._max_waiting:
            self._waiting.pop(next(iter(self._waiting)))
            self._dropped += 1
        self._waiting[session.session_id] = session
        self._arrived.set()

    async def run(self) -> None:
        """Write until cancelled; then try once more to write what still waits, for at most FLUSH_S."""
        try:
            while True:
                await self._write_all_with_retries()
                self._arrived = anyio.Event()
                await self._arrived.wait()
        finally:
            with anyio.move_on_after(FLUSH_S, shield=True):
                await self._flush()
            if self._waiting:
                log.warning("sessions were not saved at shutdown", sessions=len(self._waiting))

    async def _write_all_with_retries(self) -> None:
        delay_s = FIRST_RETRY_S
        while self._waiting:
            if await self._write_next():
                delay_s = FIRST_RETRY_S
            else:
                await anyio.sleep(delay_s)
                delay_s = min(2 * delay_s, LONGEST_RETRY_S)

    async def _flush(self) -> None:
        while self._waiting and await self._write_next():
            pass

    async def _write_next(self) -> bool:
        """Write the session that waits longest. False: the store is down, try again later."""
        session = next(iter(self._waiting.values()))
        began_at = anyio.current_time()
        try:
            await self._store.save(session)
        except (EngineUnavailable, EngineTimeout) as error:
            metrics.ENGINE_ERRORS.labels("store", type(error).__name__).inc()
            self._report(healthy=False, error=str(error))
            return False
        except EngineError as error:
            metrics.ENGINE_ERRORS.labels("store", type(error).__name__).inc()
            log.warning("session refused by the store", session_id=session.session_id, error=str(error))
            self._dropped += 1
            self._remove(session)
            return True
        metrics.ENGINE_SECONDS.labels("store", "save").observe(anyio.current_time() - began_at)
        self._remove(session)
        self._report(healthy=True)
        return True

    def _remove(self, session: StoredSession) -> None:
        """Unless a newer version has come meanwhile."""
        if self._waiting.get(session.session_id) is session:
            del self._waiting[session.session_id]

    def _report(self, *, healthy: bool, error: str = "") -> None:
        if healthy != self._healthy:
            self._healthy = healthy
            if healthy:
                log.info("session store is back")
            else:
                log.warning("session store is down; calls go on", error=error)
