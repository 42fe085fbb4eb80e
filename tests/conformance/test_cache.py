"""What every ByteCache and IdempotencyStore keeps to: the same tests for those in memory and for a real Valkey."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator

import anyio
import pytest
from redis.asyncio import Redis
from tests.services import ValkeyServer, free_port

from duolog.adapters.memory_cache import MemoryByteCache, MemoryIdempotencyStore
from duolog.adapters.redis_cache import RedisByteCache, RedisIdempotencyStore
from duolog.adapters.redis_store import RedisOptions
from duolog.ports.cache import ByteCache
from duolog.ports.errors import EngineRejected, EngineUnavailable
from duolog.ports.idempotency import Claim, IdempotencyStore, Standing

BOTH = [pytest.param("memory", marks=pytest.mark.session), pytest.param("valkey", marks=pytest.mark.real)]
CLAIMED, RUNNING = Claim(Standing.CLAIMED), Claim(Standing.RUNNING)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def key() -> str:
    """Unlike any other test's: all share one server."""
    return f"prompt:{uuid.uuid4().hex}"


@pytest.fixture(params=BOTH)
async def cache(request: pytest.FixtureRequest) -> AsyncIterator[ByteCache]:
    if request.param == "memory":
        yield MemoryByteCache()
        return
    server: ValkeyServer = request.getfixturevalue("valkey_server")
    valkey = RedisByteCache(RedisOptions(server.url))
    yield valkey
    await valkey.aclose()


@pytest.fixture(params=BOTH)
async def store(request: pytest.FixtureRequest) -> AsyncIterator[IdempotencyStore]:
    if request.param == "memory":
        yield MemoryIdempotencyStore()
        return
    server: ValkeyServer = request.getfixturevalue("valkey_server")
    valkey = RedisIdempotencyStore(RedisOptions(server.url))
    yield valkey
    await valkey.aclose()


async def test_bytes_come_back_as_they_were(cache: ByteCache, key: str) -> None:
    value = bytes(range(256)) * 3
    await cache.put(key, value, 60)
    assert await cache.get(key) == value
    await cache.put(key, b"", 60)
    assert await cache.get(key) == b""


async def test_an_unknown_or_deleted_key_is_none(cache: ByteCache, key: str) -> None:
    assert await cache.get(key) is None
    await cache.put(key, b"value", 60)
    await cache.delete(key)
    await cache.delete(key)
    assert await cache.get(key) is None


async def test_a_value_is_forgotten_after_its_time(cache: ByteCache, key: str) -> None:
    await cache.put(key, b"value", 0.03)
    await anyio.sleep(0.06)
    assert await cache.get(key) is None


async def test_the_first_claims_and_the_second_learns_that_it_runs(store: IdempotencyStore, key: str) -> None:
    assert await store.begin(key, "a", 60) == CLAIMED
    assert await store.begin(key, "b", 60) == RUNNING
    assert await store.begin(key, "a", 60) == CLAIMED


async def test_everybody_gets_the_result(store: IdempotencyStore, key: str) -> None:
    await store.begin(key, "a", 60)
    assert await store.finish(key, "a", b"\x00result", 60)
    for asker in "ab":
        assert await store.begin(key, asker, 60) == Claim(Standing.DONE, b"\x00result")


async def test_of_many_at_once_one_claims(store: IdempotencyStore, key: str) -> None:
    claims: list[Claim] = []

    async def ask(owner: str) -> None:
        claims.append(await store.begin(key, owner, 60))

    async with anyio.create_task_group() as tasks:
        for number in range(12):
            tasks.start_soon(ask, f"owner {number}")
    assert sorted(claims, key=str) == sorted([CLAIMED] + [RUNNING] * 11, key=str)


async def test_a_crashed_owners_lock_expires_and_its_late_result_counts_no_more(
    store: IdempotencyStore, key: str
) -> None:
    await store.begin(key, "crashed", 0.03)
    await anyio.sleep(0.06)
    assert await store.begin(key, "next", 60) == CLAIMED
    assert not await store.finish(key, "crashed", b"late", 60)
    assert await store.finish(key, "next", b"right", 60)
    assert not await store.finish(key, "crashed", b"later", 60)
    assert await store.begin(key, "third", 60) == Claim(Standing.DONE, b"right")


async def test_an_owner_that_renews_keeps_its_lock(store: IdempotencyStore, key: str) -> None:
    await store.begin(key, "a", 0.05)
    await store.begin(key, "a", 60)
    await anyio.sleep(0.1)
    assert await store.begin(key, "b", 60) == RUNNING


async def test_only_the_owner_gives_a_lock_up(store: IdempotencyStore, key: str) -> None:
    await store.begin(key, "a", 60)
    await store.release(key, "b")
    assert await store.begin(key, "b", 60) == RUNNING
    await store.release(key, "a")
    assert await store.begin(key, "b", 60) == CLAIMED


async def test_a_result_is_not_given_up(store: IdempotencyStore, key: str) -> None:
    await store.begin(key, "a", 60)
    await store.finish(key, "a", b"result", 60)
    await store.release(key, "a")
    assert await store.begin(key, "b", 60) == Claim(Standing.DONE, b"result")


async def test_a_result_is_forgotten_after_its_time(store: IdempotencyStore, key: str) -> None:
    await store.begin(key, "a", 60)
    await store.finish(key, "a", b"result", 0.03)
    await anyio.sleep(0.06)
    assert await store.begin(key, "b", 60) == CLAIMED


@pytest.mark.real
async def test_a_value_of_somebody_else_is_a_free_key(valkey_server: ValkeyServer, key: str) -> None:
    redis = Redis.from_url(valkey_server.url)
    store = RedisIdempotencyStore(RedisOptions(valkey_server.url))
    await redis.set(key, b"\xff\x00", ex=60)
    assert await store.begin(key, "a", 60) == CLAIMED
    await redis.delete(key)
    await redis.hset(key, "some", "hash")
    assert await store.begin(key, "b", 60) == CLAIMED
    assert 0 < await redis.pttl(key) <= 60_000
    await redis.aclose()
    await store.aclose()


@pytest.mark.real
async def test_a_cached_key_of_another_type_is_refused_and_can_be_written_over(
    valkey_server: ValkeyServer, key: str
) -> None:
    redis = Redis.from_url(valkey_server.url)
    cache = RedisByteCache(RedisOptions(valkey_server.url))
    await redis.hset(key, "some", "hash")
    with pytest.raises(EngineRejected):
        await cache.get(key)
    await cache.put(key, b"ours", 60)
    assert await cache.get(key) == b"ours"
    await redis.aclose()
    await cache.aclose()


@pytest.mark.real
async def test_nobody_listens() -> None:
    options = RedisOptions(f"redis://127.0.0.1:{free_port()}/0")
    cache, store = RedisByteCache(options), RedisIdempotencyStore(options)
    for attempt in (
        cache.get("k"),
        cache.put("k", b"", 1),
        cache.delete("k"),
        store.begin("k", "a", 1),
        store.finish("k", "a", b"", 1),
        store.release("k", "a"),
    ):
        with pytest.raises(EngineUnavailable):
            await attempt
    await cache.aclose()
    await store.aclose()
