"""The load guard: the pure ladder, and the watch over scripted readings in virtual time."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs
from trio.testing import MockClock

from duolog.personas import Priority
from duolog.ports.machine import GpuReading
from duolog.serving.guard import GuardLevel, GuardOptions, Ladder, Reading, Transition, Watermarks
from duolog.serving.guard_watch import GuardSources, GuardWatch
from duolog.serving.load_limits import LoadLimits
from duolog.telemetry import metrics

pytestmark = pytest.mark.session

MEMORY = Watermarks(0.80, 0.85)
LOOK_S = 0.4
VALUES = st.floats(0, 1)
STORIES = st.lists(VALUES, min_size=1, max_size=80)


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "trio", {"clock": MockClock(autojump_threshold=0)}


def run(values: list[float], ladder: Ladder | None = None, at: float = 0.0) -> list[GuardLevel]:
    """The level after each look."""
    ladder = ladder or Ladder()
    levels = []
    for number, value in enumerate(values):
        ladder.observe({Reading.MEMORY: value}, at + number * LOOK_S)
        levels.append(ladder.level)
    return levels


# The ladder


@pytest.mark.parametrize(
    ("value", "level"),
    [(0.0, 0), (0.799, 0), (0.80, 1), (0.816, 1), (0.817, 2), (0.834, 3), (0.849, 3), (0.85, 4), (0.89, 4), (0.91, 5)],
)
def test_levels_lie_between_the_watermarks(value: float, level: int) -> None:
    assert MEMORY.level(value) == level


@given(VALUES, VALUES)
def test_a_higher_reading_never_asks_for_less(one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert MEMORY.level(low) <= MEMORY.level(high)
    assert MEMORY.level(low) <= MEMORY.holds(low)


@given(st.floats(0.01, 10), st.floats(0.01, 10))
def test_without_load_no_level_is_held(warn: float, band: float) -> None:
    assert Watermarks(warn, warn + band).holds(0.0) == GuardLevel.NORMAL


@given(st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=80))
def test_more_load_at_every_moment_never_ends_lower(story: list[tuple[float, float]]) -> None:
    lighter = run([min(pair) for pair in story])
    heavier = run([max(pair) for pair in story])
    assert all(one <= other for one, other in zip(lighter, heavier, strict=True))


@given(STORIES)
def test_it_goes_one_step_at_a_time_and_not_at_every_look(story: list[float]) -> None:
    levels = [GuardLevel.NORMAL, *run(story)]
    changes = [number for number, (before, after) in enumerate(pairwise(levels)) if before != after]
    assert all(abs(after - before) <= 1 for before, after in pairwise(levels))
    assert all(later - earlier >= 2 for earlier, later in pairwise(changes))


@given(st.lists(st.floats(0.781, 0.799), min_size=1, max_size=60))
def test_around_a_watermark_it_does_not_flap(wobble: list[float]) -> None:
    ladder = Ladder()
    assert run([0.80] * 3, ladder)[-1] == GuardLevel.NO_EXTRAS
    assert set(run(wobble, ladder, at=10.0)) == {GuardLevel.NO_EXTRAS}


def test_a_reading_that_comes_and_goes_raises_nothing() -> None:
    assert set(run([0.99, 0.0] * 40)) == {GuardLevel.NORMAL}


@given(STORIES)
def test_whatever_was_it_is_back_within_ten_seconds(story: list[float]) -> None:
    ladder = Ladder()
    run(story, ladder)
    assert run([0.5] * int(10 / LOOK_S), ladder, at=1_000.0)[-1] == GuardLevel.NORMAL


@given(STORIES, STORIES)
def test_the_worst_reading_decides(memory: list[float], kv_cache: list[float]) -> None:
    both, worst = Ladder(), Ladder()
    for number, (one, other) in enumerate(zip(memory, kv_cache, strict=False)):
        both.observe({Reading.MEMORY: one, Reading.KV_CACHE: other}, number * LOOK_S)
        worst.observe({Reading.MEMORY: max(one, other)}, number * LOOK_S)
        assert both.level == worst.level


def test_a_reading_without_watermarks_decides_nothing() -> None:
    ladder = Ladder(GuardOptions({}))
    assert set(run([1.0] * 40, ladder)) == {GuardLevel.NORMAL}


def test_a_transition_names_its_cause() -> None:
    ladder = Ladder()
    ladder.observe({Reading.QUEUE_AGE: 2.0, Reading.MEMORY: 0.81}, 0.0)
    assert ladder.observe({Reading.QUEUE_AGE: 2.0, Reading.MEMORY: 0.81}, 1.0) == Transition(
        GuardLevel.NORMAL, GuardLevel.NO_EXTRAS, Reading.QUEUE_AGE, 2.0
    )


# The limits


def test_each_level_limits_what_the_one_below_does_and_more() -> None:
    limits = LoadLimits()
    seen = []
    for limits.level in GuardLevel:
        refused = [priority for priority in Priority if not limits.takes(priority)]
        seen.append((limits.may_speculate, limits.may_keep_warm, limits.caption_stretch, limits.answer_tokens, refused))
    assert seen == [
        (True, True, 1.0, None, []),
        (False, False, 1.0, None, []),
        (False, False, 2.0, None, []),
        (False, False, 3.0, 40, []),
        (False, False, 4.0, 40, [Priority.LOW]),
        (False, False, 4.0, 40, [Priority.LOW, Priority.NORMAL]),
    ]


# The watch


class House:
    """Scripted readings."""

    def __init__(self) -> None:
        self.memory: float | None = 0.5
        self.kv_cache: float | None = None
        self.ages = {"final": 0.0, "partial": 0.0, "transcript": 0.0, "phrase": 0.0}
        self.gpus: tuple[GpuReading, ...] = ()
        self.stretch = 1.0
        self.limits = LoadLimits()
        sources = GuardSources(self, self, lambda: self.kv_cache, self.queue_ages)
        self.watch = GuardWatch(Ladder(), self.limits, sources, self.stretch_captions)

    async def used_share(self) -> float | None:
        return self.memory

    async def read(self) -> tuple[GpuReading, ...]:
        return self.gpus

    async def aclose(self) -> None:
        return

    def queue_ages(self) -> Mapping[str, float]:
        return self.ages

    def stretch_captions(self, factor: float) -> None:
        self.stretch = factor


async def test_pressure_raises_the_level_and_relief_lowers_it() -> None:
    house = House()
    with capture_logs() as logs:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(house.watch.run)
            await anyio.sleep(5)
            assert house.watch.detail == "normal"
            house.memory = 0.86
            await anyio.sleep(10)
            assert house.limits.answer_tokens == 40
            assert not house.limits.takes(Priority.LOW)
            assert house.stretch == 4.0
            assert house.watch.detail == "refuse_low: memory was 0.86"
            assert metrics.GUARD_LEVEL._value.get() == 4
            house.memory = 0.5
            await anyio.sleep(10)
            assert house.limits.takes(Priority.LOW)
            assert house.stretch == 1.0
            tasks.cancel_scope.cancel()
    assert [(line["before"], line["level"]) for line in logs] == [
        ("normal", "no_extras"),
        ("no_extras", "fewer_captions"),
        ("fewer_captions", "short_answers"),
        ("short_answers", "refuse_low"),
        ("refuse_low", "short_answers"),
        ("short_answers", "fewer_captions"),
        ("fewer_captions", "no_extras"),
        ("no_extras", "normal"),
    ]


@pytest.mark.parametrize("queue", ["final", "transcript", "phrase"])
async def test_a_queue_in_which_somebody_waits_for_an_answer_counts(queue: str) -> None:
    house = House()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(house.watch.run)
        house.ages[queue] = 0.6
        await anyio.sleep(5)
        assert house.limits.level == GuardLevel.NO_EXTRAS
        tasks.cancel_scope.cancel()


async def test_work_that_gives_way_may_wait_as_long_as_it_likes() -> None:
    house = House()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(house.watch.run)
        house.ages["partial"] = 60.0
        await anyio.sleep(5)
        assert house.limits.level == GuardLevel.NORMAL
        tasks.cancel_scope.cancel()


async def test_one_long_wait_is_no_load() -> None:
    house = House()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(house.watch.run)
        await anyio.sleep(1)
        house.ages["final"] = 9.0
        await anyio.sleep(0.3)
        house.ages["final"] = 0.0
        await anyio.sleep(5)
        assert house.limits.level == GuardLevel.NORMAL
        tasks.cancel_scope.cancel()


async def test_the_kv_cache_counts_and_gpus_are_shown() -> None:
    house = House()
    house.memory, house.kv_cache = None, 0.99
    house.gpus = (GpuReading("0", 99, 90, 100, 1.0),)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(house.watch.run)
        await anyio.sleep(2)
        assert house.limits.level > GuardLevel.NORMAL
        assert metrics.GPU_UTILIZATION.labels("0")._value.get() == 1.0
        house.kv_cache, house.gpus = 0.0, ()
        await anyio.sleep(10)
        assert house.limits.level == GuardLevel.NORMAL, "a GPU whose memory is taken in advance is no load"
        assert not next(iter(metrics.GPU_UTILIZATION.collect())).samples
        tasks.cancel_scope.cancel()
