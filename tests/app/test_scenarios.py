"""The scenario files that hold without models, over the real wire against scripted engines."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from benchmarks.eval.perform import perform
from benchmarks.eval.scenario import Engines, Scenario, read_scenarios
from benchmarks.eval.sounds import Sounds
from benchmarks.eval.verdict import judge
from tests.app.running import ROOT, RunningApp, running, scripted

from duolog.settings import PersonaSettings

pytestmark = [pytest.mark.real, pytest.mark.slow]

SCENARIOS = [one for one in read_scenarios(ROOT / "tests" / "scenarios") if one.engines is not Engines.REAL]


@pytest.fixture(scope="module")
def server() -> Iterator[RunningApp]:
    personas = PersonaSettings(folder=ROOT / "benchmarks" / "personas", default="bench", reload=False)
    with running(replace(scripted(), personas=personas)) as application:
        yield application
        assert application.failures() == []


@pytest.fixture
async def sounds() -> AsyncIterator[Sounds]:
    made = Sounds(Path())
    yield made
    await made.aclose()


async def test_every_scenario_goes_as_written(server: RunningApp, sounds: Sounds) -> None:
    """All at once: each lasts as long as people take to speak."""
    problems: dict[str, tuple[str, ...]] = {}

    async def play(scenario: Scenario) -> None:
        shown = await perform(scenario, f"ws://{server.address}", sounds)
        problems[scenario.name] = judge(scenario, shown, Engines.SCRIPTED).problems

    async with anyio.create_task_group() as tasks:
        for scenario in SCENARIOS:
            tasks.start_soon(play, scenario)
    assert problems == {scenario.name: () for scenario in SCENARIOS}
