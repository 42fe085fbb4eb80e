"""The sending half of the caller's socket. Once the connection has ended it sends nothing and raises nothing: the
receiving half tells the caller why."""

from __future__ import annotations

import json
from collections.abc import Mapping

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed


class WireWriter:
    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection

    async def send_event(self, event: Mapping[str, object]) -> None:
        await self._send(json.dumps(event))

    async def send_bytes(self, frame: bytes) -> None:
        await self._send(frame)

    async def _send(self, message: str | bytes) -> None:
        try:
            await self._connection.send(message)
        except ConnectionClosed:
            return
