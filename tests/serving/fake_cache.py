"""A store for caches whose faults are scripted, and the worker that talks to it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio

from duolog.ports.errors import EngineUnavailable
from duolog.serving.store_worker import StoreWorker


@dataclass
class FakeByteCache:
    """Takes `delay_s` for a command; fails while `down`. What it holds is there to be looked at and spoilt."""

    delay_s: float = 0.001
    down: bool = False
    held: dict[str, bytes] = field(default_factory=dict)
    ttls: dict[str, float] = field(default_factory=dict)
    commands: int = 0

    async def get(self, key: str) -> bytes | None:
        await self._work()
        return self.held.get(key)

    async def put(self, key: str, value: bytes, ttl_s: float) -> None:
        await self._work()
        self.held[key], self.ttls[key] = value, ttl_s

    async def delete(self, key: str) -> None:
        await self._work()
        self.held.pop(key, None)

    async def aclose(self) -> None: ...

    async def _work(self) -> None:
        self.commands += 1
        await anyio.sleep(self.delay_s)
        if self.down:
            raise EngineUnavailable("down", engine="store")


@asynccontextmanager
async def working(tasks: int = 2) -> AsyncGenerator[StoreWorker, None]:
    worker = StoreWorker("cache", tasks=tasks)
    async with anyio.create_task_group() as service:
        service.start_soon(worker.run)
        yield worker
        service.cancel_scope.cancel()


async def settle() -> None:
    """Let what was submitted be done."""
    await anyio.sleep(0.05)
