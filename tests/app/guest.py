"""A caller with the official SDK, who keeps everything it was sent and checks it at the end."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import numpy as np
from numpy.typing import NDArray
from openai import AsyncOpenAI
from openai.resources.realtime.realtime import AsyncRealtimeConnection
from tests.app.running import RunningApp
from tests.app.wire_order import Event, check_order, kinds

RATE_HZ = 24_000
PATIENCE_S = 10.0


class Guest:
    """One connection of the SDK."""

    def __init__(self, connection: AsyncRealtimeConnection) -> None:
        self.wire = connection
        self.events: list[Event] = []

    async def next(self) -> Any:
        """The next event, as the SDK's type."""
        with anyio.fail_after(PATIENCE_S):
            raw = await self.wire.recv_bytes()
        self.events.append(json.loads(raw))
        return self.wire.parse_event(raw)

    async def until(self, kind: str, *, error: bool = False) -> Any:
        """The next event of a kind; fails on an error event unless one is expected."""
        while True:
            event = await self.next()
            if event.type == kind:
                return event
            assert error or event.type != "error", event

    async def error(self) -> Any:
        return (await self.until("error", error=True)).error

    async def speak(self, samples: NDArray[np.int16]) -> None:
        """All at once, in appends of 100 ms."""
        for start in range(0, len(samples), RATE_HZ // 10):
            chunk = samples[start : start + RATE_HZ // 10].astype("<i2").tobytes()
            await self.wire.input_audio_buffer.append(audio=base64.b64encode(chunk).decode())

    async def type(self, text: str, **response: Any) -> None:
        """A typed message, and the request to answer it."""
        await self.wire.conversation.item.create(
            item={"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
        )
        await self.wire.response.create(response=response)  # type: ignore[arg-type]

    def of(self, kind: str) -> list[Event]:
        return [event for event in self.events if event["type"] == kind]

    def audio(self) -> NDArray[np.int16]:
        """All sound of all answers."""
        sound = b"".join(base64.b64decode(event["delta"]) for event in self.of("response.output_audio.delta"))
        return np.frombuffer(sound, "<i2")

    def kinds(self) -> list[str]:
        return kinds(self.events)


@asynccontextmanager
async def visiting(server: RunningApp, model: str = "ava", **query: str) -> AsyncGenerator[Guest, None]:
    """A call with the SDK; at its end the order of all its events is checked."""
    async with (
        AsyncOpenAI(base_url=f"{server.url}/v1", api_key="sk-test") as client,
        client.realtime.connect(model=model, extra_query=query) as connection,
    ):
        guest = Guest(connection)
        await guest.until("session.created")
        yield guest
    check_order(guest.events)


def loud(seconds: float) -> NDArray[np.int16]:
    """What the scripted detector takes for a voice."""
    noise = np.random.default_rng(1).standard_normal(int(seconds * RATE_HZ)) * 3_000
    return noise.astype(np.int16)


def quiet(seconds: float) -> NDArray[np.int16]:
    return np.zeros(int(seconds * RATE_HZ), np.int16)


def utterance(seconds: float = 1.0) -> NDArray[np.int16]:
    """A sentence, and silence long enough to end the turn."""
    return np.concatenate([quiet(0.2), loud(seconds), quiet(1.2)])
