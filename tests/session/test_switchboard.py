"""Taking up a session again: from the call that still holds it, and while the store is away."""

from __future__ import annotations

import threading

import anyio
import pytest
from tests.session.harness import Caller, World, world
from trio.lowlevel import current_statistics

from duolog.adapters.scripted_llm import Line
from duolog.ports.errors import EngineUnavailable
from duolog.ports.store import StoredSession
from duolog.session.events import ItemAdded, ResponseDone, SessionCreated

pytestmark = pytest.mark.session


async def talk(caller: Caller) -> None:
    await caller.say(1.0)
    await caller.wait_for(ResponseDone)


async def test_a_session_is_taken_over_from_the_call_that_holds_it() -> None:
    async with world(max_calls=1) as house, house.call() as cut_off:
        await talk(cut_off)
        async with house.call(resume=cut_off.call.session_id) as back:
            created = await back.hear(SessionCreated)
            assert created.resumed
            assert [event.item.role for event in back.of(ItemAdded)] == ["user", "assistant"]
            with anyio.fail_after(1):
                await cut_off.call.hang_up()
            await talk(back)
            assert len(house.llm.requests) == 2


async def test_five_hundred_calls_leave_nothing_behind() -> None:
    """Each hangs up somewhere else: before a word, in one, in the pause after it, in the answer."""
    async with world(lines={"*": Line("This is the first sentence. Here comes the second one.")}) as house:
        await anyio.wait_all_tasks_blocked()
        tasks, threads = current_statistics().tasks_living, threading.active_count()
        for number in range(500):
            async with house.call() as caller:
                await caller.say(0.1 * (number % 7))
                await caller.pause(0.25 * (number % 5))
        await anyio.sleep(60)
        assert current_statistics().tasks_living == tasks
        assert threading.active_count() == threads
        assert (house.switchboard.active, house.llm.running, house.asr.running) == (0, 0, 0)
        snapshot = house.batcher.snapshot()
        assert not any((*snapshot.queued.values(), *snapshot.in_flight.values()))
        assert len(house.llm.requests) > 100, "calls that hung up late were answered"


async def test_the_call_that_was_taken_over_changes_nothing_afterwards() -> None:
    async with world() as house:
        async with house.call() as cut_off:
            await talk(cut_off)
            session_id = cut_off.call.session_id
            async with house.call(resume=session_id) as back:
                await talk(back)
        await anyio.sleep(1)
        stored = await house.store.load(session_id)
    assert stored is not None
    assert len(stored.items) == 4


async def test_the_end_of_an_old_call_does_not_touch_what_another_server_saved() -> None:
    async with world() as house:
        async with house.call() as cut_off:
            await talk(cut_off)
            await cut_off.pause(10.0)
            newer = StoredSession(cut_off.call.session_id, "ava", ("newer",), 0.0)
            await house.store.save(newer)
        await anyio.sleep(1)
        assert await house.store.load(newer.session_id) == newer


async def test_what_was_not_heard_when_the_call_broke_off_is_not_resumed() -> None:
    lines = {"*": Line("This is the first sentence. Here comes the second one. And this is the third of them.")}
    async with world(lines=lines) as house:
        async with house.call() as cut_off:
            await talk(cut_off)
            await cut_off.pause(1.5)
            whole = cut_off.answers()[0]
        async with house.call(resume=cut_off.call.session_id) as back:
            kept = await back.hear(ItemAdded, 2)
    assert kept.item.text
    assert len(kept.item.text) < len(whole)
    assert whole.startswith(kept.item.text)
    assert kept.item.interrupted


async def test_a_session_is_resumed_while_the_store_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world() as house:
        _take_away_the_store(house, monkeypatch)
        async with house.call() as first:
            await talk(first)
        async with house.call(resume=first.call.session_id) as back:
            assert (await back.hear(SessionCreated)).resumed


async def test_an_unknown_session_is_a_new_one() -> None:
    async with world() as house, house.call(resume="sess_unknown") as caller:
        assert not (await caller.hear(SessionCreated)).resumed
        assert caller.call.session_id != "sess_unknown"


def _take_away_the_store(house: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def gone(_: str | StoredSession) -> None:
        raise EngineUnavailable("The store is gone.", engine="store")

    monkeypatch.setattr(house.store, "save", gone)
    monkeypatch.setattr(house.store, "load", gone)
