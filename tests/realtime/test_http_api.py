"""The HTTP routes and the page, through the application but without a socket."""

from __future__ import annotations

import mimetypes
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NoReturn

import httpx
import pytest
from openai.types.realtime import ClientSecretCreateResponse
from tests.realtime.fake_app import FakeHouse

from duolog.ports.errors import Overloaded
from duolog.realtime.drain import Drain
from duolog.realtime.page import PageFiles
from duolog.realtime.ports import PartHealth, WireLimits
from duolog.realtime.routes import build_app

pytestmark = pytest.mark.session


@asynccontextmanager
async def http(house: FakeHouse, **ports: Any) -> AsyncGenerator[httpx.AsyncClient, None]:
    transport = httpx.ASGITransport(build_app(house.ports(**ports)))
    async with httpx.AsyncClient(transport=transport, base_url="http://duolog.example") as client:
        yield client


async def test_personas(house: FakeHouse) -> None:
    async with http(house) as client:
        listed = (await client.get("/v1/personas")).json()
    assert listed["default"] == "ava"
    assert listed["personas"][1] == {
        "id": "bo",
        "name": "Bo",
        "description": "Terse.",
        "languages": ["en", "zh"],
        "voice": "joe",
        "greeting": "Yes?",
    }


async def test_models_are_the_personas(house: FakeHouse) -> None:
    async with http(house) as client:
        listed = (await client.get("/v1/models")).json()
    assert [one["id"] for one in listed["data"]] == ["ava", "bo"]


async def test_health_tells_the_parts_apart(house: FakeHouse) -> None:
    house.parts["tts"] = PartHealth(False, "warming up")
    async with http(house) as client:
        ready = await client.get("/readyz")
        assert ready.status_code == 503
        assert ready.json() == {
            "ready": False,
            "parts": {
                "llm": {"ready": True, "detail": "answers"},
                "tts": {"ready": False, "detail": "warming up"},
            },
        }
        alive = await client.get("/healthz")
        assert alive.status_code == 200
        assert alive.json()["parts"]["tts"]["ready"] is False
        house.parts["tts"] = PartHealth(True, "speaks")
        assert (await client.get("/readyz")).json()["ready"] is True


async def test_what_calls_can_do_without_does_not_hold_them_up(house: FakeHouse) -> None:
    house.parts["store"] = PartHealth(False, "is gone", needed=False)
    async with http(house) as client:
        ready = await client.get("/readyz")
    assert ready.status_code == 200
    assert ready.json()["parts"]["store"] == {"ready": False, "detail": "is gone"}


async def test_an_ending_server_is_not_ready(house: FakeHouse) -> None:
    drain = Drain()
    drain.begin("The server restarts.")
    async with http(house, drain=drain) as client:
        assert (await client.get("/readyz")).status_code == 503


async def test_metrics(house: FakeHouse) -> None:
    async with http(house) as client:
        answer = await client.get("/metrics")
    assert answer.text == "calls_open 0\n"
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"


async def test_metrics_are_read_beside_the_event_loop(house: FakeHouse) -> None:
    async with http(house, metrics_text=lambda: str(threading.get_ident()).encode()) as client:
        assert (await client.get("/metrics")).text != str(threading.get_ident())


def test_media_types_are_read_when_the_server_starts(web_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mimetypes, "inited", False)
    PageFiles(web_dir)
    assert mimetypes.inited


async def test_overload_is_503_with_retry_after(house: FakeHouse) -> None:
    def full() -> NoReturn:
        raise Overloaded("Too much at once.", retry_after_s=2.5)

    async with http(house, personas=full) as client:
        answer = await client.get("/v1/personas")
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "3"
    assert answer.json()["error"]["message"] == "Too much at once."


async def test_client_secrets_have_the_session_they_will_open(house: FakeHouse) -> None:
    asked = {
        "expires_after": {"anchor": "created_at", "seconds": 60},
        "session": {"type": "realtime", "model": "bo", "audio": {"output": {"voice": "amy"}}},
    }
    async with http(house) as client:
        secret = (await client.post("/v1/realtime/client_secrets", json=asked)).json()
    ClientSecretCreateResponse.model_validate(secret, strict=True)
    assert secret["value"].startswith("ek_")
    assert secret["expires_at"] == 1_800_000_060
    assert secret["session"]["model"] == "bo"
    assert secret["session"]["audio"]["output"]["voice"] == "amy"


