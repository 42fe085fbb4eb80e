"""Pins in Redis or Valkey: `pin:{session}` is a hash of replica, epoch and what was known of the prompt, with a time to
live. One script claims: whoever comes second learns where the first one's blocks are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from duolog.adapters.redis_store import RedisClient, RedisOptions
from duolog.ports.errors import EngineProtocolError
from duolog.ports.pin_store import PinRecord, Route

CLAIM = """
local live = cjson.decode(ARGV[1])
local answer = {}
for number, key in ipairs(KEYS) do
  local ours = cjson.decode(ARGV[number + 2])
  local theirs = redis.call('HMGET', key, 'replica', 'epoch')
  local holds = theirs[1] and theirs[1] ~= ours.replica and theirs[1] ~= ours.moved_from
    and live[theirs[1]] == theirs[2]
  if holds then
    answer[number] = {theirs[1], theirs[2]}
  else
    redis.call('HSET', key, 'replica', ours.replica, 'epoch', ours.epoch, 'prompt_tokens', ours.prompt_tokens,
      'resident_tokens', ours.resident_tokens, 'tip', ours.tip)
    answer[number] = {ours.replica, ours.epoch}
  end
  redis.call('EXPIRE', key, ARGV[2])
end
return answer
"""


class RedisPinStore:
    """Its own client: pins never wait for sessions."""

    def __init__(self, options: RedisOptions) -> None:
        self._options = options
        self._client = RedisClient(options)

    async def claim(self, records: Sequence[PinRecord], live: Mapping[str, str]) -> list[Route]:
        if not records:
            await self._client.run(self._client.redis.ping())
            return []
        keys = [f"pin:{record.session_id}" for record in records]
        fields = [json.dumps(_fields(record)) for record in records]
        found = await self._client.run(
            self._client.redis.eval(CLAIM, len(keys), *keys, json.dumps(dict(live)), str(self._options.ttl_s), *fields)
        )
        try:
            return [
                Route(record.session_id, replica.decode(), epoch.decode())
                for record, (replica, epoch) in zip(records, found, strict=True)
            ]
        except (TypeError, ValueError, AttributeError) as error:
            raise EngineProtocolError("The session store answered a claim strangely.", engine="store") from error

    async def aclose(self) -> None:
        await self._client.aclose()


def _fields(record: PinRecord) -> dict[str, str]:
    return {
        "replica": record.replica,
        "epoch": record.epoch,
        "moved_from": record.moved_from,
        "prompt_tokens": str(record.prompt_tokens),
        "resident_tokens": str(record.resident_tokens),
        "tip": f"{record.tip:016x}",
    }
