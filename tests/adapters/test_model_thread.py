"""The thread a model runs in: order, cancellation, streaming, shutdown."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import aclosing

import anyio
import anyio.to_thread
import pytest

from duolog.adapters.model_thread import JobStopped, ModelThread, StopFlag
from duolog.ports.errors import EngineUnavailable

pytestmark = pytest.mark.real


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def a_thread(cores: frozenset[int] | None = None) -> ModelThread:
    return ModelThread("test", engine="asr", cores=cores)


async def test_runs_every_job_in_one_thread_in_order() -> None:
    thread = a_thread()
    seen: list[int] = []
    names: set[int] = set()

    def job(number: int) -> Callable[[StopFlag], int]:
        def work(stop: StopFlag) -> int:
            seen.append(number)
            names.add(threading.get_ident())
            return number

        return work

    results = [await thread.run(job(number)) for number in range(5)]
    await thread.aclose()
    assert results == seen == [0, 1, 2, 3, 4]
    assert len(names) == 1
    assert threading.get_ident() not in names


async def test_raises_what_the_job_raised() -> None:
    thread = a_thread()

    def fail(stop: StopFlag) -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await thread.run(fail)
    await thread.aclose()


async def test_cancellation_returns_at_once_and_stops_the_job() -> None:
    thread = a_thread()
    started, ended = threading.Event(), threading.Event()

    def spin(stop: StopFlag) -> None:
        started.set()
        try:
            while True:
                stop.check()
        except JobStopped:
            ended.set()
            raise

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(thread.run, spin)
        await anyio.to_thread.run_sync(started.wait)
        tasks.cancel_scope.cancel()
    await anyio.to_thread.run_sync(ended.wait)
    assert await thread.run(lambda stop: 7) == 7
    await thread.aclose()


async def test_a_cancelled_waiting_job_never_runs() -> None:
    thread = a_thread()
    started, release = threading.Event(), threading.Event()
    ran: list[str] = []

    def hold(stop: StopFlag) -> None:
        started.set()
        release.wait()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(thread.run, hold)
        await anyio.to_thread.run_sync(started.wait)
        async with anyio.create_task_group() as waiting:
            waiting.start_soon(thread.run, lambda stop: ran.append("waiting"))
            await anyio.lowlevel.checkpoint()
            waiting.cancel_scope.cancel()
        release.set()
    await thread.aclose()
    assert ran == []


async def test_streams_values_in_order_and_then_the_error() -> None:
    thread = a_thread()

    def count(stop: StopFlag, emit: Callable[[int], None]) -> None:
        for number in range(20):
            emit(number)
        raise ValueError("after the last")

    seen: list[int] = []

    async def read() -> None:
        async with aclosing(thread.stream(count, max_buffered=2)) as values:
            async for value in values:
                seen.append(value)

    with pytest.raises(ValueError, match="after the last"):
        await read()
    await thread.aclose()
    assert seen == list(range(20))


async def test_a_stream_waits_for_its_reader_and_ends_when_closed() -> None:
    thread = a_thread()
    given: list[int] = []
    ended = threading.Event()

    def count(stop: StopFlag, emit: Callable[[int], None]) -> None:
        try:
            for number in range(1000):
                emit(number)
                given.append(number)
        finally:
            ended.set()

    async with aclosing(thread.stream(count, max_buffered=2)) as values:
        assert await anext(values) == 0
    await anyio.to_thread.run_sync(ended.wait)
    assert len(given) <= 4
    assert await thread.run(lambda stop: "next") == "next"
    await thread.aclose()


async def test_closing_stops_a_stream_nobody_reads() -> None:
    thread = a_thread()

    def count(stop: StopFlag, emit: Callable[[int], None]) -> None:
        for number in range(1000):
            emit(number)

    values = thread.stream(count, max_buffered=1)
    assert await anext(values) == 0
    await thread.aclose()
    await values.aclose()


async def test_a_closed_thread_refuses_and_closing_twice_is_fine() -> None:
    thread = a_thread()
    await thread.aclose()
    await thread.aclose()
    with pytest.raises(EngineUnavailable, match="shut down"):
        await thread.run(lambda stop: 1)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="needs Linux's core binding")
async def test_binds_the_thread_to_its_cores() -> None:
    core = min(os.sched_getaffinity(0))
    thread = a_thread(frozenset({core}))
    assert await thread.run(lambda stop: os.sched_getaffinity(0)) == {core}
    await thread.aclose()


async def test_a_closed_thread_refuses_a_stream_too() -> None:
    thread = a_thread()
    await thread.aclose()

    def count(stop: StopFlag, emit: Callable[[int], None]) -> None:
        emit(1)

    with pytest.raises(EngineUnavailable):
        async with aclosing(thread.stream(count)) as values:
            await anext(values)
