"""Claims of sessions in a real Valkey: atomic, by epoch, with a time to live."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis
from tests.services import ValkeyServer, free_port

from duolog.adapters.redis_pins import RedisPinStore
from duolog.adapters.redis_store import RedisOptions
from duolog.ports.errors import EngineUnavailable
from duolog.ports.pin_store import PinRecord, Route

pytestmark = pytest.mark.real
LIVE = {"a": "1", "b": "1"}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def store(valkey_server: ValkeyServer) -> AsyncIterator[RedisPinStore]:
    redis = Redis.from_url(valkey_server.url)
    await redis.delete("pin:s", "pin:t")
    await redis.aclose()
    made = RedisPinStore(RedisOptions(valkey_server.url, ttl_s=30))
    yield made
    await made.aclose()


async def test_who_comes_second_learns_where_the_blocks_are(store: RedisPinStore) -> None:
    assert await store.claim([PinRecord("s", "a", "1")], LIVE) == [Route("s", "a", "1")]
    both = [PinRecord("s", "b", "1"), PinRecord("t", "b", "1")]
    assert await store.claim(both, LIVE) == [Route("s", "a", "1"), Route("t", "b", "1")]


async def test_a_route_to_a_replica_that_is_away_or_began_anew_holds_no_longer(store: RedisPinStore) -> None:
    await store.claim([PinRecord("s", "a", "1")], LIVE)
    assert await store.claim([PinRecord("s", "b", "1")], {"b": "1"}) == [Route("s", "b", "1")]
    assert await store.claim([PinRecord("s", "a", "2")], {"a": "2", "b": "3"}) == [Route("s", "a", "2")]


async def test_who_moved_a_session_decides(store: RedisPinStore) -> None:
    await store.claim([PinRecord("s", "a", "1")], LIVE)
    assert await store.claim([PinRecord("s", "b", "1", moved_from="a")], LIVE) == [Route("s", "b", "1")]


async def test_what_is_stored_can_be_read_and_goes_away(store: RedisPinStore, valkey_server: ValkeyServer) -> None:
    await store.claim([PinRecord("s", "a", "1", prompt_tokens=330, resident_tokens=320, tip=255)], LIVE)
    redis = Redis.from_url(valkey_server.url, decode_responses=True)
    assert await redis.hgetall("pin:s") == {
        "replica": "a",
        "epoch": "1",
        "prompt_tokens": "330",
        "resident_tokens": "320",
        "tip": "00000000000000ff",
    }
    assert 0 < await redis.ttl("pin:s") <= 30
    await redis.aclose()


async def test_with_nothing_to_claim_it_says_whether_the_store_is_there(store: RedisPinStore) -> None:
    assert await store.claim([], LIVE) == []
    away = RedisPinStore(RedisOptions(f"redis://127.0.0.1:{free_port()}/0"))
    with pytest.raises(EngineUnavailable):
        await away.claim([], LIVE)
    await away.aclose()
