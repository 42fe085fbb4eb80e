"""Runs the turns of one call, strictly one after another, each inside its own cancel scope.

The next turn begins only when the one before has ended; a cancelled turn that does not end within the watchdog's time
ends the call, because two answers must never be made at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable

import anyio
import structlog

from duolog.session.turn import Turn, TurnEnd

log = structlog.get_logger(__name__)

WATCHDOG_S = 5.0


class TurnStuck(Exception):
    """A cancelled turn did not end: some stage swallows cancellation."""


class TurnRunner:
    """A queue of turns and the one that runs."""

    def __init__(
        self, work: Callable[[Turn], Awaitable[None]], finish: Callable[[Turn, Exception | None], None]
    ) -> None:
        """`work` does the turn; `finish` is told once that it ended, with the error where it failed unexpectedly."""
        self._work = work
        self._finish = finish
        self._waiting: deque[Turn] = deque()
        self._arrived = anyio.Event()
        self._cancelled = anyio.Event()
        self.current: Turn | None = None

    def turns(self) -> list[Turn]:
        """The running turn, then those that wait."""
        return ([self.current] if self.current is not None else []) + list(self._waiting)

    def submit(self, turn: Turn) -> None:
        self._waiting.append(turn)
        self._arrived.set()

    def cancel(self, turn: Turn, why: TurnEnd) -> None:
        """End a turn early; one that has not begun never will."""
        turn.cancel(why)
        if turn is self.current:
            self._cancelled.set()
        elif turn in self._waiting:
            self._waiting.remove(turn)
            self._end(turn, None)

    async def run(self) -> None:
        """Run turns until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch)
            while True:
                while not self._waiting:
                    self._arrived = anyio.Event()
                    await self._arrived.wait()
                self.current = self._waiting.popleft()
                await self._run_one(self.current)

    async def _run_one(self, turn: Turn) -> None:
        failure: Exception | None = None
        try:
            with turn.scope:
                await self._work(turn)
        except Exception as error:
            failure = error
            log.exception("turn failed", turn_end=turn.end)
        finally:
            self.current = None
            self._end(turn, failure)

    def _end(self, turn: Turn, failure: Exception | None) -> None:
        self._finish(turn, failure)
        turn.ended.set()

    async def _watch(self) -> None:
        while True:
            await self._cancelled.wait()
            self._cancelled = anyio.Event()
            turn = self.current
            if turn is None or turn.end is None:  # the cancelled one has ended, and the next has begun
                continue
            with anyio.move_on_after(WATCHDOG_S):
                await turn.ended.wait()
            if not turn.ended.is_set():
                raise TurnStuck(f"a cancelled turn did not end within {WATCHDOG_S:g} s")
