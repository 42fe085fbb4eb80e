"""Client events and POST requests that come twice: in one connection, after a resume, and at another server."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx
import pytest
from openai.types.realtime import ClientSecretCreateResponse
from tests.realtime.conftest import Visit
from tests.realtime.fake_app import FakeClient, FakeHouse
from tests.realtime.fake_call import FakeCall
from tests.realtime.strict import openai_event

from duolog.adapters.memory_cache import MemoryIdempotencyStore
from duolog.realtime.routes import build_app
from duolog.serving.idempotency import Idempotency, IdempotencyOptions, RequestKey
from duolog.serving.store_worker import StoreWorker

pytestmark = pytest.mark.session

LOCK_S = 9.0
RESUMED = "model=ava&session=sess_fake"
ITEM = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello."}]}
CREATE = {"type": "conversation.item.create", "event_id": "e1", "item": ITEM}
RESPOND = {"type": "response.create", "event_id": "e2"}
APPEND = {"type": "input_audio_buffer.append", "audio": "AAAA" * 1_600}
COMMIT = {"type": "input_audio_buffer.commit", "event_id": "e3"}


@asynccontextmanager
async def process(store: MemoryIdempotencyStore) -> AsyncGenerator[dict[str, Any], None]:
    """The ports of one server process, which crashes at the end of the block."""
    worker = StoreWorker("idempotency")
    idempotency = Idempotency(store, worker, IdempotencyOptions(lock_s=LOCK_S))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.run)
        tasks.start_soon(idempotency.run)
        yield {"idempotency": idempotency}
        tasks.cancel_scope.cancel()


async def acknowledged(client: FakeClient, event: dict[str, Any], *kinds: str) -> list[dict[str, Any]]:
    """Send it; the messages that acknowledge it, without their event ids. Each is one of the protocol's."""
    await client.send(event)
    told = [await client.until(kind) for kind in kinds]
    for message in told:
        openai_event(message)
    return [{name: value for name, value in message.items() if name != "event_id"} for message in told]


async def quiet(client: FakeClient) -> bool:
    """Nothing more comes."""
    with anyio.move_on_after(0.05) as waiting:
        await client.event()
    return waiting.cancelled_caught


ADDED, DONE = "conversation.item.added", "conversation.item.done"
CREATED, ENDED = "response.created", "response.done"


async def test_an_item_is_created_once_in_a_connection(visit: Visit, house: FakeHouse) -> None:
    async with process(MemoryIdempotencyStore()) as ports, visit(ports=ports) as client:
        first = await acknowledged(client, CREATE, ADDED, DONE)
        assert await acknowledged(client, CREATE, ADDED, DONE) == first
        assert len(list(house.calls[0].conversation)) == 1


async def test_events_without_an_id_are_carried_out_each_time(visit: Visit, house: FakeHouse) -> None:
    async with process(MemoryIdempotencyStore()) as ports, visit(ports=ports) as client:
        for _ in range(2):
            await acknowledged(client, {**CREATE, "event_id": None}, ADDED, DONE)
        assert len(list(house.calls[0].conversation)) == 2


async def test_the_same_id_with_another_content_is_refused(visit: Visit, house: FakeHouse) -> None:
    async with process(MemoryIdempotencyStore()) as ports, visit(ports=ports) as client:
        await acknowledged(client, CREATE, ADDED, DONE)
        for other in ({**CREATE, "previous_item_id": "root"}, {**RESPOND, "event_id": "e1"}):
            await client.send(other)
            error = (await client.until("error"))["error"]
            assert (error["code"], error["param"], error["event_id"]) == ("event_id_reused", "event_id", "e1")
        assert len(list(house.calls[0].conversation)) == 1


async def test_a_refused_event_may_come_again(visit: Visit, house: FakeHouse) -> None:
    async with process(MemoryIdempotencyStore()) as ports, visit(ports=ports) as client:
        await client.until("session.created")
        await client.send(COMMIT)
        assert (await client.until("error"))["error"]["code"] == "input_audio_buffer_commit_empty"
        await client.send(APPEND)
        await acknowledged(client, COMMIT, "input_audio_buffer.committed")


