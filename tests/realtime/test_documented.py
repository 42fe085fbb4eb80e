"""docs/wire.md and docs/extensions.md name every message and route there is."""

from __future__ import annotations

from pathlib import Path
from typing import get_args, get_type_hints

import pytest
from starlette.routing import Route, WebSocketRoute
from tests.realtime.fake_app import FakeHouse

from duolog.realtime.parsing import CLIENT_EVENT_TYPES
from duolog.realtime.routes import build_app
from duolog.realtime.server_messages import ServerMessage

pytestmark = pytest.mark.pure

DOCS = Path(__file__).resolve().parents[2] / "docs"
TEXT = (DOCS / "wire.md").read_text() + (DOCS / "extensions.md").read_text()
SERVER_TYPES = [kind for message in get_args(ServerMessage) for kind in get_args(get_type_hints(message)["type"])]


@pytest.mark.parametrize("kind", [*CLIENT_EVENT_TYPES, *SERVER_TYPES])
def test_every_message_is_documented(kind: str) -> None:
    assert f"`{kind}`" in TEXT


def test_every_route_is_documented() -> None:
    routes = build_app(FakeHouse().ports()).routes
    paths = [route.path for route in routes if isinstance(route, Route | WebSocketRoute)]
    assert [path for path in paths if f"`{path}`" not in TEXT] == []


def test_every_extension_has_its_prefix() -> None:
    ours = {kind for kind in [*CLIENT_EVENT_TYPES, *SERVER_TYPES] if kind.startswith("duolog.")}
    assert {kind for kind in ours if f"`{kind}`" not in (DOCS / "extensions.md").read_text()} == set()
