"""Redis gone at the start, or in the middle of a call: calls go on, and are saved when it is back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import redis
from tests.app.guest import Guest, visiting
from tests.app.running import RunningApp, eventually, running, scripted
from tests.services import ValkeyServer

from duolog.processes.probes import answers_http

pytestmark = [pytest.mark.real, pytest.mark.slow]


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[ValkeyServer]:
    server = ValkeyServer(tmp_path)
    server.start()
    yield server
    server.stop()


def stored(valkey: ValkeyServer, session_id: str) -> bytes:
    """The session as it is in the store; empty where it is not."""
    with redis.Redis.from_url(valkey.url) as client:
        document = client.get(f"session:{session_id}")
    return document if isinstance(document, bytes) else b""


async def hello(guest: Guest, text: str = "Hello.") -> None:
    await guest.type(text)
    assert (await guest.until("response.done")).response.status == "completed"


async def test_gone_at_the_start() -> None:
    with running(scripted()) as server:
        async with httpx.AsyncClient(base_url=server.url) as client:
            ready = await client.get("/readyz")
        parts = ready.json()["parts"]
        assert ready.json()["ready"] is True
        assert [name for name, part in parts.items() if not part["ready"]] == ["store"]
        assert "127.0.0.1:9 is not reachable" in parts["store"]["detail"]
        assert await answers_http(f"{server.url}/readyz")() is None, "`duolog up` waits for it"
        async with visiting(server) as guest:
            await hello(guest)
        async with visiting(server, session=guest.events[0]["session"]["id"]) as back:
            await back.until("conversation.item.added")
        assert server.failures() == []


async def test_dies_in_the_middle_of_a_call_and_comes_back(valkey: ValkeyServer) -> None:
    with running(scripted(store=valkey.url)) as server:
        async with visiting(server) as guest:
            session_id = guest.events[0]["session"]["id"]
            await hello(guest)
            await eventually(lambda: b"Hello." in stored(valkey, session_id))
            valkey.stop()
            await hello(guest, "Are you there?")
            valkey.start()
            await eventually(lambda: b"Are you there?" in stored(valkey, session_id))
            await hello(guest, "Good.")
        await eventually(lambda: b"Good." in stored(valkey, session_id))
        assert server.failures() == []


async def test_hangs_in_the_middle_of_a_call(valkey: ValkeyServer) -> None:
    with running(scripted(store=valkey.url)) as server:
        async with visiting(server) as guest:
            with valkey.paused():
                await hello(guest)
            await eventually(lambda: b"Hello." in stored(valkey, guest.events[0]["session"]["id"]))
        assert server.failures() == []


async def test_is_reported_gone_and_back(valkey: ValkeyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("duolog.app.PROBE_S", 0.1)
    with running(scripted(store=valkey.url)) as server:
        await _until_store_is(server, ready=True)
        valkey.stop()
        await _until_store_is(server, ready=False)
        valkey.start()
        await _until_store_is(server, ready=True)


async def _until_store_is(server: RunningApp, *, ready: bool) -> None:
    await eventually(lambda: httpx.get(f"{server.url}/readyz").json()["parts"]["store"]["ready"] is ready)
