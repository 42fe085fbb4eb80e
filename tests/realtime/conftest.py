"""Sessions of the wire run in virtual time, under trio; tests of a real socket choose asyncio themselves."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import anyio
import pytest
import trio.testing
from tests.realtime.fake_app import FakeClient, FakeHouse

from duolog.realtime.routes import build_app

Visit = Callable[..., AbstractAsyncContextManager[FakeClient]]


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "trio", {"clock": trio.testing.MockClock(autojump_threshold=0)}


@pytest.fixture
def house() -> FakeHouse:
    return FakeHouse()


@pytest.fixture
def visit(house: FakeHouse) -> Visit:
    """`async with visit(query=…, headers=…, ports=…)`: a client whose connection ends with the block at the latest."""

    @asynccontextmanager
    async def connected(*, ports: dict[str, Any] | None = None, **client: Any) -> AsyncGenerator[FakeClient, None]:
        guest = FakeClient(build_app(house.ports(**(ports or {}))), **client)
        with guest.inbox:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(guest.run)
                yield guest
                await _leave(guest.vanish)

    return connected


async def _leave(vanish: Callable[[], Awaitable[None]]) -> None:
    try:
        await vanish()
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        return
