"""Two servers around one real Valkey: what a cut-off client sends again is carried out once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.app.raw_client import calling, history, send, until
from tests.app.running import NOWHERE, RunningApp, running, scripted
from tests.services import ValkeyServer
from websockets.asyncio.client import ClientConnection

pytestmark = [pytest.mark.real, pytest.mark.slow]

TEXT = "Tell me everything there is to know about the sea and the ships upon it."
ITEM = {"id": "item_typed", "type": "message", "role": "user", "content": [{"type": "input_text", "text": TEXT}]}
CREATE = {"type": "conversation.item.create", "event_id": "e1", "item": ITEM}
RESPOND = {"type": "response.create", "event_id": "e2"}
SECRETS = "/v1/realtime/client_secrets"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def servers(valkey_server: ValkeyServer) -> Iterator[tuple[RunningApp, RunningApp]]:
    settings = scripted(store=valkey_server.url)
    with running(settings) as first, running(settings) as second:
        yield first, second
        assert first.failures() == second.failures() == []


async def session_of(connection: ClientConnection) -> str:
    session_id: str = (await until(connection, "session.created"))["session"]["id"]
    return session_id


async def cut_off_in_the_middle_of_an_answer(server: RunningApp) -> tuple[str, dict[str, Any]]:
    """The session, and the answer's `response.created`."""
    async with calling(server.socket_url) as connection:
        session_id = await session_of(connection)
        await send(connection, CREATE, RESPOND)
        created = await until(connection, "response.created")
        await until(connection, "duolog.speech.started")
        connection.transport.abort()
    await server.until_no_call()
    return session_id, created


@pytest.mark.parametrize("at", [0, 1], ids=["the same server", "another server"])
async def test_cut_off_in_the_middle_of_an_answer(servers: tuple[RunningApp, RunningApp], at: int) -> None:
    session_id, created = await cut_off_in_the_middle_of_an_answer(servers[0])
    async with calling(servers[at].socket_url, session=session_id) as connection:
        assert await session_of(connection) == session_id
        await send(connection, CREATE, RESPOND)
        assert (await until(connection, "conversation.item.added"))["item"]["id"] == "item_typed"
        again = await until(connection, "response.created")
        assert again["response"]["id"] == created["response"]["id"]
        done = (await until(connection, "response.done"))["response"]
        assert (done["id"], done["status"]) == (created["response"]["id"], "cancelled")
        await send(connection, {**RESPOND, "event_id": "e3"})
        assert (await until(connection, "response.done"))["response"]["status"] == "completed"
    said = await history(servers[1 - at].socket_url, session_id)
    assert [role for role, _ in said].count("user") == 1
    assert said[0] == ("user", TEXT)


async def test_a_client_secret_asked_for_twice(servers: tuple[RunningApp, RunningApp]) -> None:
    given = []
    for server in servers:
        async with httpx.AsyncClient(base_url=server.url) as client:
            given.append((await client.post(SECRETS, headers={"idempotency-key": "twice"})).json())
    assert given[0] == given[1]


async def test_without_redis_a_resumed_call_goes_on() -> None:
    with running(scripted(store=NOWHERE)) as server:
        session_id, created = await cut_off_in_the_middle_of_an_answer(server)
        async with calling(server.socket_url, session=session_id) as connection:
            assert await session_of(connection) == session_id
            await send(connection, CREATE, RESPOND)
            assert (await until(connection, "response.done"))["response"]["id"] == created["response"]["id"]
            await send(connection, {"type": "response.create", "event_id": "e3"})
            assert (await until(connection, "response.done"))["response"]["status"] == "completed"
        assert server.failures() == []


async def test_redis_dies_between_the_two(tmp_path: Path) -> None:
    valkey = ValkeyServer(tmp_path)
    valkey.start()
    with running(scripted(store=valkey.url)) as server:
        session_id, _ = await cut_off_in_the_middle_of_an_answer(server)
        async with calling(server.socket_url, session=session_id) as connection:
            await session_of(connection)
            with valkey.paused():
                await send(connection, {**CREATE, "event_id": "e4", "item": {**ITEM, "id": "item_new"}})
                await until(connection, "conversation.item.added")
                await send(connection, {**RESPOND, "event_id": "e5"})
                assert (await until(connection, "response.done"))["response"]["status"] == "completed"
        assert server.failures() == []
    valkey.stop()
