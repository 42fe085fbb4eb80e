"""An application around scripted calls, and a client that speaks ASGI to it without a socket."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
from starlette.types import ASGIApp, Message
from tests.realtime.fake_call import CONFIG, FakeCall

from duolog.ports.errors import Overloaded
from duolog.realtime.ports import AppPorts, ClientOptions, PartHealth, PersonaSummary, WireLimits
from duolog.session.config import SessionConfig

PERSONAS = (
    PersonaSummary("ava", "Ava", "Friendly.", ("en",), "joe", "Hi, I am Ava."),
    PersonaSummary("bo", "Bo", "Terse.", ("en", "zh"), "joe", "Yes?"),
)


class FixedClock:
    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self.now = now

    def unix_time(self) -> float:
        return self.now


class FakeHouse:
    """Opens scripted calls and remembers what was asked for."""

    def __init__(self, make_call: Callable[[SessionConfig], FakeCall] = FakeCall, max_calls: int = 8) -> None:
        self.make_call = make_call
        self.max_calls = max_calls
        self.opened: list[tuple[str | None, str | None, ClientOptions]] = []
        self.calls: list[FakeCall] = []
        self.running = 0
        self.closed = anyio.Event()
        """Set when a call has ended."""
        self.parts = {"llm": PartHealth(True, "answers")}

    @asynccontextmanager
    async def open_call(
        self, persona: str | None, resume: str | None, options: ClientOptions
    ) -> AsyncGenerator[FakeCall, None]:
        if self.running >= self.max_calls:
            raise Overloaded(f"All {self.max_calls} calls are taken.", retry_after_s=7)
        self.opened.append((persona, resume, options))
        call = self.make_call(_config(persona, options))
        self.calls.append(call)
        self.running += 1
        try:
            yield call
        finally:
            self.running -= 1
            self.closed.set()

    def ports(self, web_dir: Path = Path("absent"), **changes: Any) -> AppPorts:
        values: dict[str, Any] = {
            "open_call": self.open_call,
            "personas": lambda: PERSONAS,
            "default_persona": "ava",
            "voices": lambda: ("joe", "amy"),
            "health": lambda: self.parts,
            "metrics_text": lambda: b"calls_open 0\n",
            "web_dir": web_dir,
            "clock": FixedClock(),
            "limits": WireLimits(),
        }
        return AppPorts(**(values | changes))


def _config(persona: str | None, options: ClientOptions) -> SessionConfig:
    return replace(
        CONFIG, persona=persona or "ava", input_rate_hz=options.input_rate_hz, output_rate_hz=options.output_rate_hz
    )


class FakeClient:
    """One WebSocket client over ASGI."""

    def __init__(
        self,
        app: ASGIApp,
        path: str = "/v1/realtime",
        query: str = "model=ava",
        headers: dict[str, str] | None = None,
        subprotocols: tuple[str, ...] = (),
    ) -> None:
        self._app = app
        self._scope: dict[str, Any] = {
            "type": "websocket",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1",
            "scheme": "ws",
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": query.encode(),
            "headers": [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()],
            "subprotocols": list(subprotocols),
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
            "state": {},
            "extensions": {"websocket.http.response": {}},
        }
        self._to_server, self._server_inbox = anyio.create_memory_object_stream[Message](1_000)
        self._server_outbox, self.inbox = anyio.create_memory_object_stream[Message](10_000)
        self._to_server.send_nowait({"type": "websocket.connect"})
        self.reading = anyio.Event()
        """Unset by `stop_reading`: the server's sends then wait."""
        self.reading.set()
        self.accepted: Message | None = None
        self._broken = False

    async def run(self) -> None:
        """The server's side of the connection, to its end."""
        async with self._to_server, self._server_inbox, self._server_outbox:
            await self._app(self._scope, self._server_inbox.receive, self._take)

    async def _take(self, message: Message) -> None:
        await self.reading.wait()
        if self._broken:
            raise OSError("connection reset")
        await self._server_outbox.send(message)

    def stop_reading(self) -> None:
        self.reading = anyio.Event()

    def break_socket(self) -> None:
        self._broken = True

    async def send(self, event: dict[str, Any] | str) -> None:
        text = event if isinstance(event, str) else json.dumps(event)
        await self._to_server.send({"type": "websocket.receive", "text": text})

    async def send_bytes(self, data: bytes) -> None:
        await self._to_server.send({"type": "websocket.receive", "bytes": data})

    async def vanish(self) -> None:
        await self._to_server.send({"type": "websocket.disconnect", "code": 1006})

    async def message(self) -> Message:
        return await self.inbox.receive()

    async def event(self) -> dict[str, Any]:
        """The next text frame; binary frames are skipped."""
        while True:
            message = await self.message()
            if message["type"] == "websocket.accept":
                self.accepted = message
            elif message["type"] == "websocket.send" and message.get("text") is not None:
                event: dict[str, Any] = json.loads(message["text"])
                return event
            elif message["type"] != "websocket.send":
                raise AssertionError(f"the server ended the connection: {message}")

    async def until(self, event_type: str) -> dict[str, Any]:
        while True:
            event = await self.event()
            if event["type"] == event_type:
                return event

    async def close_frame(self) -> Message:
        while True:
            message = await self.message()
            if message["type"] == "websocket.close":
                return message
