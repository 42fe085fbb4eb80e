"""The tasks that talk to the store for caches, so that no turn ever does.

Who needs an answer waits a few milliseconds for it and then goes on without. A store that fails or hangs is left alone
for a while: nobody waits for it at all, and what was to be written is not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import anyio
import structlog

from duolog.ports.errors import EngineError, EngineTimeout, EngineUnavailable
from duolog.telemetry import metrics

log = structlog.get_logger(__name__)

T = TypeVar("T")

FIRST_REST_S = 1.0
LONGEST_REST_S = 10.0
STUCK_S = 0.1
"""Where every task has waited this long for the store, it hangs."""
FLUSH_S = 1.0
"""At shutdown, what is still to be written has so long."""


@dataclass(slots=True)
class _Job(Generic[T]):
    work: Callable[[], Awaitable[T]]
    wanted: bool = True
    result: T | None = None
    ended: anyio.Event = field(default_factory=anyio.Event)

    async def run(self) -> None:
        self.result = await self.work()


class StoreWorker:
    """Runs jobs in the order in which they came. `run` must be running."""

    def __init__(self, name: str, *, tasks: int = 1, max_waiting: int = 256) -> None:
        """`tasks`: jobs that may run at once; with one, each begins after the one before has ended."""
        self._name = name
        self._tasks = tasks
        self._max_waiting = max_waiting
        self._waiting: deque[_Job[object]] = deque()
        self._arrived = anyio.Event()
        self._begun_at: dict[int, float] = {}
        """Task → when its job began."""
        self._rest_s = 0.0
        """After the next failure; 0: the last job went well."""
        self._rests_until = 0.0

    @property
    def open(self) -> bool:
        """False: the store is left alone, or nothing more can wait for it."""
        now = anyio.current_time()
        stuck = len(self._begun_at) == self._tasks and now - max(self._begun_at.values()) > STUCK_S
        return now >= self._rests_until and not stuck and len(self._waiting) < self._max_waiting

    def submit(self, work: Callable[[], Awaitable[object]]) -> bool:
        """Have it done some time. False: it will not be."""
        return self._put(_Job(work))

    async def ask(self, work: Callable[[], Awaitable[T]], wait_s: float) -> T | None:
        """What it gives; None where it fails or has not ended within `wait_s`, or will not be done."""
        job = _Job(work)
        if not self._put(job):
            return None
        with anyio.move_on_after(wait_s):
            await job.ended.wait()
        job.wanted = job.ended.is_set()
        return job.result

    async def run(self) -> None:
        """Work until cancelled; then try to do what still waits, for at most FLUSH_S."""
        try:
            async with anyio.create_task_group() as tasks:
                for number in range(self._tasks):
                    tasks.start_soon(self._work, number)
        finally:
            with anyio.move_on_after(FLUSH_S, shield=True):
                while self._waiting and anyio.current_time() >= self._rests_until:
                    await self._do(self._waiting.popleft())

    def _put(self, job: _Job[T]) -> bool:
        if not self.open:
            metrics.STORE_SKIPPED.labels(self._name).inc()
            return False
        self._waiting.append(job)  # type: ignore[arg-type]  # the queue never reads a result
        self._arrived.set()
        return True

    async def _work(self, number: int) -> None:
        while True:
            while not self._waiting:
                if self._arrived.is_set():
                    self._arrived = anyio.Event()
                await self._arrived.wait()
            job = self._waiting.popleft()
            self._begun_at[number] = anyio.current_time()
            try:
                await self._do(job)
            finally:
                del self._begun_at[number]

    async def _do(self, job: _Job[object]) -> None:
        try:
            if job.wanted and anyio.current_time() >= self._rests_until:
                await job.run()
                self._recovered()
        except (EngineUnavailable, EngineTimeout) as error:
            self._failed(error)
        except EngineError as error:
            log.warning("store refused a command", user=self._name, error=str(error))
        finally:
            job.ended.set()

    def _failed(self, error: EngineError) -> None:
        if anyio.current_time() < self._rests_until:
            return
        if not self._rest_s:
            log.warning("store is down; calls go on without", user=self._name, error=str(error))
        self._rest_s = min(2 * self._rest_s or FIRST_REST_S, LONGEST_REST_S)
        self._rests_until = anyio.current_time() + self._rest_s

    def _recovered(self) -> None:
        if self._rest_s:
            log.info("store is back", user=self._name)
        self._rest_s = 0.0
