"""The way out of a call: order, bounds, and a flush that overtakes."""

from __future__ import annotations

from contextlib import aclosing

import anyio
import numpy as np
import pytest

from duolog.session.events import AudioDelta, CallEvent, InputCleared, PlayoutFlush, StateChanged
from duolog.session.outbox import Outbox, SlowConsumer

pytestmark = pytest.mark.session


def audio(generation: int, ms: int = 100) -> AudioDelta:
    return AudioDelta("resp", "item", generation, 0, np.zeros(ms * 24, np.int16), 24_000)


async def drained(outbox: Outbox) -> list[CallEvent]:
    outbox.close()
    async with aclosing(outbox.drain()) as events:
        return [event async for event in events]


async def test_events_leave_in_order() -> None:
    outbox = Outbox()
    outbox.put(StateChanged("hearing"))
    outbox.put(InputCleared())
    assert await drained(outbox) == [StateChanged("hearing"), InputCleared()]


async def test_flush_overtakes_and_drops_what_is_stale() -> None:
    outbox = Outbox()
    outbox.put(StateChanged("speaking"))
    assert await outbox.put_audio(audio(1))
    outbox.flush(2)
    assert await outbox.put_audio(audio(1)) is False
    assert await outbox.put_audio(audio(2))
    async with aclosing(outbox.drain()) as events:
        taken = [await anext(events) for _ in range(3)]
    assert taken[:2] == [PlayoutFlush(2), StateChanged("speaking")]
    assert isinstance(taken[2], AudioDelta)
    assert taken[2].generation == 2


async def test_audio_waits_for_room_and_goes_on_when_it_is_read() -> None:
    outbox = Outbox(max_audio_ms=200)
    sent = []

    async def produce() -> None:
        for number in range(5):
            sent.append((number, await outbox.put_audio(audio(1))))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(produce)
        await anyio.wait_all_tasks_blocked()
        assert len(sent) == 2
        async with aclosing(outbox.drain()) as events:
            for _ in range(5):
                await anext(events)
    assert sent == [(number, True) for number in range(5)]


async def test_flush_frees_a_producer_that_waits() -> None:
    outbox = Outbox(max_audio_ms=100)
    results = []

    async def produce() -> None:
        results.append(await outbox.put_audio(audio(1)))
        results.append(await outbox.put_audio(audio(1)))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(produce)
        await anyio.wait_all_tasks_blocked()
        outbox.flush(2)
    assert results == [True, False]


async def test_client_that_does_not_read_is_noticed() -> None:
    outbox = Outbox(max_events=3)
    for _ in range(3):
        outbox.put(InputCleared())
    with pytest.raises(SlowConsumer):
        outbox.put(InputCleared())


async def test_closing_ends_a_reader_that_waits() -> None:
    outbox = Outbox()
    async with anyio.create_task_group() as tasks:

        async def read() -> None:
            async with aclosing(outbox.drain()) as events:
                assert [event async for event in events] == []

        tasks.start_soon(read)
        await anyio.wait_all_tasks_blocked()
        outbox.close()
    outbox.put(InputCleared())
    assert len(outbox) == 0
