"""What every SessionStore keeps to: the same tests for the one in memory and for a real Valkey."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

import anyio
import pytest
from redis.asyncio import Redis
from tests.services import ValkeyServer, free_port, running_valkey

from duolog.adapters.memory_store import MemorySessionStore
from duolog.adapters.redis_store import RedisOptions, RedisSessionStore
from duolog.ports.errors import EngineProtocolError, EngineTimeout, EngineUnavailable
from duolog.ports.store import SessionStore, StoredSession
from duolog.serving.session_writer import SessionWriter

SESSION = StoredSession("sess_1", "ava", ('{"id":"a","text":"Hello"}', '{"text":"你好\\u2028 😀"}'), 1_700_000_000.25)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(
    params=[pytest.param("memory", marks=pytest.mark.session), pytest.param("valkey", marks=pytest.mark.real)]
)
async def store(request: pytest.FixtureRequest) -> AsyncIterator[SessionStore]:
    if request.param == "memory":
        yield MemorySessionStore(ttl_s=1)
        return
    server: ValkeyServer = request.getfixturevalue("valkey_server")
    valkey = RedisSessionStore(RedisOptions(server.url, ttl_s=1))
    yield valkey
    await valkey.aclose()


@pytest.fixture
def own_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyServer]:
    """One that a test may stop."""
    with running_valkey(tmp_path_factory.mktemp("own-valkey")) as server:
        yield server


async def test_what_was_saved_is_loaded(store: SessionStore) -> None:
    await store.save(SESSION)
    assert await store.load("sess_1") == SESSION


async def test_an_unknown_session_is_none(store: SessionStore) -> None:
    assert await store.load("never saved") is None


async def test_the_newest_version_wins(store: SessionStore) -> None:
    await store.save(SESSION)
    newer = replace(SESSION, persona="max", items=())
    await store.save(newer)
    assert await store.load("sess_1") == newer


@pytest.mark.slow
async def test_a_session_is_forgotten_after_its_time(store: SessionStore) -> None:
    await store.save(replace(SESSION, session_id="sess_ttl"))
    await anyio.sleep(1.2)
    assert await store.load("sess_ttl") is None


async def test_it_answers_a_ping(store: SessionStore) -> None:
    await store.ping()


async def test_closing_twice_is_fine(store: SessionStore) -> None:
    await store.aclose()
    await store.aclose()


@pytest.mark.real
async def test_nobody_listens() -> None:
    store = RedisSessionStore(RedisOptions(f"redis://:secret@127.0.0.1:{free_port()}/0"))
    for attempt in (store.ping(), store.save(SESSION), store.load("sess_1")):
        with pytest.raises(EngineUnavailable, match=r"127\.0\.0\.1:\d+ is not reachable") as error:
            await attempt
        assert error.value.engine == "store"
        assert "secret" not in str(error.value)
    await store.aclose()


@pytest.mark.real
@pytest.mark.slow
async def test_a_store_that_hangs_is_a_timeout_and_recovers(own_server: ValkeyServer) -> None:
    store = RedisSessionStore(RedisOptions(own_server.url, timeout_s=0.3))
    await store.ping()
    with own_server.paused():
        with pytest.raises(EngineTimeout):
            await store.save(SESSION)
        with pytest.raises(EngineUnavailable):
            await store.ping()
    await store.save(SESSION)
    assert await store.load("sess_1") == SESSION
    await store.aclose()


@pytest.mark.real
async def test_cancelled_commands_leave_the_connection_in_step(valkey_server: ValkeyServer) -> None:
    store = RedisSessionStore(RedisOptions(valkey_server.url, max_connections=1))
    sessions = [replace(SESSION, session_id=f"step_{number}") for number in range(20)]
    for session in sessions:
        with anyio.move_on_after(0):
            await store.save(session)
        await store.save(session)
        assert await store.load(session.session_id) == session
    await store.aclose()


@pytest.mark.real
async def test_a_document_that_is_not_ours_is_a_protocol_error(valkey_server: ValkeyServer) -> None:
    redis = Redis.from_url(valkey_server.url)
    store = RedisSessionStore(RedisOptions(valkey_server.url))
    for document in ("no json", "[]", '{"session_id": 1}', '{"session_id":"a","persona":"b","items":3,"updated_at":1}'):
        await redis.set("session:odd", document, ex=10)
        with pytest.raises(EngineProtocolError):
            await store.load("odd")
    await redis.aclose()
    await store.aclose()


@pytest.mark.real
@pytest.mark.slow
async def test_the_writer_catches_up_when_the_store_comes_back(own_server: ValkeyServer) -> None:
    store = RedisSessionStore(RedisOptions(own_server.url, timeout_s=0.5))
    writer = SessionWriter(store)
    own_server.stop()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(writer.run)
        writer.submit(SESSION)
        with anyio.fail_after(5):
            while writer.healthy:  # noqa: ASYNC110 - rejected: real services have no event
                await anyio.sleep(0.01)
        newer = replace(SESSION, persona="max")
        writer.submit(newer)
        await anyio.to_thread.run_sync(own_server.start)
        with anyio.fail_after(10):
            while writer.waiting:  # noqa: ASYNC110 - rejected: real services have no event
                await anyio.sleep(0.01)
        tasks.cancel_scope.cancel()
    assert writer.healthy
    assert await store.load("sess_1") == newer
    await store.aclose()