async def test_everything_with_an_effect_is_done_once_across_two_servers(visit: Visit, house: FakeHouse) -> None:
    store = MemoryIdempotencyStore()
    async with process(store) as first, visit(ports=first) as client:
        await client.send(APPEND)
        committed = await acknowledged(client, COMMIT, "input_audio_buffer.committed")
        item_id = committed[0]["item_id"]
        truncate = {"type": "conversation.item.truncate", "event_id": "e4", "item_id": item_id}
        truncate |= {"content_index": 0, "audio_end_ms": 5}
        delete = {"type": "conversation.item.delete", "event_id": "e5", "item_id": item_id}
        truncated = await acknowledged(client, truncate, "conversation.item.truncated")
        created = await acknowledged(client, CREATE, ADDED, DONE)
        deleted = await acknowledged(client, delete, "conversation.item.deleted")
        answered = await acknowledged(client, RESPOND, CREATED, ENDED)
    async with process(store) as second, visit(ports=second, query=RESUMED) as client:
        again = await acknowledged(client, COMMIT, "input_audio_buffer.committed")
        assert again[0]["item_id"] == item_id
        assert await acknowledged(client, truncate, "conversation.item.truncated") == truncated
        assert await acknowledged(client, delete, "conversation.item.deleted") == deleted
        repeated = await acknowledged(client, CREATE, ADDED, DONE)
        assert [one["item"] for one in repeated] == [one["item"] for one in created]
        assert repeated[0]["previous_item_id"] is None, "this connection was told of no other item"
        assert await acknowledged(client, RESPOND, CREATED, ENDED) == answered
        assert await quiet(client)
        assert house.calls[1].asked == []
        assert list(house.calls[1].conversation) == []


async def test_an_answer_under_way_in_this_connection_is_only_named_again(visit: Visit, house: FakeHouse) -> None:
    house.make_call = lambda config: FakeCall(config, hold_responses=True)
    async with process(MemoryIdempotencyStore()) as ports, visit(ports=ports) as client:
        first = await acknowledged(client, RESPOND, CREATED)
        assert await acknowledged(client, RESPOND, CREATED) == first
        assert len(house.calls[0].asked) == 1


async def test_an_answer_that_was_cut_off_is_not_made_again(visit: Visit, house: FakeHouse) -> None:
    house.make_call = lambda config: FakeCall(config, hold_responses=True)
    store = MemoryIdempotencyStore()
    async with process(store) as first:
        async with visit(ports=first) as client:
            created = await acknowledged(client, RESPOND, CREATED)
            await client.vanish()
            await house.closed.wait()
        async with process(store) as second, visit(ports=second, query=RESUMED) as client:
            again = await acknowledged(client, RESPOND, CREATED, ENDED)
    assert again[0] == created[0]
    assert again[1]["response"]["id"] == created[0]["response"]["id"]
    assert again[1]["response"]["status"] == "cancelled"
    assert house.calls[1].asked == []


async def test_it_waits_for_another_server_and_hears_audio_meanwhile(visit: Visit, house: FakeHouse) -> None:
    house.make_call = lambda config: FakeCall(config, hold_responses=True)
    store = MemoryIdempotencyStore()
    async with process(store) as first, process(store) as second, visit(ports=first) as before:
        created = await acknowledged(before, RESPOND, CREATED)
        async with visit(ports=second, query=RESUMED) as client:
            await client.send(RESPOND)
            await client.send(APPEND)
            await anyio.sleep(1)
            assert house.calls[1].heard
            assert house.calls[1].asked == []
            house.calls[0].cancel_response(None)
            assert (await client.until(ENDED))["response"]["id"] == created[0]["response"]["id"]
            assert house.calls[1].asked == []


async def test_it_does_not_wait_for_ever(visit: Visit, house: FakeHouse) -> None:
    house.make_call = lambda config: FakeCall(config, hold_responses=True)
    store = MemoryIdempotencyStore()
    async with process(store) as first, process(store) as second, visit(ports=first) as before:
        await acknowledged(before, RESPOND, CREATED)
        async with visit(ports=second, query=RESUMED) as client:
            await client.send(RESPOND)
            error = (await client.until("error"))["error"]
            assert (error["code"], error["event_id"]) == ("event_in_progress", "e2")


async def test_what_a_crashed_server_was_doing_is_done_when_its_lock_expires(visit: Visit, house: FakeHouse) -> None:
    store = MemoryIdempotencyStore()
    request = RequestKey.of("event", ("sess_fake", "e1"), b"")
    await store.begin(request.key, "crashed", LOCK_S)
    async with process(store) as ports, visit(ports=ports, query=RESUMED) as client:
        begun_at = anyio.current_time()
        await acknowledged(client, CREATE, ADDED, DONE)
        assert LOCK_S - 1 < anyio.current_time() - begun_at < LOCK_S + 1