async def test_a_client_secret_needs_no_body(house: FakeHouse) -> None:
    async with http(house) as client:
        secret = (await client.post("/v1/realtime/client_secrets")).json()
    assert secret["expires_at"] == 1_800_000_600
    assert secret["session"]["model"] == "ava"


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        (b"{", "invalid_json", None),
        (b"[]", "invalid_type", None),
        (b'{"ttl": 3}', "unknown_parameter", "ttl"),
        (b'{"expires_after": {"seconds": 1}}', "invalid_value", "expires_after.seconds"),
        (b'{"session": {"type": "realtime", "audio": {"output": {"speed": 9}}}}', "invalid_value", None),
        (b"x" * 300_000, "message_too_large", None),
    ],
)
async def test_bad_secret_requests(house: FakeHouse, body: bytes, code: str, param: str | None) -> None:
    async with http(house) as client:
        answer = await client.post("/v1/realtime/client_secrets", content=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == code
    assert param is None or answer.json()["error"]["param"] == param


async def test_client_secrets_need_the_key_and_an_allowed_page(house: FakeHouse) -> None:
    async with http(house, api_keys=("sk-one",)) as client:
        assert (await client.post("/v1/realtime/client_secrets")).status_code == 401
        key = {"authorization": "Bearer sk-one"}
        assert (await client.post("/v1/realtime/client_secrets", headers=key)).status_code == 200
        evil = {**key, "origin": "https://evil.example"}
        assert (await client.post("/v1/realtime/client_secrets", headers=evil)).status_code == 403


async def test_client_secrets_are_bounded(house: FakeHouse) -> None:
    async with http(house, limits=WireLimits(max_client_secrets=1)) as client:
        await client.post("/v1/realtime/client_secrets")
        refused = await client.post("/v1/realtime/client_secrets")
    assert refused.status_code == 503
    assert int(refused.headers["retry-after"]) > 0


@pytest.fixture
def web_dir(tmp_path: Path) -> Path:
    files = {
        "index.html": "<!doctype html><title>Duolog</title>",
        "js/main.js": "export {};",
        "js/worklets/capture.js": "registerProcessor('x', class {});",
        "css/page.css": "body {}",
        "js/messages.json": "{}",
        "package.json": "{}",
        "node_modules/left/index.js": "x",
        "test/main.test.js": "x",
        ".npmrc": "x",
        "notes.md": "x",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("path", "media_type"),
    [
        ("/", "text/html; charset=utf-8"),
        ("/index.html", "text/html; charset=utf-8"),
        ("/js/main.js", "text/javascript; charset=utf-8"),
        ("/js/worklets/capture.js", "text/javascript; charset=utf-8"),
        ("/css/page.css", "text/css; charset=utf-8"),
        ("/js/messages.json", "application/json"),
    ],
)
async def test_the_page_is_served_with_the_right_types(
    house: FakeHouse, web_dir: Path, path: str, media_type: str
) -> None:
    async with http(house, web_dir=web_dir) as client:
        answer = await client.get(path)
        assert answer.status_code == 200
        assert answer.headers["content-type"] == media_type
        assert answer.headers["cache-control"] == "no-cache"
        again = await client.get(path, headers={"if-none-match": answer.headers["etag"]})
        assert again.status_code == 304


@pytest.mark.parametrize(
    "path",
    [
        "/package.json",
        "/node_modules/left/index.js",
        "/test/main.test.js",
        "/.npmrc",
        "/notes.md",
        "/absent.js",
        "/..%2f..%2fetc/passwd",
    ],
)
async def test_nothing_but_the_page_is_served(house: FakeHouse, web_dir: Path, path: str) -> None:
    async with http(house, web_dir=web_dir) as client:
        assert (await client.get(path)).status_code == 404


async def test_security_headers(house: FakeHouse, web_dir: Path) -> None:
    async with http(house, web_dir=web_dir) as client:
        headers = (await client.get("/")).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "connect-src 'self' ws://duolog.example wss://duolog.example" in policy
        assert "unsafe-inline" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert "microphone=(self)" in headers["permissions-policy"]
        odd = (await client.get("/", headers={"host": "a; script-src *"})).headers
        assert "script-src *" not in odd["content-security-policy"]
        assert (await client.get("/v1/personas")).headers["cache-control"] == "no-store"


async def test_without_a_page_the_rest_works(house: FakeHouse) -> None:
    async with http(house, web_dir=Path("absent")) as client:
        assert (await client.get("/")).status_code == 404
        assert (await client.get("/healthz")).status_code == 200
