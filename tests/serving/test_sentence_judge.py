"""The chat model's opinion on the end of a sentence: what it is asked, what its answer means, what it may cost."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

import anyio
import pytest
from trio.testing import MockClock

from duolog.adapters.scripted_llm import ScriptedLanguageModel, ScriptedOptions
from duolog.ports.errors import EngineUnavailable
from duolog.ports.llm import (
    ChatMessage,
    FinishReason,
    GenerationEnd,
    GenerationRequest,
    PromptEnd,
    Role,
    Sampling,
    TextDelta,
    TokenChance,
    TokenUsage,
)
from duolog.serving.batcher import Batcher, BatcherRequest, RequestClass
from duolog.serving.policies.slo import SloPolicy
from duolog.serving.sentence_judge import AskOptions, SentenceEnd, SentenceJudge, chance_of_end

pytestmark = pytest.mark.session


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return "trio", {"clock": MockClock(autojump_threshold=0)}


class Absent(ScriptedLanguageModel):
    async def generate(self, request: GenerationRequest) -> AsyncGenerator[TextDelta | GenerationEnd, None]:
        if request.likeliest:
            raise EngineUnavailable("The engine has gone; restart it.", engine="llm")
        yield GenerationEnd(FinishReason.STOP, TokenUsage())


class Secretive(ScriptedLanguageModel):
    """Keeps its token ids to itself."""

    def prompt_ids(self, messages: tuple[ChatMessage, ...], end: PromptEnd) -> tuple[int, ...]:
        return ()


def judge_of(llm: ScriptedLanguageModel, options: AskOptions | None = None) -> SentenceJudge:
    return SentenceJudge(Batcher(llm, SloPolicy()), options)


def test_what_ends_a_sentence_is_added_up() -> None:
    likely = [TokenChance("", 0.2), TokenChance(".", 0.1), TokenChance(' ?"', 0.05), TokenChance("。", 0.05)]
    others = [TokenChance(",", 0.3), TokenChance(" the", 0.2), TokenChance(" ", 0.1)]
    assert chance_of_end([*likely, *others]) == pytest.approx(0.4)
    assert chance_of_end(others) == 0
    assert chance_of_end([]) is None


@pytest.mark.parametrize("heard", ["I want the.", "I want the...", "I want the, ", "I want the—", "I want the"])
async def test_the_recognisers_own_ending_is_not_shown_to_the_model(heard: str) -> None:
    llm = ScriptedLanguageModel(ScriptedOptions(ends={"I want the": 0.01}))
    assert await judge_of(llm).judge(heard) == pytest.approx(0.01)
    asked = llm.prefills[0]
    assert asked.prompt_ids == llm.prompt_ids((ChatMessage(Role.USER, "I want the"),), PromptEnd.OPEN)
    assert asked.sampling.max_tokens == 1


async def test_nothing_but_punctuation_is_no_question() -> None:
    llm = ScriptedLanguageModel()
    assert await judge_of(llm).judge("...") is None
    assert not llm.prefills


async def test_an_answer_that_comes_late_is_no_answer_and_its_request_is_withdrawn() -> None:
    llm = ScriptedLanguageModel(ScriptedOptions(first_token_s=5.0))
    began = anyio.current_time()
    assert await judge_of(llm, AskOptions(patience_s=0.15)).judge("I am here") is None
    assert anyio.current_time() - began == pytest.approx(0.15)
    assert llm.running == 0


async def test_no_more_than_a_few_wait_at_once() -> None:
    llm = ScriptedLanguageModel(ScriptedOptions(first_token_s=0.1))
    judge, answers = judge_of(llm, AskOptions(max_waiting=2, patience_s=1.0)), list[float | None]()

    async def ask(text: str) -> None:
        answers.append(await judge.judge(text))

    async with anyio.create_task_group() as tasks:
        for text in ("one", "two", "three"):
            tasks.start_soon(ask, text)
    assert sorted(answer is None for answer in answers) == [False, False, True]
    assert await judge.judge("four") is not None


@pytest.mark.parametrize("llm", [Absent(), Secretive()])
async def test_without_the_engine_nobody_knows(llm: ScriptedLanguageModel) -> None:
    judge = judge_of(llm)
    assert await judge.judge("I am here") is None
    await judge.measure()
    assert not judge.asks


@pytest.mark.parametrize(
    ("mode", "first_token_s", "asks"),
    [
        (SentenceEnd.AUTO, 0.02, True),
        (SentenceEnd.AUTO, 0.2, False),
        (SentenceEnd.AUTO, 5.0, False),
        (SentenceEnd.ON, 0.2, True),
        (SentenceEnd.OFF, 0.02, False),
    ],
)
async def test_the_cost_decides_where_nobody_else_does(mode: SentenceEnd, first_token_s: float, asks: bool) -> None:
    judge = judge_of(ScriptedLanguageModel(ScriptedOptions(first_token_s=first_token_s)), AskOptions(mode))
    await judge.measure()
    assert judge.asks is asks


async def test_an_engine_that_has_become_slow_is_not_asked_any_more() -> None:
    quick = ScriptedLanguageModel(ScriptedOptions(first_token_s=0.02))
    judge = judge_of(quick)
    await judge.measure()
    quick._options = ScriptedOptions(first_token_s=0.2)
    await judge.measure()
    assert not judge.asks


async def test_a_final_goes_first_and_ends_a_question_that_runs() -> None:
    llm = ScriptedLanguageModel(ScriptedOptions(first_token_s=0.1, prefill_token_s=0.001))
    batcher = Batcher(llm, SloPolicy())
    judge = SentenceJudge(batcher, AskOptions(patience_s=1.0))
    answers, first_tokens = list[float | None](), list[float]()

    async def final() -> None:
        message = ChatMessage(Role.USER, "What is the time?")
        ids = batcher.prompt_ids((message,), PromptEnd.ANSWER)
        generation = GenerationRequest("final", (message,), Sampling(), session_id="call", prompt_ids=ids)
        request = BatcherRequest(generation, RequestClass.FINAL, anyio.current_time())
        async with aclosing(batcher.generate(request)) as stream:
            async for part in stream:
                if isinstance(part, TextDelta):
                    first_tokens.append(anyio.current_time())
                    return

    async def ask() -> None:
        answers.append(await judge.judge("I am here"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        await anyio.sleep(0.05)
        began = anyio.current_time()
        tasks.start_soon(final)
    assert answers == [None]
    assert first_tokens[0] - began < 0.15
