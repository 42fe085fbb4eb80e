"""The newest official SDK against a real server on the loopback, with a scripted call behind it."""

from __future__ import annotations

import base64
import socket
import struct
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
import uvicorn
import websockets
from openai import AsyncOpenAI
from openai.resources.realtime.realtime import AsyncRealtimeConnection
from tests.realtime.fake_app import FakeHouse
from tests.realtime.fake_call import ANSWER, AUDIO, FakeCall
from websockets.asyncio.client import ClientConnection

from duolog.realtime.drain import Drain
from duolog.realtime.ports import WireLimits
from duolog.realtime.routes import build_app
from duolog.realtime.server import server_config
from duolog.session.events import AudioDelta, SpeechStarted

pytestmark = [pytest.mark.real, pytest.mark.slow]

SPEECH = base64.b64encode(bytes(4_800)).decode()


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@asynccontextmanager
async def serving(house: FakeHouse, **ports: Any) -> AsyncGenerator[str, None]:
    """A server on a free port; gives `host:port`. At its end no connection is left."""
    listener = socket.create_server(("127.0.0.1", 0))
    address = f"127.0.0.1:{listener.getsockname()[1]}"
    made = house.ports(**ports)
    server = uvicorn.Server(server_config(build_app(made), made.limits, host="127.0.0.1", port=0))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: server.serve(sockets=[listener]))
        while not server.started:  # noqa: ASYNC110 - rejected: uvicorn offers a flag and no event
            await anyio.sleep(0.01)
        yield address
        while server.server_state.connections:  # noqa: ASYNC110 - rejected: as above
            await anyio.sleep(0.01)
        server.should_exit = True


@asynccontextmanager
async def sdk(house: FakeHouse, model: str = "ava", **ports: Any) -> AsyncGenerator[AsyncRealtimeConnection, None]:
    async with (
        serving(house, **ports) as address,
        AsyncOpenAI(base_url=f"http://{address}/v1", api_key="sk-test") as client,
        client.realtime.connect(model=model) as connection,
    ):
        yield connection


async def until(connection: AsyncRealtimeConnection, kind: str) -> Any:
    """The next event of the kind; fails on an error event."""
    with anyio.fail_after(10):
        while True:
            event = await connection.recv()
            if event.type == kind:
                return event
            assert event.type != "error", event


async def kinds_until(connection: AsyncRealtimeConnection, kind: str) -> list[str]:
    kinds: list[str] = []
    with anyio.fail_after(10):
        while not kinds or kinds[-1] != kind:
            kinds.append((await connection.recv()).type)
    return kinds


async def test_text_turn(house: FakeHouse) -> None:
    async with sdk(house) as connection:
        created = await until(connection, "session.created")
        assert created.session.audio.output.voice == "joe"
        await connection.session.update(session={"type": "realtime", "output_modalities": ["text"]})
        updated = await until(connection, "session.updated")
        assert updated.session.output_modalities == ["text"]
        await connection.conversation.item.create(
            item={"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello?"}]}
        )
        item = (await until(connection, "conversation.item.done")).item
        assert item.content[0].text == "Hello?"
        await connection.response.create(response={"metadata": {"topic": "greeting"}})
        assert await kinds_until(connection, "response.output_text.done") == [
            "response.created",
            "response.output_item.added",
            "conversation.item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.done",
        ]
        done = (await until(connection, "response.done")).response
        assert done.status == "completed"
        assert done.metadata == {"topic": "greeting"}
        assert done.output[0].content[0].text == ANSWER
        assert done.usage.input_token_details.cached_tokens == 32


async def test_audio_turn(house: FakeHouse) -> None:
    async with sdk(house) as connection:
        await until(connection, "session.created")
        await connection.session.update(session={"type": "realtime", "audio": {"input": {"turn_detection": None}}})
        await connection.input_audio_buffer.append(audio=SPEECH)
        await connection.input_audio_buffer.commit()
        heard = await until(connection, "conversation.item.input_audio_transcription.completed")
        assert heard.transcript == "What time is it?"
        await connection.response.create()
        delta = await until(connection, "response.output_audio.delta")
        assert base64.b64decode(delta.delta) == AUDIO.tobytes()
        assert await kinds_until(connection, "response.done") == [
            "response.output_audio.done",
            "response.output_audio_transcript.done",
            "response.content_part.done",
            "conversation.item.done",
            "response.output_item.done",
            "response.done",
        ]


async def test_cancel_and_truncate(house: FakeHouse) -> None:
    house.make_call = lambda config: FakeCall(config, hold_responses=True)
    async with sdk(house) as connection:
        await connection.response.create()
        delta = await until(connection, "response.output_audio.delta")
        await connection.response.cancel(response_id=delta.response_id)
        done = (await until(connection, "response.done")).response
        assert done.status == "cancelled"
        assert done.status_details.reason == "client_cancelled"
        await connection.conversation.item.truncate(item_id=delta.item_id, content_index=0, audio_end_ms=40)
        cut = await until(connection, "conversation.item.truncated")
        assert (cut.item_id, cut.audio_end_ms) == (delta.item_id, 40)


