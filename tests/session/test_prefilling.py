"""Prefill while the user speaks, in virtual time, with a prefix cache of whole blocks."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise

import anyio
import pytest
from tests.session.harness import persona, world

from duolog.adapters.scripted_asr import in_order
from duolog.adapters.scripted_llm import Line, ScriptedLanguageModel, ScriptedOptions
from duolog.ports.errors import EngineUnavailable
from duolog.ports.llm import ChatMessage, GenerationEnd, GenerationRequest, PromptEnd, Role, Sampling, TextDelta
from duolog.serving.batcher import Batcher, BatcherRequest
from duolog.serving.placement import Placed, Placement
from duolog.serving.policies import RequestClass
from duolog.serving.policies.slo import SloPolicy
from duolog.serving.prefill import CHUNK_TOKENS
from duolog.session.events import AudioDelta, ResponseDone, TurnTimings
from duolog.session.prefilling import Prefilling

pytestmark = pytest.mark.session

PREFILL_TOKEN_S = 0.001
"""As one core of a CPU computes."""
STORY = "word " * 1_400


@dataclass
class Bench:
    """One call's prefills over a batcher that others use too."""

    engine: ScriptedLanguageModel
    batcher: Batcher
    history: str = STORY

    def __post_init__(self) -> None:
        self.prefilling = Prefilling(self.batcher, "anna", self.messages)

    def messages(self, said: str) -> tuple[ChatMessage, ...]:
        return (ChatMessage(Role.SYSTEM, self.history), ChatMessage(Role.USER, said))

    def final(self, said: str) -> tuple[int, ...]:
        return self.batcher.prompt_ids(self.messages(said), PromptEnd.ANSWER)

    async def first_token_s(self, said: str) -> float:
        """Ask as a turn does; the time to the first token."""
        ids = self.final(said)
        self.prefilling.final(ids)
        started = anyio.current_time()
        generation = GenerationRequest("final", (), Sampling(max_tokens=3), session_id="anna", prompt_ids=ids)
        async with aclosing(self.batcher.generate(BatcherRequest(generation, RequestClass.FINAL, 0.0))) as stream:
            async for part in stream:
                if isinstance(part, TextDelta):
                    return anyio.current_time() - started
        raise AssertionError("no token came")

    def lengths(self) -> list[int]:
        return [len(request.prompt_ids) for request in self.engine.prefills]


@asynccontextmanager
async def bench(placement: Placement | None = None) -> AsyncGenerator[Bench, None]:
    lines = {"*": Line("one two three")}
    engine = ScriptedLanguageModel(ScriptedOptions(lines, prefill_token_s=PREFILL_TOKEN_S, context_tokens=8_192))
    one = Bench(engine, Batcher(engine, SloPolicy(), None, placement))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(one.prefilling.run)
        await anyio.wait_all_tasks_blocked()
        yield one
        tasks.cancel_scope.cancel()


async def test_a_long_history_is_ready_when_the_user_has_spoken() -> None:
    async with bench() as one:
        cold = await one.first_token_s("What is new?")
    async with bench() as one:
        one.prefilling.history_changed()
        await one.prefilling.idle.wait()
        warm = await one.first_token_s("What is new?")
    assert cold > 1.4
    assert warm < 0.1


class Moving:
    """Two replicas; the call is moved from one to the other."""

    def __init__(self) -> None:
        self.replica = "a"

    def place(self, request: GenerationRequest) -> Placed:
        return Placed(self.replica)


async def test_another_replica_gets_the_prompt_from_its_beginning() -> None:
    placement = Moving()
    async with bench(placement) as one:
        one.prefilling.history_changed()
        await one.prefilling.idle.wait()
        before = one.lengths()
        one.prefilling.caption("Well, there is a lot that I would like to know " * 4)
        await one.prefilling.idle.wait()
        assert len(one.lengths()) < 2 * len(before), "at the same replica only what is new"
        known = len(one.lengths())
        placement.replica = "b"
        one.prefilling.caption("Well, there is a lot that I would like to know " * 8)
        await one.prefilling.idle.wait()
    assert one.lengths()[known : known + len(before) - 1] == before[:-1]


async def test_a_cold_history_is_sent_in_chunks() -> None:
    async with bench() as one:
        one.prefilling.history_changed()
        await one.prefilling.idle.wait()
        lengths = one.lengths()
    assert lengths[:3] == [CHUNK_TOKENS, 2 * CHUNK_TOKENS, 3 * CHUNK_TOKENS]
    assert max(later - earlier for earlier, later in pairwise(lengths)) <= CHUNK_TOKENS


async def test_a_history_that_is_there_is_not_asked_for_again() -> None:
    async with bench() as one:
        for _ in range(5):
            one.prefilling.history_changed()
            await one.prefilling.idle.wait()
        assert len(one.lengths()) == len(set(one.lengths()))


async def test_captions_are_computed_as_they_fill_blocks() -> None:
    async with bench() as one:
        one.history = "Be kind."
        for count in range(1, 201):
            one.prefilling.caption("hello " * count)
            await anyio.sleep(0.3)
        assert 5 <= len(one.lengths()) <= 7, "one for each 32 of 200 words"
        assert {request.priority for request in one.engine.prefills} == {20}
        assert await one.first_token_s("hello " * 200) < 0.08


