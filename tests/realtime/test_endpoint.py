"""Who is let in at `/v1/realtime`, and how the others are told."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from tests.realtime.conftest import Visit
from tests.realtime.fake_app import FakeClient, FakeHouse, FixedClock

from duolog.ports.errors import EngineUnavailable
from duolog.realtime.access import ClientSecrets
from duolog.realtime.drain import Drain
from duolog.realtime.endpoint import RealtimeEndpoint
from duolog.realtime.parsing import parse_session

pytestmark = pytest.mark.session

KEYS: dict[str, Any] = {"api_keys": ("sk-one", "sk-two")}


async def denial(client: FakeClient) -> tuple[int, dict[str, Any]]:
    start = await client.message()
    body = await client.message()
    assert start["type"] == "websocket.http.response.start"
    return start["status"], json.loads(body["body"])["error"]


@pytest.mark.parametrize("path", ["/v1/realtime", "/realtime", "/openai/v1/realtime"])
async def test_every_path_clients_build(visit: Visit, path: str) -> None:
    async with visit(path=path) as client:
        await client.until("session.created")


@pytest.mark.parametrize(
    ("query", "persona"), [("model=bo", "bo"), ("model=gpt-realtime", None), ("", None), ("call_id=x", None)]
)
async def test_unknown_models_mean_the_default_persona(
    visit: Visit, house: FakeHouse, query: str, persona: str | None
) -> None:
    async with visit(query=query) as client:
        await client.until("session.created")
    assert house.opened[0][0] == persona


@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer wrong"}, {"authorization": "Bearer ek_wrong"}])
async def test_a_wrong_key_is_denied(visit: Visit, house: FakeHouse, headers: dict[str, str]) -> None:
    async with visit(headers=headers, ports=KEYS) as client:
        status, error = await denial(client)
        assert (status, error["code"]) == (401, "invalid_api_key")
    assert house.opened == []


async def test_a_right_key_comes_in(visit: Visit) -> None:
    async with visit(headers={"authorization": "Bearer sk-two"}, ports=KEYS) as client:
        await client.until("session.created")
        assert client.accepted is not None
        assert client.accepted["subprotocol"] is None


async def test_a_browsers_key_is_a_subprotocol_that_is_not_echoed(visit: Visit) -> None:
    names = ("realtime", "openai-insecure-api-key.sk-one")
    async with visit(subprotocols=names, ports=KEYS) as client:
        await client.until("session.created")
        assert client.accepted is not None
        assert client.accepted["subprotocol"] == "realtime"


async def test_a_browsers_wrong_key_is_told_in_an_event(visit: Visit) -> None:
    names = ("realtime", "openai-insecure-api-key.wrong")
    async with visit(subprotocols=names, ports=KEYS) as client:
        assert (await client.event())["error"]["code"] == "invalid_api_key"
        assert (await client.close_frame())["code"] == 1008


async def test_pages_of_other_sites_are_denied(visit: Visit, house: FakeHouse) -> None:
    headers = {"host": "duolog.example", "origin": "https://evil.example"}
    async with visit(headers=headers) as client:
        status, error = await denial(client)
        assert (status, error["code"]) == (403, "origin_not_allowed")
    assert house.opened == []


async def test_the_own_page_and_allowed_pages_come_in(visit: Visit) -> None:
    async with visit(headers={"host": "duolog.example", "origin": "https://duolog.example"}) as client:
        await client.until("session.created")
    headers = {"host": "duolog.example", "origin": "https://shop.example"}
    async with visit(headers=headers, ports={"allowed_origins": ("https://shop.example",)}) as client:
        await client.until("session.created")


async def test_the_beta_protocol_is_refused_in_one_error(visit: Visit, house: FakeHouse) -> None:
    async with visit(headers={"openai-beta": "realtime=v1"}) as client:
        error = (await client.event())["error"]
        assert error["code"] == "beta_api_shape_disabled"
        assert (await client.close_frame())["code"] == 1008
    assert house.opened == []


async def test_over_the_cap_is_told_when_to_come_back(visit: Visit, house: FakeHouse) -> None:
    house.max_calls = 0
    async with visit() as client:
        error = (await client.event())["error"]
        assert error["code"] == "session_limit_reached"
        assert "Try again in 7 s" in error["message"]
        assert (await client.close_frame())["code"] == 1013


async def test_engines_that_are_not_ready(visit: Visit, house: FakeHouse) -> None:
    def warming(_config: object) -> Any:
        raise EngineUnavailable("The speech model is still warming up.", engine="tts")

    house.make_call = warming
    async with visit() as client:
        assert "warming up" in (await client.event())["error"]["message"]
        assert (await client.close_frame())["code"] == 1013


async def test_an_ending_server_takes_no_more_calls(visit: Visit, house: FakeHouse) -> None:
    drain = Drain()
    drain.begin("The server restarts.")
    async with visit(ports={"drain": drain}) as client:
        assert (await client.event())["error"]["code"] == "server_shutting_down"
        assert (await client.close_frame())["code"] == 1012
    assert house.opened == []


@asynccontextmanager
async def visit_with(secret: str, house: FakeHouse, secrets: ClientSecrets) -> AsyncGenerator[FakeClient, None]:
    endpoint = RealtimeEndpoint(house.ports(**KEYS), secrets)
    app = Starlette(routes=[WebSocketRoute("/v1/realtime", endpoint.connect)])
    client = FakeClient(app, query="", headers={"authorization": f"Bearer {secret}"})
    with client.inbox:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.run)
            yield client
            await client.vanish()


async def test_a_client_secret_brings_its_session(house: FakeHouse) -> None:
    secrets = ClientSecrets(FixedClock(), max_secrets=4)
    session = parse_session({"type": "realtime", "model": "bo", "instructions": "Sing."})
    async with visit_with(secrets.issue(60, session).value, house, secrets) as client:
        assert (await client.until("session.updated"))["session"]["instructions"] == "Sing."
    assert house.opened[0][0] == "bo"


async def test_a_session_that_no_longer_fits_is_left_out(house: FakeHouse) -> None:
    secrets = ClientSecrets(FixedClock(), max_secrets=4)
    session = parse_session({"type": "realtime", "instructions": "x" * 40_000})
    async with visit_with(secrets.issue(60, session).value, house, secrets) as client:
        await client.until("session.created")
    assert house.calls[0].asked == []
