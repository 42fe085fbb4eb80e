"""One operating-system thread per model, with one inbox, so that heavy native code never blocks the event loop.

Jobs run one after another in the order they came. A job is handed a `StopFlag` and looks at it between its chunks of
work: that is how a cancelled caller gets the thread back. Knows nothing of what the jobs compute.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import anyio

from duolog.ports.errors import EngineUnavailable

T = TypeVar("T")

SLOT_POLL_S = 0.02
"""How soon a job that waits for its consumer notices that it was stopped."""


class JobStopped(Exception):
    """Raised inside a job whose caller has gone; nobody receives it."""


class StopFlag:
    """Says to a running job that nobody waits for its result any more. Safe from any thread."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        self._event.set()

    def is_set(self) -> bool:
        return self._event.is_set()

    def check(self) -> None:
        """Raises JobStopped once the flag is set: call it between chunks of work."""
        if self._event.is_set():
            raise JobStopped


class ModelThread:
    """A dedicated thread for one model. Used from one asyncio event loop."""

    def __init__(self, name: str, *, engine: str, cores: frozenset[int] | None = None) -> None:
        """`engine` names the owner in errors; `cores` binds the thread, and every thread it starts, to those cores."""
        self._engine = engine
        self._active: set[StopFlag] = set()
        self._closed = False
        self._executor = ThreadPoolExecutor(
            max_workers=1, thread_name_prefix=name, initializer=_bind_this_thread, initargs=(cores,)
        )

    async def run(self, fn: Callable[[StopFlag], T]) -> T:
        """Run one job in the thread and return its result, or raise what it raised.

        Cancellation: returns at once; a job that waits is dropped, one that runs has its flag set and ends at its
        next check. The job after it starts only then. Raises EngineUnavailable after `aclose`.
        """
        with self._open_job() as stop:
            return await asyncio.wrap_future(self._executor.submit(fn, stop))

    def start(self, fn: Callable[[StopFlag], T]) -> asyncio.Future[T]:
        """Run one job for several callers, who share the future: none of them may cancel it.

        Only `aclose` sets its flag, or cancels it while it waits. Raises EngineUnavailable after `aclose`.
        """
        stop = self._new_flag()
        job = asyncio.wrap_future(self._executor.submit(fn, stop))
        job.add_done_callback(lambda _: self._active.discard(stop))
        job.add_done_callback(_forget)
        return job

    async def stream(
        self, fn: Callable[[StopFlag, Callable[[T], None]], None], *, max_buffered: int = 4
    ) -> AsyncGenerator[T, None]:
        """Run one job that gives out values by calling its second argument; yield them in order.

        The job waits where `max_buffered` values lie unread. Closing the generator or cancelling sets the flag and
        returns at once; the giving-out call then raises JobStopped inside the job. Raises what the job raised, after
        the values before it, and EngineUnavailable after `aclose`.
        """
        loop = asyncio.get_running_loop()
        slots = threading.Semaphore(max_buffered)
        with self._open_job() as stop:
            send, receive = anyio.create_memory_object_stream[T](max_buffered)

            def deliver(value: T) -> None:
                if not stop.is_set():
                    send.send_nowait(value)

            def emit(value: T) -> None:
                while not slots.acquire(timeout=SLOT_POLL_S):
                    stop.check()
                stop.check()
                loop.call_soon_threadsafe(deliver, value)

            job = asyncio.wrap_future(self._executor.submit(fn, stop, emit))
            job.add_done_callback(lambda _: send.close())
            try:
                with send, receive:
                    async for value in receive:
                        slots.release()
                        yield value
                await job
            finally:
                _forget(job)

    async def aclose(self) -> None:
        """Stop the running job, drop the waiting ones, join the thread. Idempotent."""
        self._closed = True
        for stop in self._active:
            stop.set()
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(lambda: self._executor.shutdown(wait=True, cancel_futures=True))

    def _new_flag(self) -> StopFlag:
        if self._closed:
            raise EngineUnavailable(
                f"The {self._engine} engine has been shut down; restart the server to use it again.",
                engine=self._engine,
            )
        stop = StopFlag()
        self._active.add(stop)
        return stop

    @contextlib.contextmanager
    def _open_job(self) -> Iterator[StopFlag]:
        stop = self._new_flag()
        try:
            yield stop
        finally:
            stop.set()
            self._active.discard(stop)


def _forget(job: asyncio.Future[T]) -> None:
    """Drop a job whose end nobody awaits; its error, if any, has no reader."""
    if not job.cancel() and not job.cancelled():
        job.exception()


def _bind_this_thread(cores: frozenset[int] | None) -> None:
    if cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)