async def test_of_captions_that_wait_only_the_newest_is_computed() -> None:
    async with bench() as one:
        one.history = "Be kind."
        other = GenerationRequest(
            "other", (), Sampling(), session_id="ben", prompt_ids=tuple(range(1_000)), prefill=True
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_collect, one.batcher, BatcherRequest(other, RequestClass.NEXT_TURN, 0.0))
            await anyio.wait_all_tasks_blocked()
            for count in range(40, 120, 8):
                one.prefilling.caption("hello " * count)
                await anyio.sleep(0.01)
            assert one.batcher.snapshot().queued[RequestClass.PARTIAL] == 1
        await one.prefilling.idle.wait()
        assert one.lengths() == [1_000, 96], "the newest caption, in one piece"


async def test_a_final_waits_for_no_more_than_the_chunk_that_runs() -> None:
    async with bench() as one:
        one.prefilling.history_changed()
        await anyio.sleep(0.3)
        one.history = "Something else entirely. " * 20
        assert await one.first_token_s("What is new?") < 0.35
        assert one.batcher.snapshot().aborted_in_engine[RequestClass.NEXT_TURN] == 1
        await one.prefilling.idle.wait()
        count = len(one.lengths())
        await anyio.sleep(5)
        assert len(one.lengths()) == count, "the rest of the chunks was given up"


async def test_a_final_lets_a_prefill_run_that_computes_what_it_needs() -> None:
    async with bench() as one:
        one.prefilling.history_changed()
        await anyio.sleep(0.3)
        await one.first_token_s("What is new?")
        assert sum(one.batcher.snapshot().aborted_in_engine.values()) == 1, "only the final, which was read no further"
        assert one.batcher.snapshot().aborted_in_engine[RequestClass.FINAL] == 1


async def test_a_final_withdraws_the_partial_that_waits() -> None:
    async with bench() as one:
        one.history = "Be kind."
        other = GenerationRequest(
            "other", (), Sampling(), session_id="ben", prompt_ids=tuple(range(1_000)), prefill=True
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_collect, one.batcher, BatcherRequest(other, RequestClass.NEXT_TURN, 0.0))
            await anyio.wait_all_tasks_blocked()
            one.prefilling.caption("hello " * 100)
            await anyio.wait_all_tasks_blocked()
            one.prefilling.final(one.final("hello " * 100))
            await anyio.wait_all_tasks_blocked()
            assert one.batcher.snapshot().queued[RequestClass.PARTIAL] == 0
        assert one.lengths() == [1_000]


async def test_a_caption_that_comes_late_is_not_computed_after_its_final() -> None:
    async with bench() as one:
        one.history = "Be kind."
        await one.first_token_s("hello " * 100)
        one.prefilling.caption("hello " * 98)
        await one.prefilling.idle.wait()
        assert one.lengths() == []


async def test_a_final_that_failed_has_computed_nothing() -> None:
    async with bench() as one:
        one.history = "Be kind."
        ids = one.final("hello " * 100)
        one.prefilling.final(ids)
        one.prefilling.final_failed(ids)
        one.prefilling.caption("hello " * 98)
        await one.prefilling.idle.wait()
        assert one.lengths() == [96]


async def test_a_failed_prefill_is_tried_again_with_the_next_change() -> None:
    async with bench() as one:
        good = one.engine.generate

        async def bad(request: GenerationRequest) -> AsyncGenerator[TextDelta | GenerationEnd, None]:
            if request.prefill:
                raise EngineUnavailable("gone", engine="llm")
            yield TextDelta("one")

        one.engine.generate = bad  # type: ignore[method-assign]
        one.prefilling.history_changed()
        await one.prefilling.idle.wait()
        one.engine.generate = good  # type: ignore[method-assign]
        await anyio.sleep(60)
        assert one.lengths() == []
        one.prefilling.history_changed()
        await one.prefilling.idle.wait()
        assert one.lengths()[-1] > 1_300


async def test_the_prompts_of_a_call_are_cached_from_the_second_turn_on() -> None:
    lines = {"*": Line("Fine, thank you, and I would like to hear about your day. " * 3)}
    script = in_order(*[f"Well, this is what I say in turn {number}, and it is no secret." for number in range(6)])
    one = persona(instructions="Be kind and answer in few words. " * 60)
    async with world(script=script, lines=lines, one=one) as w, w.call() as caller:
        await caller.pause(0.5)
        for number in range(1, 7):
            await caller.say(2.0)
            await caller.wait_for(ResponseDone, number)
            await caller.wait_for_state("listening")
    timings = caller.of(TurnTimings)
    assert len(timings) == 6
    assert all(timing.prompt_tokens > 400 for timing in timings)
    assert [timing.cached_tokens / timing.prompt_tokens > 0.9 for timing in timings] == [True] * 6


async def test_after_an_interruption_the_cut_answer_is_prefilled() -> None:
    lines = {"*": Line("Well, let me tell you all about it. " * 14)}
    async with world(lines=lines) as w, w.call() as caller:
        await caller.say(1.0)
        await caller.wait_for(AudioDelta)
        await caller.pause(2.0)
        before = len(w.llm.prefills)
        await caller.say(1.0)
        await caller.pause(0.2)
        cut = w.llm.prefills[before:]
        assert cut
        await caller.wait_for(ResponseDone, 2)
    final = w.llm.requests[-1].prompt_ids
    assert final[: len(cut[-1].prompt_ids)] == cut[-1].prompt_ids


async def test_a_call_that_ends_leaves_nothing_in_the_engine() -> None:
    async with bench() as one:
        one.prefilling.history_changed()
        await anyio.sleep(0.05)
        assert one.engine.running == 1
    assert one.engine.running == 0


async def _collect(batcher: Batcher, request: BatcherRequest) -> None:
    async with aclosing(batcher.generate(request)) as stream:
        async for _ in stream:
            pass
