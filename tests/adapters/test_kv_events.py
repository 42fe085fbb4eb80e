"""News of a cache over ZeroMQ: in order, without gaps or told of them, across restarts of the sender."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import anyio
import msgspec
import pytest
import zmq
import zmq.asyncio

from duolog.adapters.kv_events import KvEventsOptions, ZmqKvEvents, parse_batch
from duolog.adapters.vllm_monitor import parse_stats
from duolog.ports.replicas import AllBlocksCleared, BlocksRemoved, BlocksStored, EventsLost, KvEvent, ReplicaStats

pytestmark = [pytest.mark.real, pytest.mark.slow]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def batch(at: float, *events: object) -> bytes:
    return msgspec.msgpack.encode([at, events, 0])


def stored(*names: int | bytes) -> dict[str, object]:
    return {"type": "BlockStored", "block_hashes": names, "token_ids": [1], "medium": "GPU", "group_idx": 0}


class Sender:
    """A publisher as vLLM has one."""

    def __init__(self, folder: Path) -> None:
        self.options = KvEventsOptions(f"ipc://{folder}/e", f"ipc://{folder}/r")
        self.context = zmq.asyncio.Context()
        self.news = self.context.socket(zmq.PUB)
        self.news.bind(self.options.endpoint)
        self.replay = self.context.socket(zmq.ROUTER)
        self.replay.bind(str(self.options.replay_endpoint))
        self.kept: list[bytes] = []
        self.answers = True
        self.asked = 0

    async def send(self, payload: bytes, *, lost: bool = False) -> None:
        self.kept.append(payload)
        if not lost:
            await self.news.send_multipart([b"kv", (len(self.kept) - 1).to_bytes(8, "big"), payload])

    async def serve_replays(self) -> None:
        while True:
            who, _, start = await self.replay.recv_multipart()
            self.asked += 1
            if not self.answers:
                continue
            for number in range(int.from_bytes(start, "big"), len(self.kept)):
                await self.replay.send_multipart([who, b"", b"kv", number.to_bytes(8, "big"), self.kept[number]])
            await self.replay.send_multipart([who, b"", b"", (-1).to_bytes(8, "big", signed=True), b""])


@pytest.fixture
async def sender(tmp_path: Path) -> AsyncIterator[Sender]:
    made = Sender(tmp_path)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made.serve_replays)
        yield made
        tasks.cancel_scope.cancel()
    made.context.destroy(linger=0)


async def take(source: AsyncIterator[KvEvent], count: int) -> list[KvEvent]:
    with anyio.fail_after(10):
        return [await anext(source) for _ in range(count)]


async def test_what_was_before_comes_first_and_gaps_are_filled(sender: Sender) -> None:
    await sender.send(batch(1, stored(1)), lost=True)
    async with aclosing(ZmqKvEvents(sender.options).read()) as news:
        assert await take(news, 1) == [BlocksStored((1,))]
        await sender.send(batch(2, stored(2)), lost=True)
        await sender.send(batch(3, stored(3)))
        assert await take(news, 2) == [BlocksStored((2,)), BlocksStored((3,))]
        sender.answers = False
        await sender.send(batch(4, stored(4)), lost=True)
        await sender.send(batch(5, stored(5)))
        assert await take(news, 2) == [EventsLost(), BlocksStored((5,))]


async def test_a_sender_that_begins_anew_voids_what_was_known(sender: Sender) -> None:
    await sender.send(batch(1, stored(1)))
    await sender.send(batch(2, stored(2)))
    async with aclosing(ZmqKvEvents(sender.options).read()) as news:
        assert await take(news, 2) == [BlocksStored((1,)), BlocksStored((2,))]
        await sender.news.send_multipart([b"kv", (0).to_bytes(8, "big"), sender.kept[0]])  # a repetition
        sender.kept.clear()
        await sender.send(batch(9, stored(9)))
        assert await take(news, 2) == [EventsLost(), BlocksStored((9,))]


def test_batches_are_read_as_vllm_writes_them() -> None:
    events = (
        stored(7, b"\x01" * 24 + b"\x00" * 7 + b"\x05"),
        {"type": "BlockRemoved", "block_hashes": [7], "medium": "GPU"},
        {"type": "BlockRemoved", "block_hashes": [8], "medium": "CPU"},
        {"type": "AllBlocksCleared"},
    )
    assert parse_batch(batch(2.5, *events)) == (
        2.5,
        [BlocksStored((7, 5)), BlocksRemoved((7,)), AllBlocksCleared()],
    )


def test_the_page_of_metrics_is_read() -> None:
    page = (
        'vllm:num_requests_running{engine="0"} 2.0\n'
        'vllm:num_requests_waiting{engine="0"} 1.0\n'
        'vllm:kv_cache_usage_perc{engine="0"} 0.25\n'
        'vllm:prompt_tokens_created{engine="0"} 1.7e+09\n'
        'vllm:cache_config_info{block_size="32",hash_block_size="16",num_gpu_blocks="64"} 1.0\n'
    )
    assert parse_stats(page) == ReplicaStats("1700000000.000", 2048, 0.25, 2, 1)
    assert parse_stats("python_info 1\n") is None