async def test_a_connection_that_takes_over_does_not_wait_for_the_old_one_to_notice(
    visit: Visit, house: FakeHouse
) -> None:
    house.make_call = lambda config: FakeCall(config, hold_responses=True)
    async with process(MemoryIdempotencyStore()) as ports, anyio.create_task_group() as tasks:
        app = build_app(house.ports(**ports))
        old, new = FakeClient(app), FakeClient(app, query=RESUMED)
        tasks.start_soon(old.run)
        created = await acknowledged(old, RESPOND, CREATED)
        tasks.start_soon(new.run)
        again = await acknowledged(new, RESPOND, CREATED, ENDED)
        assert again[0] == created[0]
        assert len(house.calls) == 2
        house.calls[0].cancel_response(None)
        await old.until(ENDED)
        assert house.calls[1].asked == []
        tasks.cancel_scope.cancel()
        old.inbox.close()
        new.inbox.close()


@asynccontextmanager
async def http(house: FakeHouse, ports: dict[str, Any]) -> AsyncGenerator[httpx.AsyncClient, None]:
    transport = httpx.ASGITransport(build_app(house.ports(**ports)))
    async with httpx.AsyncClient(transport=transport, base_url="http://duolog.example") as client:
        yield client


SECRETS = "/v1/realtime/client_secrets"
ONCE = {"idempotency-key": "k1"}


async def test_a_client_secret_is_given_out_once_and_valid_at_both_servers(visit: Visit, house: FakeHouse) -> None:
    store = MemoryIdempotencyStore()
    asked = {"session": {"type": "realtime", "instructions": "Sing."}}
    async with process(store) as first, process(store) as second:
        async with http(house, first) as client:
            given = (await client.post(SECRETS, headers=ONCE, json=asked)).json()
            assert (await client.post(SECRETS, headers=ONCE, json=asked)).json() == given
            assert (await client.post(SECRETS, json=asked)).json()["value"] != given["value"]
        app = build_app(house.ports(**second))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://duolog.example") as client:
            again = await client.post(SECRETS, headers=ONCE, json=asked)
        assert again.json() == given
        ClientSecretCreateResponse.model_validate(again.json(), strict=True)
        guest = FakeClient(app, headers={"authorization": f"Bearer {given['value']}"})
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(guest.run)
            assert (await guest.until("session.updated"))["session"]["instructions"] == "Sing."
            await guest.vanish()
        guest.inbox.close()


async def test_a_key_with_another_body_is_422(house: FakeHouse) -> None:
    async with process(MemoryIdempotencyStore()) as ports, http(house, ports) as client:
        await client.post(SECRETS, headers=ONCE)
        answer = await client.post(SECRETS, headers=ONCE, json={"expires_after": {"seconds": 60}})
    assert answer.status_code == 422
    assert answer.json()["error"]["code"] == "idempotency_key_reused"


async def test_while_the_first_is_under_way_it_is_409(house: FakeHouse) -> None:
    store = MemoryIdempotencyStore()
    request = RequestKey.of("http", ("client_secrets", "", "k1"), b"")
    await store.begin(request.key, "another process", 60)
    async with process(store) as ports, http(house, ports) as client:
        answer = await client.post(SECRETS, headers=ONCE)
    assert answer.status_code == 409
    assert int(answer.headers["retry-after"]) > 0
    assert answer.json()["error"]["code"] == "idempotency_request_in_progress"


async def test_a_refused_request_may_be_mended(house: FakeHouse) -> None:
    async with process(MemoryIdempotencyStore()) as ports, http(house, ports) as client:
        refused = await client.post(
            SECRETS, headers=ONCE, json={"session": {"type": "realtime", "model": "bo", "x": 1}}
        )
        assert refused.status_code == 400
        assert (await client.post(SECRETS, headers=ONCE)).status_code == 200


@pytest.mark.parametrize("key", ["", "k" * 256])
async def test_a_bad_key_is_refused(house: FakeHouse, key: str) -> None:
    async with process(MemoryIdempotencyStore()) as ports, http(house, ports) as client:
        answer = await client.post(SECRETS, headers={"idempotency-key": key})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "Idempotency-Key"


async def test_another_caller_gets_another_secret(house: FakeHouse) -> None:
    async with process(MemoryIdempotencyStore()) as ports, http(house, {**ports, "api_keys": ("a", "b")}) as client:
        given = [
            (await client.post(SECRETS, headers={**ONCE, "authorization": f"Bearer {key}"})).json()["value"]
            for key in "ab"
        ]
    assert given[0] != given[1]
