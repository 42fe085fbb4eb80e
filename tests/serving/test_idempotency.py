"""Requests that come twice, in virtual time: two processes around one store, and a store that is away."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import pytest
from trio.testing import MockClock

from duolog.adapters.memory_cache import MemoryIdempotencyStore
from duolog.ports.errors import EngineUnavailable
from duolog.ports.idempotency import Claim, Standing
from duolog.serving.idempotency import DifferentRequest, Idempotency, IdempotencyOptions, RequestKey
from duolog.serving.store_worker import StoreWorker

pytestmark = pytest.mark.session

ASKED = RequestKey.of("event", ("sess_1", "e1"), b"content")
OTHER = RequestKey.of("event", ("sess_1", "e1"), b"other content")
OPTIONS = IdempotencyOptions(ttl_s=60, lock_s=9)


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return "trio", {"clock": MockClock(autojump_threshold=0)}


class SlowStore(MemoryIdempotencyStore):
    """Answers after a while, or not at all."""

    def __init__(self, delay_s: float = 0.0, *, down: bool = False) -> None:
        super().__init__()
        self.delay_s = delay_s
        self.down = down

    async def begin(self, key: str, owner: str, lock_s: float) -> Claim:
        await anyio.sleep(self.delay_s)
        if self.down:
            raise EngineUnavailable("The store is gone.", engine="store")
        return await super().begin(key, owner, lock_s)


@asynccontextmanager
async def process(store: MemoryIdempotencyStore) -> AsyncGenerator[Idempotency, None]:
    """One server process; it crashes at the end of the block."""
    worker = StoreWorker("idempotency")
    idempotency = Idempotency(store, worker, OPTIONS)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.run)
        tasks.start_soon(idempotency.run)
        yield idempotency
        tasks.cancel_scope.cancel()


async def test_the_second_process_gets_the_result_of_the_first() -> None:
    store = SlowStore()
    async with process(store) as first, process(store) as second:
        claimed = await first.begin(ASKED)
        assert claimed.standing is Standing.CLAIMED
        assert (await first.begin(ASKED)).standing is Standing.RUNNING
        assert (await second.begin(ASKED)).standing is Standing.RUNNING
        first.finish(ASKED, claimed.owner, b"result")
        assert (await first.begin(ASKED)).result == b"result"
        await anyio.sleep(0.01)
        assert (await second.begin(ASKED)).result == b"result"


async def test_what_was_begun_fresh_is_known_elsewhere_too() -> None:
    store = SlowStore()
    async with process(store) as first, process(store) as second:
        claimed = await first.begin(ASKED, fresh=True)
        await anyio.sleep(0.01)
        assert (await second.begin(ASKED)).standing is Standing.RUNNING
        first.finish(ASKED, claimed.owner, b"result")
        await anyio.sleep(0.01)
        assert (await second.begin(ASKED)).result == b"result"


async def test_who_waits_gets_the_result_when_it_is_there_however_long_it_takes() -> None:
    store = SlowStore()
    async with process(store) as first, process(store) as second, anyio.create_task_group() as tasks:
        claimed = await first.begin(ASKED)

        async def carry_out() -> None:
            await anyio.sleep(3 * OPTIONS.lock_s)  # its lock is renewed
            first.finish(ASKED, claimed.owner, b"result")

        tasks.start_soon(carry_out)
        assert (await second.wait(ASKED, 1.0)).standing is Standing.RUNNING
        assert (await second.wait(ASKED, 100.0)).result == b"result"
        assert anyio.current_time() >= 3 * OPTIONS.lock_s


async def test_a_crashed_owners_lock_expires() -> None:
    store = SlowStore()
    async with process(store) as first:
        await first.begin(ASKED)
    async with process(store) as second:
        assert (await second.begin(ASKED)).standing is Standing.RUNNING
        assert (await second.wait(ASKED, 100.0)).standing is Standing.CLAIMED
        assert anyio.current_time() >= OPTIONS.lock_s - 0.1


async def test_what_was_released_may_be_carried_out_by_anybody() -> None:
    store = SlowStore()
    async with process(store) as first, process(store) as second:
        claimed = await first.begin(ASKED)
        first.release(ASKED, claimed.owner)
        await anyio.sleep(0.01)
        assert (await second.begin(ASKED)).standing is Standing.CLAIMED
        first.finish(ASKED, claimed.owner, b"too late")
        assert (await first.begin(ASKED)).standing is Standing.RUNNING


async def test_another_content_under_the_same_key_is_a_mistake() -> None:
    store = SlowStore()
    async with process(store) as first, process(store) as second:
        claimed = await first.begin(ASKED)
        with pytest.raises(DifferentRequest):
            await first.begin(OTHER)
        first.finish(ASKED, claimed.owner, b"result")
        await anyio.sleep(0.01)
        for one in (first, second):
            with pytest.raises(DifferentRequest):
                await one.begin(OTHER)


@pytest.mark.parametrize("store", [SlowStore(delay_s=1e6), SlowStore(down=True)], ids=["hangs", "gone"])
async def test_without_a_store_each_process_still_carries_out_once(store: SlowStore) -> None:
    async with process(store) as first:
        begun_at = anyio.current_time()
        claimed = await first.begin(ASKED)
        assert claimed.standing is Standing.CLAIMED
        assert anyio.current_time() - begun_at <= OPTIONS.wait_s
        first.finish(ASKED, claimed.owner, b"result")
        assert (await first.begin(ASKED)).result == b"result"


async def test_a_cancelled_asker_claims_nothing() -> None:
    store = SlowStore(delay_s=0.03)
    async with process(store) as first:
        with anyio.move_on_after(0.01):
            await first.begin(ASKED)
        await anyio.sleep(1)
        assert (await first.begin(ASKED)).standing is Standing.CLAIMED


async def test_a_result_is_forgotten_after_its_time() -> None:
    store = SlowStore()
    async with process(store) as first:
        claimed = await first.begin(ASKED)
        first.finish(ASKED, claimed.owner, b"result", 5.0)
        await anyio.sleep(5.1)
        assert (await first.begin(ASKED)).standing is Standing.CLAIMED


def test_a_key_tells_nothing_and_its_parts_do_not_run_together() -> None:
    assert "sess_1" not in ASKED.key
    assert RequestKey.of("http", ("a", "bc"), b"").key != RequestKey.of("http", ("ab", "c"), b"").key
