"""The page's files, and the headers that keep a browser from doing anything the page does not need."""

from __future__ import annotations

import mimetypes
import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MEDIA_TYPES: Mapping[str, str] = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".webp": "image/webp",
    ".woff2": "font/woff2",
    ".wasm": "application/wasm",
    ".webmanifest": "application/manifest+json",
    ".txt": "text/plain; charset=utf-8",
}
"""What is served, and as what. A module or a worklet of another type is refused by browsers."""

_PRIVATE_FOLDERS = {"node_modules", "test", "tests", "types"}
_HOST = re.compile(r"^[A-Za-z0-9.\-\[\]:]+$")


class PageFiles(StaticFiles):
    """Files of the page: only known types, nothing of its tools and tests, always revalidated."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory=directory, html=True, check_dir=False)
        mimetypes.init()  # reads the system's tables: now, not at the first request in the event loop

    async def get_response(self, path: str, scope: Scope) -> Response:
        if not _is_public(PurePosixPath(path)):
            raise HTTPException(404)
        response = await super().get_response(path, scope)
        suffix = PurePosixPath(path).suffix or ".html"
        if response.status_code == 200:
            response.headers["content-type"] = MEDIA_TYPES[suffix]
        response.headers["cache-control"] = "no-cache"
        return response


def _is_public(path: PurePosixPath) -> bool:
    if any(part.startswith(".") or part in _PRIVATE_FOLDERS for part in path.parts):
        return False
    if len(path.parts) <= 1 and path.suffix == ".json":
        return False
    return path.suffix == "" or path.suffix in MEDIA_TYPES


class SecurityHeaders:
    """Middleware: the same strict headers on every HTTP answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        added = security_headers(dict(scope["headers"]).get(b"host", b"").decode("latin-1"))

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in added.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, send_with_headers)


def security_headers(host: str) -> dict[str, str]:
    """`host`: the request's Host. Older Safari does not count a same-origin WebSocket as 'self', so it is named."""
    sockets = f" ws://{host} wss://{host}" if _HOST.match(host) else ""
    policy = (
        "default-src 'none'; script-src 'self'; worker-src 'self'; style-src 'self'; img-src 'self' data:; "
        f"font-src 'self'; media-src 'self' blob:; manifest-src 'self'; connect-src 'self'{sockets}; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return {
        "content-security-policy": policy,
        "permissions-policy": "microphone=(self), camera=(), geolocation=()",
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
        "cache-control": "no-store",
    }
