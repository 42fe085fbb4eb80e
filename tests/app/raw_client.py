"""Clients of the bare WebSocket with our extensions: to vanish, to be rude, to look into a session."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
from websockets.asyncio.client import ClientConnection, connect

PATIENCE_S = 10.0


@asynccontextmanager
async def calling(socket_url: str, **query: str) -> AsyncGenerator[ClientConnection, None]:
    """A connection with extensions; speech arrives as binary frames."""
    asked = "&".join(f"{name}={value}" for name, value in ({"duolog": "1"} | query).items())
    async with connect(f"{socket_url}?{asked}", compression=None, max_size=None, proxy=None) as connection:
        yield connection


async def until(connection: ClientConnection, kind: str) -> dict[str, Any]:
    """The next event of a kind."""
    with anyio.fail_after(PATIENCE_S):
        while True:
            message = await connection.recv()
            if isinstance(message, bytes):
                continue
            event: dict[str, Any] = json.loads(message)
            if event["type"] == kind:
                return event


async def send(connection: ClientConnection, *events: dict[str, Any]) -> None:
    for event in events:
        await connection.send(json.dumps(event))


def typed(text: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A message, and the request to answer it."""
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
    return {"type": "conversation.item.create", "item": item}, {"type": "response.create"}


async def talk_and_vanish(socket_url: str) -> str:
    """One typed turn, heard to its end; then the socket breaks. Gives the session's id."""
    async with calling(socket_url) as connection:
        session_id: str = (await until(connection, "session.created"))["session"]["id"]
        await send(connection, *typed("Good morning."))
        done = await until(connection, "duolog.speech.started")
        await until(connection, "response.done")
        report = {"type": "duolog.playout.report", "generation": done["generation"]}
        await send(connection, {**report, "played_samples": 10_000_000, "ended": True})
        await until(connection, "duolog.playout.heard")
        connection.transport.abort()
    return session_id


async def history(socket_url: str, session_id: str) -> list[tuple[str, str]]:
    """Role and text of every item of a session, as a call that resumes it is told."""
    async with calling(socket_url, session=session_id) as connection:
        assert (await until(connection, "session.created"))["session"]["id"] == session_id
        items = []
        with anyio.move_on_after(0.3):
            while True:
                item = (await until(connection, "conversation.item.added"))["item"]
                content = item["content"][0]
                items.append((item["role"], content.get("text") or content.get("transcript") or ""))
        return items
