"""uvicorn, set up for calls: frame limits, keep-alive, and an end for clients that do not read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from duolog.realtime.ports import WireLimits

HARD_LIMIT_FACTOR = 2
"""Messages between the limit and this many times it are refused with an error event; longer ones end the connection."""


class AbortingWebSocketProtocol(WebSocketsSansIOProtocol):
    """Cuts the connection of a client that does not read, once its call is over.

    Closing a transport waits until its buffer has been read, which such a client never does: socket, buffer and the
    server's shutdown would wait for ever.
    """

    abort_after_s = 10.0
    """After the end of the call; a client that reads has closed by then."""

    def on_task_complete(self, task: Any) -> None:
        super().on_task_complete(task)
        self.loop.call_later(self.abort_after_s, self._abort)

    def _abort(self) -> None:
        if not self.disconnected:
            self.transport.abort()


def server_config(
    app: ASGIApp, limits: WireLimits, *, host: str, port: int, tls_cert: Path | None = None, tls_key: Path | None = None
) -> uvicorn.Config:
    """Logging is the application's own; audio does not compress, so frames are not deflated."""
    return uvicorn.Config(
        app,
        host=host,
        port=port,
        ssl_certfile=tls_cert,
        ssl_keyfile=tls_key,
        ws=_protocol(limits),
        ws_max_size=limits.max_message_bytes * HARD_LIMIT_FACTOR,
        ws_ping_interval=limits.ping_interval_s,
        ws_ping_timeout=limits.ping_interval_s,
        ws_per_message_deflate=False,
        timeout_graceful_shutdown=int(limits.send_timeout_s + limits.close_timeout_s),
        log_config=None,
        access_log=False,
        server_header=False,
    )


def _protocol(limits: WireLimits) -> type[AbortingWebSocketProtocol]:
    class Protocol(AbortingWebSocketProtocol):
        abort_after_s = limits.close_timeout_s

    return Protocol
