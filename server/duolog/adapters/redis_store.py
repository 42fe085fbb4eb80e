"""Sessions in Redis or Valkey: `session:{id}` holds one JSON document with a time to live."""

from __future__ import annotations

import json
from collections.abc import Awaitable
from dataclasses import asdict, dataclass
from typing import TypeVar
from urllib.parse import urlsplit

import anyio
from redis import exceptions as redis_errors
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from duolog.ports.errors import EngineError, EngineProtocolError, EngineRejected, EngineTimeout, EngineUnavailable
from duolog.ports.store import StoredSession

T = TypeVar("T")

_ERRORS: tuple[tuple[type[Exception], type[EngineError], str], ...] = (
    (redis_errors.AuthenticationError, EngineRejected, "refused the password; check redis.url"),
    (redis_errors.BusyLoadingError, EngineUnavailable, "is still loading its data"),
    (redis_errors.ReadOnlyError, EngineUnavailable, "is read-only now; point redis.url at the primary"),
    (redis_errors.TimeoutError, EngineTimeout, "did not answer in time"),
    (redis_errors.ConnectionError, EngineUnavailable, "is not reachable; start it or check redis.url"),
    (OSError, EngineUnavailable, "is not reachable; start it or check redis.url"),
    (redis_errors.InvalidResponse, EngineProtocolError, "answered something that is not Redis"),
    (redis_errors.ResponseError, EngineRejected, "refused the command"),
    (redis_errors.RedisError, EngineUnavailable, "failed"),
)
"""The first class that fits says what the error is for us."""


@dataclass(frozen=True, slots=True)
class RedisOptions:
    url: str
    """`redis://`, `rediss://` or `unix://`."""
    ttl_s: int = 3600
    """A session that was not saved for so long is forgotten."""
    timeout_s: float = 2.0
    """For connecting, and for each command."""
    max_connections: int = 16


class RedisClient:
    """One client with a bounded pool. Retries are the caller's decision, so the client makes none."""

    def __init__(self, options: RedisOptions) -> None:
        self._options = options
        self.redis: Redis = Redis.from_url(
            options.url,
            socket_timeout=options.timeout_s,
            socket_connect_timeout=options.timeout_s,
            max_connections=options.max_connections,
            retry=Retry(NoBackoff(), 0),
            health_check_interval=15,
        )

    async def aclose(self) -> None:
        with anyio.move_on_after(self._options.timeout_s, shield=True):
            await self.redis.aclose()

    async def run(self, command: Awaitable[T]) -> T:
        """Await one command to its end, cancelled or not: a command cut off leaves its connection out of step.

        Bounded by the timeout; raises EngineError.
        """
        try:
            with anyio.fail_after(2 * self._options.timeout_s, shield=True):
                return await command
        except TimeoutError as error:
            raise EngineTimeout(self._sentence("did not answer in time"), engine="store") from error
        except (redis_errors.RedisError, OSError) as error:
            raise self._mapped(error) from error

    def _mapped(self, error: Exception) -> EngineError:
        for theirs, ours, what in _ERRORS:
            if isinstance(error, theirs):
                return ours(self._sentence(what), engine="store")
        return EngineUnavailable(self._sentence("failed"), engine="store")

    def _sentence(self, what: str) -> str:
        """Names the server without the password a URL may hold."""
        parts = urlsplit(self._options.url)
        address = f"{parts.hostname}:{parts.port or 6379}" if parts.hostname else parts.path
        return f"The session store at {address} {what}."


class RedisSessionStore:
    """Sessions alone; see RedisClient for how commands are run."""

    def __init__(self, options: RedisOptions) -> None:
        self._options = options
        self._client = RedisClient(options)
        self._redis, self._run = self._client.redis, self._client.run

    async def load(self, session_id: str) -> StoredSession | None:
        document = await self._run(self._redis.get(_key(session_id)))
        return None if document is None else decode(document)

    async def save(self, session: StoredSession) -> None:
        await self._run(self._redis.set(_key(session.session_id), encode(session), ex=self._options.ttl_s))

    async def ping(self) -> None:
        try:
            await self._run(self._redis.ping())
        except EngineTimeout as error:
            raise EngineUnavailable(str(error), engine="store") from error

    async def aclose(self) -> None:
        await self._client.aclose()


def _key(session_id: str) -> str:
    return f"session:{session_id}"


def encode(session: StoredSession) -> str:
    return json.dumps(asdict(session), ensure_ascii=False, separators=(",", ":"))


def decode(document: bytes | str) -> StoredSession:
    """Raises EngineProtocolError where the document is not one of ours."""
    try:
        fields = json.loads(document)
        return StoredSession(
            session_id=str(fields["session_id"]),
            persona=str(fields["persona"]),
            items=tuple(str(item) for item in fields["items"]),
            updated_at=float(fields["updated_at"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise EngineProtocolError("The session store holds a session that cannot be read.", engine="store") from error
