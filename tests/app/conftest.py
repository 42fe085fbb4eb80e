"""The application with scripted engines, once for each module; real sockets, so real time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.app.running import RunningApp, running, scripted
from tests.services import ValkeyServer


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def server(valkey_server: ValkeyServer) -> Iterator[RunningApp]:
    """Scripted engines, a real store. What it logs as an error fails the module."""
    with running(scripted(store=valkey_server.url)) as application:
        yield application
        assert application.failures() == []
