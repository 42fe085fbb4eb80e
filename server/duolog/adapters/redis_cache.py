"""Cached bytes (`prompt:*`, `speech:*`) and idempotency keys (`idem:*`) in Redis or Valkey.

An idempotency key holds `L` and its owner while the request runs, and `1` and the result afterwards: the first byte is
the version of what follows. Scripts compare and change in one step.
"""

from __future__ import annotations

from duolog.adapters.redis_store import RedisClient, RedisOptions
from duolog.ports.errors import EngineProtocolError
from duolog.ports.idempotency import Claim, Standing

LOCK = b"L"
RESULT = b"1"

BEGIN = """
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
  return false
end
if redis.call('TYPE', KEYS[1]).ok == 'string' then
  local held = redis.call('GET', KEYS[1])
  local kind = string.sub(held, 1, 1)
  if held ~= ARGV[1] and (kind == 'L' or kind == '1') then
    return held
  end
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return false
"""
"""Nothing: the lock is ours. A value that is none of ours counts as a free key."""
FINISH = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 1
"""
RELEASE = """
if redis.call('GET', KEYS[1]) == ARGV[1] then
  redis.call('DEL', KEYS[1])
end
return 0
"""


class RedisByteCache:
    """Its own client: a large value never waits before a session."""

    def __init__(self, options: RedisOptions) -> None:
        self._client = RedisClient(options)

    async def get(self, key: str) -> bytes | None:
        found = await self._client.run(self._client.redis.get(key))
        if found is None or isinstance(found, bytes):
            return found
        raise _strange()

    async def put(self, key: str, value: bytes, ttl_s: float) -> None:
        await self._client.run(self._client.redis.set(key, value, px=_ms(ttl_s)))

    async def delete(self, key: str) -> None:
        await self._client.run(self._client.redis.delete(key))

    async def aclose(self) -> None:
        await self._client.aclose()


class RedisIdempotencyStore:
    """Its own client, as above."""

    def __init__(self, options: RedisOptions) -> None:
        self._client = RedisClient(options)

    async def begin(self, key: str, owner: str, lock_s: float) -> Claim:
        held = await self._run(BEGIN, key, LOCK + owner.encode(), _ms(lock_s))
        if held is None:
            return Claim(Standing.CLAIMED)
        if not isinstance(held, bytes):
            raise _strange()
        return Claim(Standing.RUNNING) if held.startswith(LOCK) else Claim(Standing.DONE, held.removeprefix(RESULT))

    async def finish(self, key: str, owner: str, result: bytes, ttl_s: float) -> bool:
        return await self._run(FINISH, key, LOCK + owner.encode(), RESULT + result, _ms(ttl_s)) == 1

    async def release(self, key: str, owner: str) -> None:
        await self._run(RELEASE, key, LOCK + owner.encode())

    async def aclose(self) -> None:
        await self._client.aclose()

    async def _run(self, script: str, key: str, *arguments: bytes | int) -> object:
        return await self._client.run(self._client.redis.eval(script, 1, key, *arguments))


def _ms(seconds: float) -> int:
    return max(1, round(seconds * 1000))


def _strange() -> EngineProtocolError:
    return EngineProtocolError("The session store answered something that is not a value.", engine="store")
