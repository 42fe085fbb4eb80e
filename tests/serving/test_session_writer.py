"""The session writer in virtual time."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import anyio
import pytest
from trio.testing import MockClock

from duolog.ports.errors import EngineRejected, EngineUnavailable
from duolog.ports.store import StoredSession
from duolog.serving.session_writer import FLUSH_S, SessionWriter

pytestmark = pytest.mark.session


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return "trio", {"clock": MockClock(autojump_threshold=0)}


def session(name: str, version: float = 0.0) -> StoredSession:
    return StoredSession(name, "ava", (), version)


@dataclass
class Store:
    """Takes `delay_s` for a write; fails while `down`; refuses the sessions in `refused`."""

    delay_s: float = 0.0
    down: bool = False
    refused: frozenset[str] = frozenset()
    saved: list[StoredSession] = field(default_factory=list)
    tried_at: list[float] = field(default_factory=list)

    async def save(self, session: StoredSession) -> None:
        self.tried_at.append(anyio.current_time())
        await anyio.sleep(self.delay_s)
        if self.down:
            raise EngineUnavailable("down", engine="store")
        if session.session_id in self.refused:
            raise EngineRejected("no", engine="store")
        self.saved.append(session)

    async def load(self, session_id: str) -> StoredSession | None:
        return None

    async def ping(self) -> None: ...

    async def aclose(self) -> None: ...


async def run_for(writer: SessionWriter, seconds: float) -> None:
    with anyio.move_on_after(seconds):
        await writer.run()


async def test_what_is_submitted_is_written_in_order() -> None:
    store = Store()
    writer = SessionWriter(store)
    for name in "abc":
        writer.submit(session(name))
    await run_for(writer, 1)
    assert [saved.session_id for saved in store.saved] == ["a", "b", "c"]
    assert writer.waiting == 0


async def test_only_the_newest_version_is_written() -> None:
    store = Store()
    writer = SessionWriter(store)
    for version in range(5):
        writer.submit(session("a", version))
    await run_for(writer, 1)
    assert store.saved == [session("a", 4)]


async def test_a_version_that_comes_during_a_write_is_written_next() -> None:
    store = Store(delay_s=1.0)
    writer = SessionWriter(store)
    writer.submit(session("a", 1))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(writer.run)
        await anyio.sleep(0.5)
        writer.submit(session("a", 2))
        await anyio.sleep(5)
        tasks.cancel_scope.cancel()
    assert [saved.updated_at for saved in store.saved] == [1, 2]


async def test_it_retries_with_backoff_and_says_how_it_is() -> None:
    store = Store(down=True)
    writer = SessionWriter(store)
    writer.submit(session("a"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(writer.run)
        await anyio.sleep(60)
        healthy_while_down = writer.healthy
        gaps = [later - earlier for earlier, later in zip(store.tried_at, store.tried_at[1:], strict=False)]
        assert gaps == pytest.approx([0.25, 0.5, 1, 2, 4, 8, 10, 10, 10, 10])
        store.down = False
        writer.submit(replace(session("a"), persona="max"))
        await anyio.sleep(20)
        assert writer.healthy
        tasks.cancel_scope.cancel()
    assert store.saved == [StoredSession("a", "max", (), 0.0)]
    assert not healthy_while_down


async def test_a_session_the_store_refuses_does_not_hold_up_the_others() -> None:
    store = Store(refused=frozenset("a"))
    writer = SessionWriter(store)
    writer.submit(session("a"))
    writer.submit(session("b"))
    await run_for(writer, 1)
    assert [saved.session_id for saved in store.saved] == ["b"]
    assert (writer.dropped, writer.waiting, writer.healthy) == (1, 0, True)


async def test_the_longest_waiting_are_dropped_when_too_many_wait() -> None:
    store = Store()
    writer = SessionWriter(store, max_waiting=2)
    for name in "abcb":
        writer.submit(session(name))
    assert (writer.waiting, writer.dropped) == (2, 1)
    await run_for(writer, 1)
    assert [saved.session_id for saved in store.saved] == ["b", "c"]


async def test_shutdown_writes_what_waits() -> None:
    store = Store(delay_s=0.1)
    writer = SessionWriter(store)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(writer.run)
        await anyio.wait_all_tasks_blocked()
        writer.submit(session("a"))
        writer.submit(session("b"))
        tasks.cancel_scope.cancel()
    assert [saved.session_id for saved in store.saved] == ["a", "b"]


async def test_shutdown_does_not_wait_for_a_store_that_hangs() -> None:
    writer = SessionWriter(Store(delay_s=1e9))
    writer.submit(session("a"))
    started = anyio.current_time()
    await run_for(writer, 1)
    assert anyio.current_time() - started == pytest.approx(1 + FLUSH_S)
    assert writer.waiting == 1
