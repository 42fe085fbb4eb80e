"""A long prefill goes in pieces, and whatever is urgent goes between them."""

from __future__ import annotations

from contextlib import aclosing

import anyio
import pytest
from benchmarks.mixed_load import LoadShape, finals, first_token_quantile_s, mixed_load, play
from tests.serving.simulated_engine import SimulatedOptions, simulated_engine
from trio.testing import MockClock

from duolog.ports.llm import FinishReason, GenerationEnd, GenerationRequest, LanguageModel, Sampling, TextDelta
from duolog.serving.batcher import Admitted, Batcher, BatcherOptions, BatcherRequest, Outcome
from duolog.serving.policies import DirectPolicy, PolicyOptions, RequestClass
from duolog.serving.policies.factory import PolicyName, make_policy
from duolog.serving.predictor import ServiceTimePredictor

pytestmark = pytest.mark.session

CHUNK = 128


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return "trio", {"clock": MockClock(autojump_threshold=0)}


def in_pieces(engine: LanguageModel) -> Batcher:
    return Batcher(engine, DirectPolicy(), BatcherOptions(prefill_chunk_tokens=CHUNK))


def asking(tokens: int, *, prefill: bool = True, name: str = "long", first: int = 0) -> BatcherRequest:
    ids = tuple(range(first, first + tokens))
    generation = GenerationRequest(name, (), Sampling(max_tokens=1), session_id=name, prompt_ids=ids, prefill=prefill)
    klass = RequestClass.NEXT_TURN if prefill else RequestClass.FINAL
    return BatcherRequest(generation, klass, anyio.current_time())


async def collect(batcher: Batcher, request: BatcherRequest) -> list[Admitted | TextDelta | GenerationEnd]:
    async with aclosing(batcher.generate(request)) as stream:
        return [value async for value in stream]


async def test_pieces_grow_by_a_chunk_and_are_one_stream() -> None:
    async with simulated_engine() as engine:
        batcher = in_pieces(engine)
        admitted, end = await collect(batcher, asking(300))
    assert isinstance(admitted, Admitted)
    assert isinstance(end, GenerationEnd)
    assert (end.usage.prompt_tokens, end.usage.cached_tokens) == (300, 0)
    assert batcher.snapshot().ended[Outcome.FINISHED] == 3


async def test_what_is_cached_is_no_piece_and_answers_go_whole() -> None:
    async with simulated_engine() as engine:
        batcher = in_pieces(engine)
        await collect(batcher, asking(256))
        before = batcher.snapshot().arrived
        _, end = await collect(batcher, asking(380))
        assert isinstance(end, GenerationEnd)
        assert end.usage.cached_tokens == 256
        await collect(batcher, asking(900, prefill=False, name="answer"))
        assert batcher.snapshot().arrived - before == 2


async def test_pieces_are_shorter_on_an_engine_that_is_slower_and_never_less_than_a_block() -> None:
    for token_s, pieces in ((0.003, 8), (0.1, 16)):
        async with simulated_engine(SimulatedOptions(prefill_token_s=token_s)) as engine:
            batcher = in_pieces(engine)
            for number in range(25):
                await collect(batcher, asking(40, name=f"teaches-{number}", prefill=False, first=1_000 * number))
            before = batcher.snapshot().arrived
            await collect(batcher, asking(512, first=50_000))
            assert batcher.snapshot().arrived - before == pytest.approx(pieces, abs=2)


async def test_cancelling_ends_the_piece_that_runs_and_sends_no_other() -> None:
    async with simulated_engine() as engine:
        batcher = in_pieces(engine)
        with anyio.move_on_after(0.2):
            await collect(batcher, asking(1_000))
        assert engine.running == 0
        assert batcher.snapshot().ended[Outcome.ABORTED] == 1
        assert batcher.snapshot().arrived == 2


async def test_a_newer_prefill_of_the_session_replaces_the_pieces_that_are_left() -> None:
    ends: list[GenerationEnd] = []
    async with simulated_engine() as engine:
        predictor = ServiceTimePredictor()
        policy = make_policy(PolicyName.SLO, PolicyOptions(), predictor)
        batcher = Batcher(engine, policy, BatcherOptions(prefill_chunk_tokens=CHUNK), predictor=predictor)

        async def one(request: BatcherRequest) -> None:
            end = (await collect(batcher, request))[-1]
            assert isinstance(end, GenerationEnd)
            ends.append(end)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(one, asking(1_000, name="other"))
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(one, asking(1_000, name="call"))
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(one, asking(1_200, name="call"))
    assert sorted(end.reason for end in ends) == [FinishReason.ABORTED, FinishReason.LENGTH, FinishReason.LENGTH]


@pytest.mark.slow
async def test_pieces_shorten_the_tail_of_finals() -> None:
    shape = LoadShape(calls=12, turns=3, history_tokens=(60, 120), join_s=8, prefills=12, prefill_s=18)
    tails = []
    for chunk in (None, CHUNK):
        async with simulated_engine() as engine:
            predictor = ServiceTimePredictor()
            policy = make_policy(PolicyName.SLO, PolicyOptions(), predictor)
            options = BatcherOptions(max_queued=1_000, prefill_chunk_tokens=chunk)
            outcomes = await play(Batcher(engine, policy, options, predictor=predictor), mixed_load(shape))
        assert all(outcome.finished for outcome in finals(outcomes))
        tails.append(first_token_quantile_s(outcomes, 0.99))
    assert tails[1] <= 0.8 * tails[0]
