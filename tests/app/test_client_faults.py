"""Clients that vanish, never read, or are one too many: their call ends, nobody else notices."""

from __future__ import annotations

from collections.abc import Iterator

import anyio
import pytest
from tests.app.guest import loud, visiting
from tests.app.raw_client import calling, history, send, typed, until
from tests.app.running import RunningApp, running, scripted
from tests.services import ValkeyServer
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from duolog.loadtest.wire_text import microphone_frame

pytestmark = [pytest.mark.real, pytest.mark.slow]


@pytest.fixture(scope="module")
def server(valkey_server: ValkeyServer) -> Iterator[RunningApp]:
    """Room for two calls, little patience with those who do not read."""
    with running(scripted(store=valkey_server.url, max_calls=2, send_timeout_s=0.5)) as application:
        yield application
        assert application.failures() == []


async def test_one_that_vanishes_in_mid_word_leaves_its_session(server: RunningApp) -> None:
    async with calling(server.socket_url) as connection:
        session_id = (await until(connection, "session.created"))["session"]["id"]
        await send(connection, *typed("Good morning."))
        await until(connection, "response.done")
        voice = loud(0.4)
        for number in range(len(voice) // 320):
            await connection.send(microphone_frame(number, voice[number * 320 :][:320].tobytes()))
        await until(connection, "input_audio_buffer.speech_started")
        assert await server.metric("duolog_calls_active") == 1
        connection.transport.abort()
    await server.until_no_call()
    assert (await history(server.socket_url, session_id))[0] == ("user", "Good morning.")


async def test_one_that_never_reads_is_cut(server: RunningApp) -> None:
    async with visiting(server) as other:
        async with calling(server.socket_url) as connection:
            await until(connection, "session.created")
            item = {"id": "big", "type": "message", "role": "user"}
            content = [{"type": "input_text", "text": "word " * 6_000}]
            await send(connection, {"type": "conversation.item.create", "item": {**item, "content": content}})
            connection.transport.pause_reading()
            with anyio.move_on_after(10):
                await _ask_for_more_and_more(connection)
            await _until_calls(server, 1)
            connection.transport.abort()
        await other.type("Still there?", output_modalities=["text"])
        assert (await other.until("response.done")).response.status == "completed"
    await server.until_no_call()


async def test_one_too_many_is_told_so_and_the_next_comes_in(server: RunningApp) -> None:
    async with visiting(server), visiting(server):
        async with calling(server.socket_url) as third:
            error = (await until(third, "error"))["error"]
            with pytest.raises(ConnectionClosed):
                await third.recv()
        assert error["code"] == "session_limit_reached"
        assert "All 2 lines of this server are taken" in error["message"]
        assert third.close_code == 1013
    await server.until_no_call()
    async with visiting(server) as guest:
        await guest.type("Hello.", output_modalities=["text"])
        assert (await guest.until("response.done")).response.status == "completed"


async def test_many_calls_that_come_and_go_leave_nothing(server: RunningApp) -> None:
    for number in range(20):
        async with calling(server.socket_url) as connection:
            await until(connection, "session.created")
            await send(connection, *typed("Good morning."))
            if number % 2:
                await until(connection, "duolog.speech.started")
            connection.transport.abort()
        await server.until_no_call()
    assert len(server.tasks()) <= server.idle_tasks + 2


async def _ask_for_more_and_more(connection: ClientConnection) -> None:
    """30 kB for each question, until the server has had enough."""
    try:
        while True:
            await send(connection, {"type": "conversation.item.retrieve", "item_id": "big"})
    except ConnectionClosed:
        return


async def _until_calls(server: RunningApp, count: int) -> None:
    with anyio.fail_after(10):
        while await server.metric("duolog_calls_active") != count:  # noqa: ASYNC110 - rejected: it holds elsewhere
            await anyio.sleep(0.05)
