"""Policies before a simulated engine in virtual time: what a load of many calls does to those who wait."""

from __future__ import annotations

from contextlib import aclosing

import anyio
import pytest
from benchmarks.mixed_load import LoadShape, finals, first_token_quantile_s, mixed_load, play
from benchmarks.mixed_load import Outcome as Played
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.serving.simulated_engine import SimulatedEngine, simulated_engine
from trio.testing import MockClock

from duolog.ports.llm import GenerationRequest, Sampling
from duolog.serving.batcher import Admitted, Batcher, BatcherOptions, BatcherRequest
from duolog.serving.policies import PolicyOptions, RequestClass
from duolog.serving.policies.factory import PolicyName, make_policy
from duolog.serving.predictor import ServiceTimePredictor

pytestmark = pytest.mark.session

BUSY = LoadShape(calls=8, turns=4, history_tokens=(60, 120), prefills=16)
ALONE = LoadShape(calls=1, turns=6)


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return "trio", {"clock": MockClock(autojump_threshold=0)}


def batcher_with(name: PolicyName, engine: SimulatedEngine, *, one_batch: bool = False) -> Batcher:
    predictor = ServiceTimePredictor()
    policy = make_policy(name, PolicyOptions(one_batch_at_a_time=one_batch), predictor)
    return Batcher(engine, policy, BatcherOptions(max_queued=1_000), predictor=predictor)


async def played(name: PolicyName, shape: LoadShape) -> list[Played]:
    async with simulated_engine() as engine:
        return await play(batcher_with(name, engine), mixed_load(shape))


@pytest.mark.slow
async def test_slo_halves_the_tail_of_direct_and_of_token_window() -> None:
    slo = await played(PolicyName.SLO, BUSY)
    assert all(outcome.finished for outcome in finals(slo))
    for other in (PolicyName.DIRECT, PolicyName.TOKEN_WINDOW):
        compared = await played(other, BUSY)
        assert first_token_quantile_s(slo, 0.99) <= 0.5 * first_token_quantile_s(compared, 0.99)


async def test_one_call_alone_never_waits() -> None:
    for outcome in finals(await played(PolicyName.SLO, ALONE)):
        assert outcome.waited_s == 0.0


async def test_no_more_than_one_prefill_runs_and_none_beside_waiting_finals() -> None:
    async with simulated_engine() as engine:
        batcher = batcher_with(PolicyName.SLO, engine)
        await play(batcher, mixed_load(LoadShape(calls=0, prefills=12, prefill_s=2.0)))
        assert engine.most_prefills == 1


@pytest.mark.slow
async def test_the_predictor_has_learnt_the_engine() -> None:
    predictor = ServiceTimePredictor()
    async with simulated_engine() as engine:
        policy = make_policy(PolicyName.SLO, PolicyOptions(), predictor)
        await play(Batcher(engine, policy, predictor=predictor), mixed_load(LoadShape(calls=3, turns=10)))
    assert predictor.error_ratio("") < 0.3
    assert predictor.prefill_s("", 1_000) == pytest.approx(1.0, rel=0.3)


def request(number: int, klass: RequestClass, tokens: int, session: int) -> BatcherRequest:
    generation = GenerationRequest(
        f"r-{number}",
        (),
        Sampling(max_tokens=5 if klass is RequestClass.FINAL else 1),
        session_id=f"call-{session}",
        prompt_ids=tuple(range(session * 10_000, session * 10_000 + tokens)),
        prefill=klass is not RequestClass.FINAL,
    )
    return BatcherRequest(generation, klass, anyio.current_time() + 0.5)


arrivals = st.lists(
    st.tuples(
        st.floats(0, 2),
        st.sampled_from(RequestClass),
        st.integers(1, 600),
        st.integers(0, 4),
        st.one_of(st.none(), st.floats(0, 1.5)),
    ),
    max_size=25,
)


@pytest.mark.slow
@settings(max_examples=40)
@given(st.sampled_from(PolicyName), st.booleans(), arrivals)
async def test_every_request_ends_exactly_once_whatever_happens(
    name: PolicyName, one_batch: bool, drawn: list[tuple[float, RequestClass, int, int, float | None]]
) -> None:
    async with simulated_engine() as engine:
        batcher = batcher_with(name, engine, one_batch=one_batch)
        ended: list[int] = []

        async def one(number: int) -> None:
            at_s, klass, tokens, session, leaves_after_s = drawn[number]
            await anyio.sleep(at_s)
            with anyio.move_on_after(leaves_after_s):
                async with aclosing(batcher.generate(request(number, klass, tokens, session))) as stream:
                    async for _ in stream:
                        pass
                ended.append(number)

        async with anyio.create_task_group() as tasks:
            for number in range(len(drawn)):
                tasks.start_soon(one, number)
        snapshot = batcher.snapshot()
        stayed = sum(leaves is None for *_, leaves in drawn)
        assert sum(snapshot.queued.values()) == sum(snapshot.in_flight.values()) == 0
        assert snapshot.arrived == sum(snapshot.ended.values())
        assert len(ended) >= stayed
        assert engine.running == 0


async def test_a_session_that_floods_delays_another_by_its_share_only() -> None:
    async with simulated_engine() as engine:
        batcher = batcher_with(PolicyName.SLO, engine)
        waited: dict[int, float] = {}

        async def one(number: int, session: int) -> None:
            async with aclosing(batcher.generate(request(number, RequestClass.FINAL, 120, session))) as stream:
                async for part in stream:
                    if isinstance(part, Admitted):
                        waited[number] = part.waited_s

        async with anyio.create_task_group() as tasks:
            for number in range(60):
                tasks.start_soon(one, number, 1)
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(one, 99, 2)
        assert waited[99] <= 1.0, "one round of what ran before it, not sixty answers"
        assert max(waited.values()) > 2.0
