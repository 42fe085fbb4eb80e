"""KV pins: names of blocks, what a replica holds, who is kept, where a session goes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from duolog.adapters.scripted_llm import ScriptedLanguageModel
from duolog.ports.errors import EngineUnavailable
from duolog.ports.llm import GenerationRequest, Sampling
from duolog.ports.pin_store import PinRecord, Route
from duolog.ports.replicas import BlocksRemoved, BlocksStored, EventsLost, KvEvent, ReplicaStats
from duolog.serving.batcher import Batcher, BatcherRequest, RequestClass
from duolog.serving.guard import GuardLevel
from duolog.serving.load_limits import LoadLimits
from duolog.serving.pins.chains import Chain
from duolog.serving.pins.choice import OVERRIDE_TOKENS, Candidate, choose
from duolog.serving.pins.keep_warm import Due, KeepWarm, KeepWarmOptions, TouchReason
from duolog.serving.pins.keeper import PinKeeper, PinSources, apply_event
from duolog.serving.pins.observed_engine import ObservedEngine
from duolog.serving.pins.placement import PinnedPlacement, PinOptions, Replica
from duolog.serving.pins.residency import ResidencyMap
from duolog.serving.policies import DirectPolicy

pytestmark = pytest.mark.session
IDS = st.lists(st.integers(0, 3), max_size=40).map(tuple)


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "trio", {"clock": MockClock(autojump_threshold=0)}


# Chains


@given(IDS, IDS)
def test_a_chain_is_the_same_however_it_was_come_by(first: tuple[int, ...], then: tuple[int, ...]) -> None:
    empty = Chain(4)
    assert empty.of(first).of(then) == empty.of(then)
    assert len(empty.of(then).hashes) == len(then) // 4


@given(IDS, IDS)
def test_chains_share_the_names_of_the_blocks_they_share(one: tuple[int, ...], other: tuple[int, ...]) -> None:
    hashes, others = Chain(4).of(one).hashes, Chain(4).of(other).hashes
    for block, (name, twin) in enumerate(zip(hashes, others, strict=False)):
        assert (name == twin) == (one[: 4 * block + 4] == other[: 4 * block + 4])


def test_a_touch_uses_every_block_and_computes_one_token() -> None:
    assert [len(Chain(4).of(tuple(range(length))).touch_ids) for length in (0, 3, 4, 5, 8, 9, 11)] == [
        *(0, 0, 0, 5, 5),
        *(9, 9),
    ]


# Residency


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5))))
def test_a_block_is_there_while_a_copy_is(history: list[tuple[bool, int]]) -> None:
    residency, copies = ResidencyMap(), dict.fromkeys(range(6), 0)
    for stored, name in history:
        (residency.stored if stored else residency.removed)([name])
        copies[name] = copies[name] + 1 if stored else max(0, copies[name] - 1)
        assert {name for name in copies if name in residency} == {name for name, count in copies.items() if count}


def test_a_chain_is_resident_up_to_its_first_gap() -> None:
    residency = ResidencyMap()
    residency.stored([1, 2, 4])
    assert residency.resident_blocks([1, 2, 3, 4]) == 2


def test_usage_is_believed_until_events_say_otherwise() -> None:
    residency = ResidencyMap()
    residency.believe([1, 2])
    residency.stored([1])
    residency.removed([1, 2])
    assert len(residency) == 0, "the event of a block that usage told of before is the same copy"


def test_without_events_the_newest_blocks_that_fit_are_held_to_be_there() -> None:
    residency = ResidencyMap()
    residency.capacity_blocks = 2
    residency.believe([1, 2])
    residency.believe([1])
    residency.believe([3])
    assert [name in residency for name in (1, 2, 3)] == [True, False, True]
    assert residency.allocated_blocks == 3


# Keeping warm


def kept(total: int = 20, **options: float) -> tuple[KeepWarm, ResidencyMap]:
    residency = ResidencyMap()
    keep = KeepWarm(KeepWarmOptions(**options), residency)
    keep.total_blocks = total
    return keep, residency


def test_a_full_budget_keeps_those_it_has_and_not_the_newcomer() -> None:
    keep, _ = kept()
    for number in range(4):
        keep.used(f"s{number}", range(4 * number, 4 * number + 4), now=number)
    assert keep.sessions == ("s0", "s1")
    keep.used("s3", range(12, 16), now=61.5)
    assert keep.sessions == ("s1", "s3"), "who has not spoken for long gives way, the longest silent first"


def test_a_shared_beginning_takes_its_room_once() -> None:
    keep, _ = kept()
    for number in range(5):
        keep.used(f"s{number}", [0, 1, 2, 3, 4, 10 + number], now=0)
    assert (len(keep), keep.blocks) == (5, 10)
    keep.drop("s0")
    assert keep.blocks == 9


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 6), st.integers(0, 90)), max_size=30))
def test_the_budget_holds_and_nobody_protected_is_put_out(history: list[tuple[int, int, int]]) -> None:
    keep, _ = kept()
    now = 0
    used_at: dict[str, int] = {}
    for who, blocks, later in history:
        now += later
        before = set(keep.sessions)
        keep.used(f"s{who}", [100 * who + block for block in range(blocks)], now)
        assert keep.blocks <= keep.budget_blocks
        gone = before - set(keep.sessions) - {f"s{who}"}
        assert all(now - used_at[name] > 60 for name in gone)
        used_at[f"s{who}"] = now


def test_touches_follow_allocation_and_loss() -> None:
    keep, residency = kept(total=20, touch_share=0.5)
    residency.stored([1, 2, 3, 4])
    keep.used("s", [1, 2, 3, 4], now=0)
    residency.stored(range(100, 108))
    assert keep.due() == [], "8 of the 16 blocks that are not kept"
    residency.stored([200])
    assert keep.due() == [Due("s", TouchReason.ALLOCATED)]
    keep.touched("s")
    assert keep.due() == []
    residency.removed([4])
    assert keep.due() == [Due("s", TouchReason.EVICTED)]


def test_nothing_is_kept_in_a_cache_of_unknown_size() -> None:
    keep, _ = kept()
    keep.total_blocks = None
    keep.used("s", [1], now=0)
    assert len(keep) == 0


# Choice


def test_a_session_stays_unless_its_replica_is_much_further_from_the_first_token() -> None:
    home, other = Candidate("a", busy_tokens=OVERRIDE_TOKENS + 300), Candidate("b", missing_tokens=300)
    assert choose("s", [home, other], "a") == "a"
    assert choose("s", [Candidate("a", busy_tokens=OVERRIDE_TOKENS + 301), other], "a") == "b"
    assert choose("s", [Candidate("a", kv_usage_ratio=0.95), Candidate("b")], "a") == "b"


def test_a_session_whose_replica_is_away_goes_to_the_one_that_has_its_blocks() -> None:
    assert choose("s", [Candidate("b", missing_tokens=900), Candidate("c", missing_tokens=40)], "a") == "c"


def test_new_sessions_spread() -> None:
    assert choose("s", [Candidate("a", sessions=3), Candidate("b", sessions=2)]) == "b"


@given(st.sets(st.text("abcdef", min_size=1), min_size=2, max_size=5), st.text(max_size=8))
def test_by_hash_a_replica_less_moves_only_its_own_sessions(replicas: set[str], session: str) -> None:
    before = choose(session, [Candidate(name) for name in sorted(replicas)], by_hash=True)
    for gone in replicas - {before}:
        left = [Candidate(name, sessions=9) for name in sorted(replicas - {gone}, reverse=True)]
        assert choose(session, left, by_hash=True) == before


# Placement, observed engine and keeper together

OPTIONS = PinOptions(keep_warm=KeepWarmOptions(touch_share=0.5))
LONG = tuple(range(330))


class Monitor:
    """64 blocks each; `epochs` may change."""

    def __init__(self) -> None:
        self.epochs = {"a": "1", "b": "1"}

    async def stats(self, replica: str) -> ReplicaStats:
        return ReplicaStats(self.epochs[replica], 64 * 32, 0.0, 0, 0)

    async def aclose(self) -> None: ...


class Store:
    """As Redis would answer; `there` False: it is gone."""

    def __init__(self) -> None:
        self.routes: dict[str, Route] = {}
        self.there = True

    async def claim(self, records: Sequence[PinRecord], live: Mapping[str, str]) -> list[Route]:
        if not self.there:
            raise EngineUnavailable("gone", engine="store")
        for record in records:
            known = self.routes.get(record.session_id)
            if known is None or record.moved_from == known.replica or live.get(known.replica) != known.epoch:
                self.routes[record.session_id] = Route(record.session_id, record.replica, record.epoch)
        return [self.routes[record.session_id] for record in records]

    async def aclose(self) -> None: ...


class House:
    """One server process over two replicas that are one scripted engine."""

    def __init__(self, store: Store, monitor: Monitor) -> None:
        self.engine = ScriptedLanguageModel()
        self.pins = PinnedPlacement(("a", "b"), OPTIONS)
        self.batcher = Batcher(ObservedEngine(self.engine, self.pins), DirectPolicy(), placement=self.pins)
        self.limits = LoadLimits()
        self.keeper = PinKeeper(self.pins, self.batcher, PinSources({}, monitor, store), self.limits)

    async def turn(self, session: str, ids: tuple[int, ...] = LONG) -> None:
        request = GenerationRequest(f"r-{session}", (), Sampling(), session, prompt_ids=ids, prefill=True)
        async for _ in self.batcher.generate(BatcherRequest(request, RequestClass.NEXT_TURN, 0.0)):
            pass

    def touches(self) -> list[GenerationRequest]:
        return [request for request in self.engine.prefills if request.request_id.startswith("touch_")]


async def settled() -> None:
    await anyio.sleep(5)


async def is_gone(house: House) -> bool:
    await settled()
    return house.pins.store_is_gone


async def test_a_session_sticks_and_its_blocks_are_known() -> None:
    house = House(Store(), Monitor())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(house.keeper.run)
        await settled()
        await house.turn("s1")
        await house.turn("s2", tuple(range(1000, 1330)))
        first, second = house.pins.sessions["s1"].replica, house.pins.sessions["s2"].replica
        assert {first, second} == {"a", "b"}
        request = GenerationRequest("r", (), Sampling(), "s1", prompt_ids=(*LONG, 7, 7))
        placed = house.pins.place(request)
        assert (placed.replica, placed.cached_tokens) == (first, 320)
        tasks.cancel_scope.cancel()


async def test_a_dead_replicas_sessions_are_computed_at_another_in_chunks() -> None:
    house = House(Store(), Monitor())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(house.keeper.run)
        await settled()
        await house.turn("s1")
        dead = house.pins.sessions["s1"].replica
        house.pins.set_alive(dead, alive=False)
        await settled()
        session = house.pins.sessions["s1"]
        assert session.replica != dead
        assert [len(touch.prompt_ids) for touch in house.touches()] == [128, 256, 321]
        assert {touch.replica for touch in house.touches()} == {session.replica}
        assert house.pins.resident_tokens(session) == 320
        tasks.cancel_scope.cancel()


async def test_a_restart_is_known_by_its_epoch() -> None:
    monitor = Monitor()
    house = House(Store(), monitor)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(house.keeper.run)
        await settled()
        await house.turn("s1")
        session = house.pins.sessions["s1"]
        monitor.epochs[session.replica] = "2"
        await settled()
        assert session.epoch == "2"
        assert house.touches(), "what was kept there is computed again"
        assert house.pins.resident_tokens(session) == 320
        tasks.cancel_scope.cancel()


async def test_another_server_takes_a_session_up_at_the_same_replica_and_does_without_the_store() -> None:
    store, monitor = Store(), Monitor()
    one, other = House(store, monitor), House(store, monitor)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(one.keeper.run)
        tasks.start_soon(other.keeper.run)
        await settled()
        for number in range(8):
            await one.turn(f"s{number}", (number,) * 100)
        await settled()
        for number in reversed(range(8)):
            await other.turn(f"s{number}", (number,) * 100)
        await settled()
        routes = {name: session.replica for name, session in one.pins.sessions.items()}
        assert {name: session.replica for name, session in other.pins.sessions.items()} == routes
        store.there = False
        await one.turn("later")
        assert await is_gone(one)
        store.there = True
        assert not await is_gone(one)
        assert "later" in store.routes
        tasks.cancel_scope.cancel()


async def test_kept_sessions_are_touched_as_the_cache_moves_on() -> None:
    house = House(Store(), Monitor())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(house.keeper.run)
        await settled()
        await house.turn("s1")
        replica = house.pins.replicas[house.pins.sessions["s1"].replica]
        apply_event(replica, BlocksStored(tuple(range(28))))
        await settled()
        assert [(len(touch.prompt_ids), touch.session_id) for touch in house.touches()] == [(321, "s1")]
        apply_event(replica, BlocksRemoved(house.pins.sessions["s1"].asked.hashes[-1:]))
        await settled()
        assert len(house.touches()) == 2
        assert house.pins.resident_tokens(house.pins.sessions["s1"]) == 320
        tasks.cancel_scope.cancel()


async def test_nobody_is_touched_under_load() -> None:
    house = House(Store(), Monitor())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(house.keeper.run)
        await settled()
        await house.turn("s1")
        house.limits.level = GuardLevel.NO_EXTRAS
        apply_event(house.pins.replicas[house.pins.sessions["s1"].replica], BlocksStored(tuple(range(28))))
        await settled()
        assert house.touches() == []
        house.limits.level = GuardLevel.NORMAL
        await settled()
        assert len(house.touches()) == 1
        tasks.cancel_scope.cancel()


async def test_news_that_was_lost_voids_the_map() -> None:
    class News:
        async def read(self) -> AsyncGenerator[KvEvent, None]:
            yield BlocksStored((1, 2))
            yield EventsLost()
            yield BlocksStored((3,))
            await anyio.sleep_forever()

    house = House(Store(), Monitor())
    keeper = PinKeeper(house.pins, house.batcher, PinSources({"a": News()}))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(keeper.run)
        await settled()
        assert [name in house.pins.replicas["a"].residency for name in (1, 2, 3)] == [False, False, True]
        tasks.cancel_scope.cancel()


async def test_a_session_that_is_silent_for_long_is_forgotten() -> None:
    house = House(Store(), Monitor())
    await house.turn("s1")
    house.pins.forget_idle(anyio.current_time() + OPTIONS.forget_after_s + 1)
    assert house.pins.sessions == {}


async def test_usage_is_believed_against_events() -> None:
    house = House(Store(), Monitor())
    await house.turn("s1")
    replica: Replica = house.pins.replicas[house.pins.sessions["s1"].replica]
    house.engine.evict()
    wrong = (*LONG[:320], *range(500, 640))
    replica.residency.believe(Chain(32).of(wrong).hashes)
    await house.turn("s1", wrong)
    assert replica.residency.resident_blocks(Chain(32).of(wrong).hashes) == 14
