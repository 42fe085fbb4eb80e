"""An HTTP server on loopback that answers as an LLM server does, or misbehaves in each way there is."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import anyio
from anyio.abc import SocketAttribute, SocketStream

SSE_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
Manner = Callable[[SocketStream], Awaitable[None]]


def piece(text: str | None = None, finish: str | None = None) -> bytes:
    return event(json.dumps({"choices": [{"delta": {"content": text}, "finish_reason": finish}]}, ensure_ascii=False))


def event(data: str) -> bytes:
    return chunked(f"data: {data}\n\n".encode())


def chunked(body: bytes) -> bytes:
    return f"{len(body):x}\r\n".encode() + body + b"\r\n"


USAGE = event(
    '{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":4}}}'
)
DONE = event("[DONE]")
LAST = chunked(b"")


def answer(status: int, body: str, kind: str = "application/json") -> bytes:
    return f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(body.encode())}\r\n\r\n{body}".encode()


async def says(*parts: bytes | float, stream: SocketStream) -> None:
    """Send the parts; a number is a pause in seconds."""
    for part in parts:
        if isinstance(part, bytes):
            await stream.send(part)
        else:
            await anyio.sleep(part)


@dataclass
class Server:
    """Reads one request for each connection, remembers it, and answers in its manner."""

    manner: Manner
    card: bytes | None = None
    """Answers `GET …/models`, where given."""
    requests: list[tuple[str, dict[str, str], dict[str, Any]]] = field(default_factory=list)
    closed_by_client: anyio.Event = field(default_factory=anyio.Event)
    port: int = 0

    async def handle(self, stream: SocketStream) -> None:
        async with stream:
            try:
                self.requests.append(await self._read(stream))
                if self.card is not None and self.requests[-1][0].startswith("GET "):
                    await stream.send(self.card)
                else:
                    await self.manner(stream)
            except (anyio.BrokenResourceError, anyio.EndOfStream):
                self.closed_by_client.set()

    async def _read(self, stream: SocketStream) -> tuple[str, dict[str, str], dict[str, Any]]:
        received = b""
        while b"\r\n\r\n" not in received:
            received += await stream.receive()
        head, body = received.split(b"\r\n\r\n", 1)
        first, *lines = head.decode().split("\r\n")
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        while len(body) < int(headers.get("content-length", "0")):
            body += await stream.receive()
        return first, headers, json.loads(body) if body else {}


async def streams(*parts: bytes | float | SocketStream) -> None:
    *sent, stream = parts
    assert isinstance(stream, SocketStream)
    await says(*[part for part in sent if not isinstance(part, SocketStream)], stream=stream)


@asynccontextmanager
async def serving(server: Server) -> AsyncIterator[Server]:
    """The server on a free port, until the block ends; afterwards again on the same."""
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=server.port)
    server.port = listener.extra(SocketAttribute.local_port)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, server.handle)
        yield server
        tasks.cancel_scope.cancel()
    await listener.aclose()


def good_answer(*texts: str) -> Manner:
    return partial(streams, SSE_HEAD, *map(piece, texts), piece(None, "stop"), USAGE, DONE, LAST)
