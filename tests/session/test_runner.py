"""Turns run one after another; a cancelled one ends before the next begins, or the call ends."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
import pytest

from duolog.session.config import ResponseOptions
from duolog.session.runner import WATCHDOG_S, TurnRunner, TurnStuck
from duolog.session.turn import Turn, TurnEnd

pytestmark = pytest.mark.session


def turn() -> Turn:
    return Turn("sess", ResponseOptions())


@dataclass
class Notes:
    """What the runner did, in order."""

    begun: list[Turn] = field(default_factory=list)
    ended: list[tuple[Turn, Exception | None]] = field(default_factory=list)


@asynccontextmanager
async def running(work: Callable[[Turn], Awaitable[None]]) -> AsyncIterator[tuple[TurnRunner, Notes]]:
    notes = Notes()

    async def note_and_work(one: Turn) -> None:
        notes.begun.append(one)
        await work(one)

    runner = TurnRunner(note_and_work, lambda one, failure: notes.ended.append((one, failure)))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(runner.run)
        yield runner, notes
        tasks.cancel_scope.cancel()


async def a_second(_: Turn) -> None:
    await anyio.sleep(1)


async def test_turns_run_one_after_another_in_order() -> None:
    async with running(a_second) as (runner, notes):
        first, second = turn(), turn()
        runner.submit(first)
        runner.submit(second)
        assert runner.turns() == [first, second]
        await anyio.sleep(0.5)
        assert notes.begun == [first]
        assert runner.turns() == [first, second]
        await second.ended.wait()
        assert anyio.current_time() == pytest.approx(2.0)
    assert notes.ended == [(first, None), (second, None)]


async def test_cancelled_turn_ends_and_the_next_begins() -> None:
    async with running(a_second) as (runner, notes):
        first, second = turn(), turn()
        runner.submit(first)
        runner.submit(second)
        await anyio.sleep(0.1)
        runner.cancel(first, TurnEnd.TURN_DETECTED)
        runner.cancel(first, TurnEnd.CLIENT_CANCELLED)
        await second.ended.wait()
        assert anyio.current_time() == pytest.approx(1.1)
    assert first.end is TurnEnd.TURN_DETECTED, "the first reason stands"
    assert [one for one, _ in notes.ended] == [first, second]


async def test_turn_that_waits_is_cancelled_without_having_begun() -> None:
    async with running(a_second) as (runner, notes):
        first, second = turn(), turn()
        runner.submit(first)
        await anyio.sleep(0.1)
        runner.submit(second)
        runner.cancel(second, TurnEnd.DROPPED)
        assert second.ended.is_set()
        assert runner.turns() == [first]
        await first.ended.wait()
    assert notes.begun == [first]


async def test_cancelling_a_turn_that_has_ended_does_nothing() -> None:
    async with running(a_second) as (runner, notes):
        one = turn()
        runner.submit(one)
        await one.ended.wait()
        runner.cancel(one, TurnEnd.TURN_DETECTED)
        await anyio.sleep(WATCHDOG_S + 1)
    assert notes.ended == [(one, None)]


async def test_failed_turn_is_told_and_the_next_runs() -> None:
    async def fail(one: Turn) -> None:
        if one.spoken_text == "bad":
            raise ValueError("bad")

    async with running(fail) as (runner, notes):
        bad, good = turn(), turn()
        bad.spoken_text = "bad"
        runner.submit(bad)
        runner.submit(good)
        await good.ended.wait()
    assert isinstance(notes.ended[0][1], ValueError)
    assert notes.ended[1] == (good, None)


async def test_turn_that_swallows_its_cancellation_ends_the_call() -> None:
    async def stubborn(_: Turn) -> None:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(60)

    async def cancel_it() -> None:
        async with running(stubborn) as (runner, _):
            one = turn()
            runner.submit(one)
            await anyio.sleep(0.1)
            runner.cancel(one, TurnEnd.TURN_DETECTED)
            await anyio.sleep(600)

    with pytest.raises(BaseExceptionGroup) as stuck:
        await cancel_it()
    assert stuck.group_contains(TurnStuck)


async def test_long_turn_after_a_cancelled_one_is_not_taken_for_stuck() -> None:
    """The watchdog may wake when the next turn runs already."""

    async def long(_: Turn) -> None:
        await anyio.sleep(3 * WATCHDOG_S)

    async with running(long) as (runner, notes):
        turns = [turn() for _ in range(20)]
        for one in turns:
            runner.submit(one)
        for one in turns[:-1]:
            await anyio.sleep(0.1)
            runner.cancel(one, TurnEnd.DROPPED)
        await turns[-1].ended.wait()
    assert notes.ended[-1] == (turns[-1], None)
