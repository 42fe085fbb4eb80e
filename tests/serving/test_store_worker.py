"""The worker in virtual time: nobody waits longer than they said, and hardly anybody while the store is away."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import anyio
import pytest
from tests.serving.fake_cache import FakeByteCache, settle, working
from trio.testing import MockClock

from duolog.ports.errors import EngineRejected
from duolog.serving.store_worker import FIRST_REST_S, FLUSH_S, LONGEST_REST_S, STUCK_S, StoreWorker

pytestmark = pytest.mark.session

WAIT_S = 0.008


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return "trio", {"clock": MockClock(autojump_threshold=0)}


async def test_it_answers() -> None:
    store = FakeByteCache(held={"a": b"x"})
    async with working() as worker:
        assert await worker.ask(partial(store.get, "a"), WAIT_S) == b"x"
        assert await worker.ask(partial(store.get, "b"), WAIT_S) is None


async def test_nobody_waits_longer_than_they_said() -> None:
    store = FakeByteCache(delay_s=5.0, held={"a": b"x"})
    async with working() as worker:
        begun = anyio.current_time()
        assert await worker.ask(partial(store.get, "a"), WAIT_S) is None
        assert anyio.current_time() - begun == pytest.approx(WAIT_S)


async def test_nobody_waits_at_all_for_a_store_that_hangs() -> None:
    store = FakeByteCache(delay_s=1e6)
    async with working(tasks=2) as worker:
        for _ in range(2):
            await worker.ask(partial(store.get, "a"), WAIT_S)
        await anyio.sleep(STUCK_S)
        begun = anyio.current_time()
        assert await worker.ask(partial(store.get, "a"), WAIT_S) is None
        assert not worker.submit(partial(store.delete, "a"))
        assert anyio.current_time() == begun
    assert store.commands == 2


async def test_a_store_that_fails_is_left_alone_longer_and_longer() -> None:
    store = FakeByteCache(delay_s=0, down=True)
    tried_at = []
    async with working() as worker:
        for _ in range(6_000):
            before = store.commands
            await worker.ask(partial(store.get, "a"), WAIT_S)
            if store.commands > before:
                tried_at.append(anyio.current_time())
            await anyio.sleep(0.01)
        gaps = [later - earlier for earlier, later in pairwise(tried_at)]
        assert gaps[0] == pytest.approx(FIRST_REST_S, abs=0.02)
        assert gaps[1] == pytest.approx(2 * FIRST_REST_S, abs=0.02)
        assert gaps[-1] == pytest.approx(LONGEST_REST_S, abs=0.02)
        store.down = False
        store.held["a"] = b"x"
        await anyio.sleep(LONGEST_REST_S)
        assert await worker.ask(partial(store.get, "a"), WAIT_S) == b"x"
        assert worker.open


async def test_one_task_keeps_the_order() -> None:
    store = FakeByteCache()
    async with working(tasks=1) as worker:
        worker.submit(partial(store.put, "a", b"1", 1))
        worker.submit(partial(store.put, "a", b"2", 1))
        worker.submit(partial(store.delete, "b"))
        assert await worker.ask(partial(store.get, "a"), WAIT_S) == b"2"


async def test_who_has_gone_is_not_looked_up_for() -> None:
    store = FakeByteCache(delay_s=0.05)
    async with working(tasks=1) as worker:
        worker.submit(partial(store.put, "a", b"1", 1))
        await worker.ask(partial(store.get, "a"), WAIT_S)
        await anyio.sleep(1)
        assert store.commands == 1


async def test_a_refused_command_is_not_an_outage() -> None:
    async def refuse() -> bytes:
        raise EngineRejected("no", engine="store")

    store = FakeByteCache(held={"a": b"x"})
    async with working() as worker:
        assert await worker.ask(refuse, WAIT_S) is None
        assert await worker.ask(partial(store.get, "a"), WAIT_S) == b"x"


async def test_what_waits_is_bounded() -> None:
    store = FakeByteCache()
    worker = StoreWorker("cache", max_waiting=3)
    assert [worker.submit(partial(store.delete, "a")) for _ in range(5)] == [True, True, True, False, False]


async def test_shutdown_does_what_waits_but_not_for_ever() -> None:
    store = FakeByteCache(delay_s=0.4)
    worker = StoreWorker("cache", tasks=1)
    async with anyio.create_task_group() as service:
        service.start_soon(worker.run)
        await settle()
        for number in range(9):
            worker.submit(partial(store.put, str(number), b"", 1))
        await anyio.sleep(0.1)  # the first is on its way; the client ends it, and the fake one does not
        begun = anyio.current_time()
        service.cancel_scope.cancel()
    assert anyio.current_time() - begun == pytest.approx(FLUSH_S)
    assert list(store.held) == ["1", "2"]


async def test_a_cancelled_asker_leaves_the_worker_as_it_was() -> None:
    store = FakeByteCache(held={"a": b"x"})
    async with working() as worker:
        with anyio.move_on_after(0):
            await worker.ask(partial(store.get, "a"), WAIT_S)
        assert await worker.ask(partial(store.get, "a"), WAIT_S) == b"x"
