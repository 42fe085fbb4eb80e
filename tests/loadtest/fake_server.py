"""A small server of our wire for the caller's tests: hears when the caller falls silent and answers with a tone."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from http import HTTPStatus

import numpy as np
from numpy.typing import NDArray
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from duolog.loadtest.wire_text import KIND_SPEECH, SPEECH_HEADER

RATE_HZ = 24_000
TRANSCRIPT = "how are you"
ANSWER = "I am very well, thank you."
SILENT_FRAMES = 5
"""100 ms of silence end a turn here."""


class Manner(StrEnum):
    """How the server behaves."""

    ANSWERS = "answers"
    FLUSHES = "flushes"
    """Interrupts its own answer, then gives another one."""
    KEEPS_SILENT = "keeps silent"
    HANGS_UP = "hangs up"
    FAILS = "fails"
    REFUSES = "refuses"
    """Before the socket is open."""
    WANTS_KEY = "wants key"
    """Another than it was given."""
    DECLINES = "declines"
    """With an error event, then hangs up."""
    TALKS_NONSENSE = "talks nonsense"
    SAYS_NOTHING = "says nothing"


@dataclass
class FakeServer:
    manner: Manner
    url: str = ""
    query: str = ""
    sequences: list[int] = field(default_factory=list)
    events: list[dict[str, object]] = field(default_factory=list)

    def of_type(self, kind: str) -> list[dict[str, object]]:
        return [event for event in self.events if event["type"] == kind]


@asynccontextmanager
async def fake_server(manner: Manner) -> AsyncIterator[FakeServer]:
    server = FakeServer(manner)

    async def handle(connection: ServerConnection) -> None:
        server.query = connection.request.path if connection.request else ""
        await FakeCall(connection, server).run()

    def refuse(connection: ServerConnection, request: Request) -> Response | None:
        if manner is Manner.WANTS_KEY:
            wrong = {"error": {"code": "invalid_api_key", "message": "The API key is missing or wrong."}}
            return connection.respond(HTTPStatus.UNAUTHORIZED, json.dumps(wrong))
        if manner is not Manner.REFUSES:
            return None
        return connection.respond(HTTPStatus.SERVICE_UNAVAILABLE, "All lines are busy; try again in 5 s.")

    async with serve(handle, "127.0.0.1", 0, process_request=refuse, compression=None) as listening:
        port = next(iter(listening.sockets)).getsockname()[1]
        server.url = f"ws://127.0.0.1:{port}"
        yield server


class FakeCall:
    def __init__(self, connection: ServerConnection, server: FakeServer) -> None:
        self._connection = connection
        self._server = server
        self._generation = 0
        self._heard_frames = 0
        self._quiet_frames = 0
        self._voice_ended_at = 0

    async def run(self) -> None:
        if self._server.manner is Manner.SAYS_NOTHING:
            await self._connection.wait_closed()
            return
        if self._server.manner is Manner.DECLINES:
            await self._send("error", error={"code": "session_limit_reached", "message": "All lines are busy."})
            return
        await self._send("session.created", session={"id": "sess_1"})
        rates = {"input_rate_hz": 16_000, "output_rate_hz": RATE_HZ}
        await self._send("duolog.session", resumed=False, persona="ava", **rates)
        try:
            async for message in self._connection:
                await (self._frame(message) if isinstance(message, bytes) else self._event(message))
        except ConnectionClosed:
            return

    async def _event(self, text: str) -> None:
        event = json.loads(text)
        self._server.events.append(event)
        if event["type"] == "response.create":
            await self._answer()

    async def _frame(self, frame: bytes) -> None:
        self._server.sequences.append(int.from_bytes(frame[2:4], "little"))
        loud = bool(np.abs(np.frombuffer(frame, dtype="<i2", offset=4).astype(np.int32)).max() > 1_000)
        self._heard_frames += 1
        if loud:
            self._quiet_frames, self._voice_ended_at = 0, self._heard_frames * 320 - 1
        elif self._voice_ended_at:
            self._quiet_frames += 1
        if self._quiet_frames == SILENT_FRAMES and self._voice_ended_at:
            await self._turn_over()
            self._voice_ended_at = self._quiet_frames = 0

    async def _turn_over(self) -> None:
        match self._server.manner:
            case Manner.KEEPS_SILENT:
                await self._send("error", error={"message": "The recognizer is tired."})
            case Manner.HANGS_UP:
                await self._connection.close(1011, "out of order")
            case Manner.TALKS_NONSENSE:
                await self._connection.send("[]")
            case Manner.FAILS:
                await self._send("response.created", response={"id": "resp_1"})
                failed = {"status": "failed", "status_details": {"error": {"message": "The model is away."}}}
                await self._send("response.done", response={"id": "resp_1", **failed})
            case _:
                await self._hear()
                await self._answer()

    async def _hear(self) -> None:
        prefix = "conversation.item.input_audio_transcription"
        await self._send("input_audio_buffer.speech_stopped", audio_end_ms=0, item_id="item_1")
        await self._send(f"{prefix}.delta", item_id="item_1", delta="how are")
        await self._send(f"{prefix}.completed", item_id="item_1", transcript=TRANSCRIPT)

    async def _answer(self) -> None:
        if self._server.manner is Manner.FLUSHES:
            first = await self._speak(seconds=30.0)
            await self._send("duolog.flush", generation=self._generation + 1)
            await self._done(first, "cancelled")
        await self._done(await self._speak(seconds=0.2), "completed")

    async def _speak(self, *, seconds: float) -> str:
        self._generation += 1
        response_id = f"resp_{self._generation}"
        await self._send("response.created", response={"id": response_id})
        about = {"response_id": response_id, "item_id": "item_2", "generation": self._generation}
        await self._send("duolog.speech.started", sample_rate_hz=RATE_HZ, **about)
        await self._send("response.output_audio_transcript.delta", delta=ANSWER, **about)
        tone = _tone(seconds)
        for start in range(0, len(tone), RATE_HZ):
            header = SPEECH_HEADER.pack(KIND_SPEECH, 0, 0, self._generation, start)
            await self._connection.send(header + tone[start : start + RATE_HZ].tobytes())
        marks = {"endpoint_ms": 120.0, "transcript_ms": 60.0, "first_token_ms": 80.0, "first_audio_sent_ms": 125.0}
        heard = {"speech_end_sample": self._voice_ended_at, "silence_wait_ms": 100}
        await self._send("duolog.turn.timings", **about, **marks, **heard)
        return response_id

    async def _done(self, response_id: str, status: str) -> None:
        await self._send("response.done", response={"id": response_id, "status": status})

    async def _send(self, kind: str, **fields: object) -> None:
        await self._connection.send(json.dumps({"type": kind, **fields}))


def _tone(seconds: float) -> NDArray[np.int16]:
    times = np.arange(int(seconds * RATE_HZ)) / RATE_HZ
    quiet_start = np.where(times < 0.01, 0.0, 8_000.0)
    return np.asarray(quiet_start * np.sin(2 * np.pi * 440 * times), dtype=np.int16)
