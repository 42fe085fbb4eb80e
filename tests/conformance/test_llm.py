"""What every LanguageModel keeps to: the same tests for the scripted engine, and with a real model for vLLM and for
transformers in this process."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace

import anyio
import httpx
import pytest
from tests.services import TINY_MODEL, VllmServer

from duolog.adapters.openai_llm import Dialect, OpenAILanguageModel, OpenAIOptions
from duolog.adapters.scripted_llm import Line, ScriptedLanguageModel, ScriptedOptions
from duolog.ports.errors import EngineRejected
from duolog.ports.llm import (
    ChatMessage,
    FinishReason,
    GenerationEnd,
    GenerationRequest,
    LanguageModel,
    PromptEnd,
    Role,
    Sampling,
    TextDelta,
)
from duolog.serving.prefill import BLOCK_TOKENS

LONG = "One day a small fox went out to see the sea. " * 40
SYSTEM = ChatMessage(Role.SYSTEM, "You are Ava, a friendly voice. Answer in one or two short sentences. " * 6)
ASK = GenerationRequest(
    "conformance",
    (SYSTEM, ChatMessage(Role.USER, "Tell me a story about the sea.")),
    Sampling(temperature=0.0, max_tokens=24),
    session_id="call-1",
)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def options(server: VllmServer) -> OpenAIOptions:
    return OpenAIOptions(server.base_url, server.model, tokenizer_dir=server.model_dir, send_priority=True)


SCRIPTED = pytest.param("scripted", marks=pytest.mark.session)
VLLM = pytest.param("vllm", marks=pytest.mark.real)
TRANSFORMERS = pytest.param("transformers", marks=pytest.mark.real)


@asynccontextmanager
async def opened(name: str, request: pytest.FixtureRequest) -> AsyncIterator[LanguageModel]:
    if name == "scripted":
        yield ScriptedLanguageModel(ScriptedOptions({"*": Line(LONG)}, first_token_s=0.001, token_s=0.001))
        return
    model: LanguageModel
    model = OpenAILanguageModel(options(request.getfixturevalue("vllm_server"))) if name == "vllm" else embedded()
    try:
        await model.warm_up()
        yield model
    finally:
        await model.aclose()


def embedded() -> LanguageModel:
    if not (TINY_MODEL / "model.safetensors").exists():
        pytest.skip("no model in .duolog/models/smollm2-135m; run `duolog models prepare --profile tiny`")
    from duolog.adapters.transformers_llm import TransformersLanguageModel, TransformersOptions  # noqa: PLC0415

    return TransformersLanguageModel(TransformersOptions(TINY_MODEL, context_tokens=2048))


@pytest.fixture(params=[SCRIPTED, VLLM, TRANSFORMERS])
async def engine(request: pytest.FixtureRequest) -> AsyncIterator[LanguageModel]:
    async with opened(request.param, request) as model:
        yield model


@pytest.fixture(params=[SCRIPTED, VLLM])
async def caching_engine(request: pytest.FixtureRequest) -> AsyncIterator[LanguageModel]:
    """An engine that keeps prefixes, and so gives ids to prefill."""
    async with opened(request.param, request) as model:
        yield model


async def collect(stream: AsyncGenerator[TextDelta | GenerationEnd, None]) -> tuple[str, GenerationEnd]:
    """The text and the end; checks the order and that no delta is empty."""
    async with aclosing(stream):
        values = [value async for value in stream]
    deltas, end = values[:-1], values[-1]
    assert isinstance(end, GenerationEnd)
    assert all(isinstance(delta, TextDelta) and delta.text for delta in deltas)
    return "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)), end


async def test_an_answer_is_deltas_and_one_end(engine: LanguageModel) -> None:
    text, end = await collect(engine.generate(ASK))
    assert len(text.split()) > 5
    assert end.reason is FinishReason.LENGTH
    assert end.usage.completion_tokens == 24
    assert end.usage.prompt_tokens > 50


async def test_max_tokens_bounds_the_answer(engine: LanguageModel) -> None:
    one = replace(ASK, sampling=replace(ASK.sampling, max_tokens=1))
    _, end = await collect(engine.generate(one))
    assert (end.reason, end.usage.completion_tokens) == (FinishReason.LENGTH, 1)


async def test_the_same_request_gives_the_same_answer(engine: LanguageModel) -> None:
    assert (await collect(engine.generate(ASK)))[0] == (await collect(engine.generate(ASK)))[0]


async def test_ids_are_those_the_engine_would_make_itself(caching_engine: LanguageModel) -> None:
    ids = caching_engine.prompt_ids(ASK.messages, PromptEnd.ANSWER)
    by_messages, one = await collect(caching_engine.generate(ASK))
    by_ids, other = await collect(caching_engine.generate(replace(ASK, prompt_ids=ids)))
    assert one.usage.prompt_tokens == other.usage.prompt_tokens == len(ids)
    assert by_ids == by_messages


async def test_an_open_prompt_is_the_beginning_of_the_next(caching_engine: LanguageModel) -> None:
    history = caching_engine.prompt_ids((SYSTEM, ChatMessage(Role.USER, "")), PromptEnd.OPEN)
    caption = caching_engine.prompt_ids((SYSTEM, ChatMessage(Role.USER, "Tell me a story")), PromptEnd.OPEN)
    final = caching_engine.prompt_ids(ASK.messages, PromptEnd.ANSWER)
    assert 0 < len(history) < len(caption) < len(final)
    assert caption[: len(history)] == final[: len(history)] == history
    assert final[: len(caption)] == caption


async def test_a_prefill_is_silent_and_its_blocks_are_cached(caching_engine: LanguageModel) -> None:
    story = ChatMessage(Role.USER, "A word of its own, so that no other test has cached it: " + "sea and sand " * 30)
    ids = caching_engine.prompt_ids((SYSTEM, story), PromptEnd.ANSWER)
    whole_blocks = len(ids) // BLOCK_TOKENS * BLOCK_TOKENS
    prefill = replace(ASK, request_id="prefill", messages=(), prompt_ids=ids[:whole_blocks], prefill=True)
    text, end = await collect(caching_engine.generate(prefill))
    assert (text, end.usage.prompt_tokens) == ("", whole_blocks)
    _, end = await collect(caching_engine.generate(replace(ASK, prompt_ids=(*ids, *ids[-3:]))))
    assert end.usage.cached_tokens == whole_blocks


async def test_a_prefill_names_the_likeliest_next_tokens(caching_engine: LanguageModel) -> None:
    said = (ChatMessage(Role.USER, "What is the capital of France"),)
    ids = caching_engine.prompt_ids(said, PromptEnd.OPEN)
    question = replace(ASK, request_id="question", messages=said, prompt_ids=ids, prefill=True, likeliest=20)
    text, end = await collect(caching_engine.generate(question))
    assert text == ""
    chances = [one.probability for one in end.likely]
    assert 1 < len(chances) <= 20
    assert all(0 <= chance <= 1 for chance in chances)
    assert 0.5 < sum(chances) <= 1.001
    assert any(one.text == "" or one.text.startswith("?") for one in end.likely)
    _, end = await collect(caching_engine.generate(replace(question, likeliest=0)))
    assert end.likely == ()


async def test_stop_strings_end_the_answer_and_are_not_said(engine: LanguageModel) -> None:
    if isinstance(engine, ScriptedLanguageModel):
        pytest.skip("a script ends where it ends")
    whole, _ = await collect(engine.generate(ASK))
    stop = whole.split()[4]
    sampling = replace(ASK.sampling, stop=(stop,))
    text, end = await collect(engine.generate(replace(ASK, sampling=sampling)))
    assert text == whole[: whole.index(stop)]
    assert end.reason is FinishReason.STOP


async def test_a_seed_gives_the_same_answer_and_another_a_different_one(engine: LanguageModel) -> None:
    if isinstance(engine, ScriptedLanguageModel):
        pytest.skip("a script has no dice")

    async def answer(seed: int) -> str:
        sampling = Sampling(temperature=1.0, top_p=0.95, max_tokens=16, seed=seed)
        return (await collect(engine.generate(replace(ASK, sampling=sampling))))[0]

    assert await answer(3) == await answer(3) != await answer(4)


async def test_the_context_length_is_known_after_warm_up(engine: LanguageModel) -> None:
    await engine.warm_up()
    assert engine.context_tokens == 2048


async def test_closing_in_mid_answer_leaves_the_engine_ready(engine: LanguageModel) -> None:
    long = replace(ASK, sampling=replace(ASK.sampling, max_tokens=400))
    for _ in range(3):
        async with aclosing(engine.generate(long)) as stream:
            assert isinstance(await anext(stream), TextDelta)
    assert (await collect(engine.generate(ASK)))[1].reason is FinishReason.LENGTH


async def test_cancelling_leaves_the_engine_ready(engine: LanguageModel) -> None:
    for after_s in (0.0, 0.005, 0.05):
        with anyio.move_on_after(after_s):
            await collect(engine.generate(replace(ASK, sampling=replace(ASK.sampling, max_tokens=400))))
    assert (await collect(engine.generate(ASK)))[1].reason is FinishReason.LENGTH


async def test_requests_run_side_by_side(engine: LanguageModel) -> None:
    ends: list[GenerationEnd] = []

    async def one(number: int) -> None:
        request = replace(ASK, request_id=f"side-{number}", session_id=f"call-{number}", priority=10 * number)
        ends.append((await collect(engine.generate(request)))[1])

    async with anyio.create_task_group() as tasks:
        for number in range(4):
            tasks.start_soon(one, number)
    assert [end.usage.completion_tokens for end in ends] == [24] * 4


async def test_closing_twice_is_fine(engine: LanguageModel) -> None:
    await engine.aclose()
    await engine.aclose()


@pytest.mark.real
async def test_vllm_reports_cached_tokens(vllm_server: VllmServer) -> None:
    model = OpenAILanguageModel(options(vllm_server))
    await model.warm_up()
    await collect(model.generate(ASK))
    _, end = await collect(model.generate(ASK))
    assert end.usage.cached_tokens >= 64
    await model.aclose()


@pytest.mark.real
async def test_vllm_stops_when_the_stream_is_closed(vllm_server: VllmServer) -> None:
    model = OpenAILanguageModel(options(vllm_server))
    await model.warm_up()
    endless = replace(ASK, sampling=Sampling(temperature=1.5, max_tokens=1500))
    async with aclosing(model.generate(endless)) as stream:
        await anext(stream)
    metrics_url = vllm_server.base_url.removesuffix("/v1") + "/metrics"
    async with httpx.AsyncClient() as client:
        with anyio.fail_after(2):
            while await running_requests(client, metrics_url) > 0:  # noqa: ASYNC110 - rejected: real services have no event
                await anyio.sleep(0.02)
    await model.aclose()


async def running_requests(client: httpx.AsyncClient, url: str) -> float:
    lines = (await client.get(url)).text.splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("vllm:num_requests_running"))


@pytest.mark.real
async def test_vllm_without_its_tokenizer_is_sent_messages(vllm_server: VllmServer) -> None:
    model = OpenAILanguageModel(replace(options(vllm_server), tokenizer_dir=None))
    await model.warm_up()
    assert model.prompt_ids(ASK.messages, PromptEnd.ANSWER) == ()
    assert (await collect(model.generate(ASK)))[1].usage.completion_tokens == 24
    await model.aclose()


@pytest.mark.real
async def test_vllm_refuses_a_prompt_beyond_its_context(vllm_server: VllmServer) -> None:
    model = OpenAILanguageModel(options(vllm_server))
    too_long = replace(ASK, messages=(ChatMessage(Role.USER, "sea " * 3000),))
    with pytest.raises(EngineRejected, match="400"):
        await collect(model.generate(too_long))
    await model.aclose()


@pytest.mark.real
async def test_vllm_as_a_plain_openai_server(vllm_server: VllmServer) -> None:
    model = OpenAILanguageModel(
        replace(options(vllm_server), dialect=Dialect.OPENAI, tokenizer_dir=None, send_priority=False)
    )
    await model.warm_up()
    assert (await collect(model.generate(ASK)))[1].usage.completion_tokens == 24
    await model.aclose()
