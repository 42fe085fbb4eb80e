"""The end of the server, as the connections see it: each says goodbye to its client before the sockets close."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import anyio


class Drain:
    """Tells open connections that the server ends, and knows when the last one has gone."""

    def __init__(self) -> None:
        self._begun = anyio.Event()
        self._idle = anyio.Event()
        self._idle.set()
        self._open = 0
        self.reason = ""

    @property
    def begun(self) -> bool:
        return self._begun.is_set()

    @property
    def open_connections(self) -> int:
        return self._open

    def begin(self, reason: str) -> None:
        """Close every connection with this one sentence, and refuse new ones. Idempotent: the first reason stays."""
        if not self.begun:
            self.reason = reason
            self._begun.set()

    async def wait_begun(self) -> None:
        await self._begun.wait()

    async def wait_idle(self) -> None:
        """Until no connection is open."""
        await self._idle.wait()

    @contextmanager
    def connection(self) -> Iterator[None]:
        """Counts one open connection."""
        if self._open == 0:
            self._idle = anyio.Event()
        self._open += 1
        try:
            yield
        finally:
            self._open -= 1
            if self._open == 0:
                self._idle.set()