async def test_items_and_errors(house: FakeHouse) -> None:
    async with sdk(house) as connection:
        await connection.conversation.item.create(
            item={
                "id": "mine",
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "Earlier."}],
            }
        )
        assert (await until(connection, "conversation.item.added")).item.id == "mine"
        await connection.conversation.item.retrieve(item_id="mine")
        assert (await until(connection, "conversation.item.retrieved")).item.content[0].text == "Earlier."
        await connection.conversation.item.delete(item_id="mine")
        assert (await until(connection, "conversation.item.deleted")).item_id == "mine"
        await connection.conversation.item.delete(item_id="mine", event_id="again")
        refused: Any = await connection.recv()
        assert (refused.error.code, refused.error.event_id) == ("item_not_found", "again")
        await connection.input_audio_buffer.clear()
        await until(connection, "input_audio_buffer.cleared")


async def test_models_and_client_secrets(house: FakeHouse) -> None:
    async with serving(house, api_keys=("sk-test",)) as address:
        async with AsyncOpenAI(base_url=f"http://{address}/v1", api_key="sk-test") as client:
            assert [model.id async for model in client.models.list()] == ["ava", "bo"]
            secret = await client.realtime.client_secrets.create(session={"type": "realtime", "model": "bo"})
        async with (
            AsyncOpenAI(base_url=f"http://{address}/v1", api_key=secret.value) as client,
            client.realtime.connect(model="bo") as connection,
        ):
            created = await until(connection, "session.created")
            assert created.session.model == "bo"


async def test_a_wrong_key_is_an_http_401(house: FakeHouse) -> None:
    async with (
        serving(house, api_keys=("sk-other",)) as address,
        AsyncOpenAI(base_url=f"http://{address}/v1", api_key="sk-test") as client,
    ):
        with pytest.raises(websockets.InvalidStatus) as caught:
            await client.realtime.connect(model="ava").enter()
    assert caught.value.response.status_code == 401
    assert b"invalid_api_key" in caught.value.response.body


@asynccontextmanager
async def raw(address: str, query: str = "duolog=1") -> AsyncGenerator[ClientConnection, None]:
    async with websockets.connect(f"ws://{address}/v1/realtime?{query}") as connection:
        yield connection


async def test_binary_speech_reaches_an_extension_client(house: FakeHouse) -> None:
    async with serving(house) as address, raw(address) as connection:
        await connection.send('{"type":"response.create"}')
        with anyio.fail_after(10):
            while not isinstance(frame := await connection.recv(), bytes):
                pass
    assert struct.unpack_from("<BBHII", frame) == (2, 0, 0, 1, 0)
    assert frame[12:] == AUDIO.tobytes()


async def test_a_far_too_long_frame_closes_the_connection_and_ends_the_call(house: FakeHouse) -> None:
    limits = WireLimits(max_message_bytes=1_000)
    async with serving(house, limits=limits) as address, raw(address) as connection:
        await connection.recv()
        await connection.send("x" * 10_000)
        with anyio.fail_after(10):
            await connection.wait_closed()
        assert connection.close_code == 1009
        await _until_idle(house)


async def test_a_client_that_vanishes_ends_the_call(house: FakeHouse) -> None:
    async with serving(house) as address, raw(address) as connection:
        await connection.recv()
        connection.transport.abort()
        await _until_idle(house)


async def test_a_client_that_never_reads_is_cut(house: FakeHouse) -> None:
    limits = WireLimits(send_timeout_s=0.2, close_timeout_s=0.1)
    with anyio.fail_after(10):
        async with serving(house, limits=limits) as address:
            connection = await websockets.connect(f"ws://{address}/v1/realtime?duolog=1")
            await connection.recv()
            connection.transport.pause_reading()
            second = AUDIO.repeat(10)
            house.calls[0].say(*(AudioDelta("r", "i", 1, n * 24_000, second, 24_000) for n in range(400)))
            await _until_idle(house)
            assert house.calls[0].unsent > 0
    connection.transport.abort()
    await connection.wait_closed()


async def test_the_servers_end_says_goodbye(house: FakeHouse) -> None:
    drain = Drain()
    async with serving(house, drain=drain) as address, raw(address) as connection:
        await connection.recv()
        house.calls[0].say(SpeechStarted("item_1", 0))
        drain.begin("The server restarts; call again.")
        with anyio.fail_after(10):
            await drain.wait_idle()
            await connection.wait_closed()
        assert (connection.close_code, connection.close_reason) == (1012, "The server restarts; call again.")


async def _until_idle(house: FakeHouse) -> None:
    with anyio.fail_after(10):
        await house.closed.wait()
    assert house.running == 0
