"""Whole load tests in virtual time: arrivals, stretches, the search, the stop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import anyio
import pytest
from tests.loadtest.conftest import FakeLine, dial_failing, dial_with
from trio.testing import MockClock

from duolog.loadtest.call_plan import Playwright
from duolog.loadtest.failures import CallFailed, CallRefused
from duolog.loadtest.limit_search import Goal
from duolog.loadtest.load_run import Stage, run_load
from duolog.loadtest.load_session import check_line, run_profile, search_limit
from duolog.loadtest.outcomes import CallEnding
from duolog.loadtest.profile import Bounds, LoadProfile, Mix, Phase, SearchPlan
from duolog.loadtest.repertoire import Sound
from duolog.loadtest.server_figures import Scrape
from duolog.loadtest.wire_text import Message

pytestmark = pytest.mark.session

PROFILE = LoadProfile(
    turns=(2, 3),
    mix=Mix(barge_in=0, think=0, silence=0, noise=0),
    load=(Phase("ramp", 60, 8, from_calls=0, counts=False), Phase("soak", 120, 8)),
    search=SearchPlan(step_s=150, most_calls=64, most_steps=20),
    bounds=Bounds(most_s=20_000),
)


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "trio", {"clock": MockClock(autojump_threshold=0)}


@dataclass
class Switchboard:
    """Answers slowly once more than so many calls are on the line, refuses beyond its lines."""

    comfortable: int = 1_000
    lines: int = 1_000
    on_the_line: int = 0
    most: int = 0

    @asynccontextmanager
    async def dial(self, observe: Callable[[Message], None]) -> AsyncIterator[FakeLine]:
        if self.on_the_line >= self.lines:
            raise CallRefused("All lines are busy.", code="session_limit_reached")
        self.on_the_line += 1
        self.most = max(self.most, self.on_the_line)
        try:
            delay_s = 0.4 if self.on_the_line <= self.comfortable else 3.0
            async with dial_with(delays_s=(delay_s,))(observe) as line:
                yield line
        finally:
            self.on_the_line -= 1


@dataclass
class Told:
    lines: list[str] = field(default_factory=list)

    def stage(self, dial: Any, scrape: Scrape | None = None) -> Stage:
        async def look() -> Scrape | None:
            return scrape

        return Stage(dial, look, self.lines.append, anyio.Event())


async def test_the_phases_of_a_profile(sounds: list[Sound]) -> None:
    told, board = Told(), Switchboard()
    playwright = Playwright(PROFILE, sounds)
    began_s = anyio.current_time()
    report = await run_profile(told.stage(board.dial), playwright, PROFILE)
    took_s = anyio.current_time() - began_s
    assert 180 <= took_s <= 180 + 16
    assert report.measured
    assert not report.result.stopped
    [(ramp, _), (soak, figures)] = report.result.by_window()
    assert (ramp.name, ramp.counts, soak.name) == ("ramp", False, "soak")
    assert report.figures.turns == figures.turns > 60
    assert report.figures.latency_ms.p99 == pytest.approx(400, abs=2)
    assert {call.ending for call in report.result.calls} == {CallEnding.COMPLETED}
    assert 8 <= board.most <= 20
    assert board.on_the_line == 0
    assert any("soak" in line and "(asked 8.0)" in line for line in told.lines)


async def test_a_stop_keeps_what_was_measured(sounds: list[Sound]) -> None:
    told = Told()
    stage = told.stage(Switchboard().dial)
    playwright = Playwright(PROFILE, sounds)
    async with anyio.create_task_group() as tasks:

        async def stop() -> None:
            await anyio.sleep(100)
            stage.stop.set()

        tasks.start_soon(stop)
        report = await run_profile(stage, playwright, PROFILE)
    assert report.result.stopped
    assert report.result.ran_s == pytest.approx(100)
    assert report.figures.answered > 10
    assert report.figures.missed == {}
    assert report.figures.seconds == pytest.approx(40)
    assert any(call.ending is CallEnding.ON_THE_LINE for call in report.result.calls)


@pytest.mark.slow
async def test_the_search_finds_where_the_server_becomes_slow(sounds: list[Sound]) -> None:
    told = Told()
    goal = Goal("p99", 1_000)
    report = await search_limit(told.stage(Switchboard(comfortable=9).dial), Playwright(PROFILE, sounds), PROFILE, goal)
    search = report.search
    assert search is not None
    assert search.holds is not None
    assert search.bounded
    assert 2 <= search.holds <= 9
    held = [step for step in search.steps if step.held]
    assert all((step.figures.latency_ms.p99 or 0) <= 1_000 for step in held)
    assert report.figures is max(held, key=lambda step: step.calls).figures
    assert report.measured
    ends = [window.ends_s for window in report.result.windows]
    assert ends == sorted(ends)
    assert len({call.index for call in report.result.calls}) == len(report.result.calls)


async def test_a_server_that_refuses_does_not_hold(sounds: list[Sound]) -> None:
    goal = Goal("p99", 1_000)
    profile = replace(PROFILE, search=SearchPlan(first_calls=16, most_calls=16, step_s=100))
    report = await search_limit(Told().stage(Switchboard(lines=4).dial), Playwright(profile, sounds), profile, goal)
    assert report.search is not None
    assert report.search.steps[0].figures.refused["session_limit_reached"] > 0
    assert not report.search.steps[0].held
    assert report.search.steps[0].figures.latency_ms.p99 == pytest.approx(400, abs=2)


async def test_the_profile_bounds_the_search(sounds: list[Sound]) -> None:
    told = Told()
    profile = replace(PROFILE, bounds=Bounds(most_s=500))
    report = await search_limit(
        told.stage(Switchboard().dial), Playwright(profile, sounds), profile, Goal("p99", 1_000)
    )
    assert report.search is not None
    assert [step.calls for step in report.search.steps] == [1, 2]
    assert not report.search.bounded
    assert any("ends the search before 4 calls" in line for line in told.lines)


async def test_most_calls_end_the_arrivals(sounds: list[Sound]) -> None:
    profile = replace(PROFILE, bounds=Bounds(most_calls=3))
    report = await run_profile(Told().stage(Switchboard().dial), Playwright(profile, sounds), profile)
    assert len(report.result.calls) == 3
    assert report.notes == ("bounds.most_calls ended the arrivals after 3 calls.",)


async def test_turns_are_due_when_the_plan_says_though_the_server_stalls(sounds: list[Sound]) -> None:
    """The open loop: a server that answers nothing is asked exactly as often as one that answers at once."""
    due: list[list[float]] = []
    for delay_s in (0.3, None):
        playwright = Playwright(PROFILE, sounds)
        plans = playwright.calls(PROFILE.load, first_index=0, most=1_000)
        result = await run_load(Told().stage(dial_with(delays_s=(delay_s,))), PROFILE.load, plans)
        due.append(sorted(round(turn.end_s, 6) for call in result.calls for turn in call.turns))
    assert due[0] == due[1]


async def test_the_first_call_tells_what_is_wrong() -> None:
    wrong_key = dial_failing(CallRefused("The API key is wrong.", code="invalid_api_key"))
    with pytest.raises(CallFailed, match="The API key is wrong"):
        await check_line(Told().stage(wrong_key), "ava")
    assert await check_line(Told().stage(Switchboard().dial), "ava") == ""
    assert "ava answers instead" in await check_line(Told().stage(Switchboard().dial), "orla")
    assert "session_limit_reached" in await check_line(Told().stage(Switchboard(lines=0).dial), "ava")
