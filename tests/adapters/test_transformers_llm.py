"""Batches of the embedded engine: who is computed together, what ends an answer, what a stuck thread does.

With a small model of random weights; `tests/conformance/test_llm.py` holds the engine to the port with a real one.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from tests.small_llama import CONTEXT_TOKENS, write_small_llama
from tests.tokenizer_folder import GREETING_IDS

from duolog.adapters import transformers_llm
from duolog.adapters.batch_row import run_batch
from duolog.adapters.padded_batch import PaddedBatch
from duolog.adapters.transformers_llm import TransformersLanguageModel, TransformersOptions
from duolog.ports.errors import EngineError, EngineRejected, EngineTimeout, EngineUnavailable, ModelMissing
from duolog.ports.llm import (
    ChatMessage,
    FinishReason,
    GenerationEnd,
    GenerationRequest,
    PromptEnd,
    Role,
    Sampling,
    TextDelta,
    TokenUsage,
)

pytestmark = pytest.mark.real

HI = (ChatMessage(Role.USER, "Hi"),)
ASK = GenerationRequest("ask", HI, Sampling(temperature=0.0, max_tokens=4))


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_llama(tmp_path_factory.mktemp("model"))


@pytest.fixture
async def engine(folder: Path) -> AsyncIterator[TransformersLanguageModel]:
    model = TransformersLanguageModel(TransformersOptions(folder, context_tokens=8_192))
    await model.warm_up()
    yield model
    await model.aclose()


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Rows of each batch, in the order of their computation."""
    sizes: list[int] = []

    def counting(model: Any, pad_id: int, rows: Any, stop: Any) -> None:
        sizes.append(sum(not row.closed.is_set() for row in rows))
        run_batch(model, pad_id, rows, stop)

    monkeypatch.setattr(transformers_llm, "run_batch", counting)
    return sizes


class Gate:
    """Holds the model's thread before a computation."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached, self.open = threading.Event(), threading.Event()
        self.fails = False
        prefill = PaddedBatch.prefill

        def held(batch: PaddedBatch) -> Any:
            self.reached.set()
            self.open.wait()
            if self.fails:
                raise RuntimeError("out of memory")
            return prefill(batch)

        monkeypatch.setattr(PaddedBatch, "prefill", held)

    async def until_reached(self) -> None:
        await anyio.to_thread.run_sync(self.reached.wait)


@pytest.fixture
def gate(engine: TransformersLanguageModel, monkeypatch: pytest.MonkeyPatch) -> Any:
    held = Gate(monkeypatch)
    yield held
    held.open.set()


async def collect(
    engine: TransformersLanguageModel, request: GenerationRequest, into: list[Any] | None = None
) -> tuple[str, GenerationEnd]:
    """The text and the end; into: the end, or the error."""
    text = ""
    try:
        async with aclosing(engine.generate(request)) as stream:
            async for value in stream:
                if isinstance(value, TextDelta):
                    text += value.text
                    continue
                if into is not None:
                    into.append(value)
                return text, value
    except EngineError as error:
        if into is None:
            raise
        into.append(error)
        return text, GenerationEnd(FinishReason.ABORTED, TokenUsage())
    raise AssertionError("no end")


async def test_requests_of_one_number_are_one_batch(engine: TransformersLanguageModel, batches: list[int]) -> None:
    ends: list[Any] = []
    async with anyio.create_task_group() as tasks:
        for number in range(3):
            request = replace(ASK, request_id=str(number), batch=4, batch_size=3)
            tasks.start_soon(collect, engine, request, ends)
    assert batches == [3]
    assert [end.usage for end in ends] == [TokenUsage(len(GREETING_IDS), 0, 4)] * 3


async def test_a_batch_begins_without_those_who_never_come(
    engine: TransformersLanguageModel, batches: list[int]
) -> None:
    _, end = await collect(engine, replace(ASK, batch=1, batch_size=3))
    assert end.usage.completion_tokens == 4
    assert batches == [1]


async def test_one_who_leaves_while_the_batch_gathers_holds_up_nobody(
    engine: TransformersLanguageModel, batches: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transformers_llm, "GATHER_S", 60)
    ends: list[Any] = []
    async with anyio.create_task_group() as tasks:
        with anyio.move_on_after(0.01):
            await collect(engine, replace(ASK, batch=1, batch_size=2))
        for number in range(2):
            request = replace(ASK, request_id=str(number), batch=2, batch_size=2)
            tasks.start_soon(collect, engine, request, ends)
    assert batches == [2]
    assert engine._gathering == {}


async def test_requests_past_the_batcher_run_alone(engine: TransformersLanguageModel, batches: list[int]) -> None:
    async with anyio.create_task_group() as tasks:
        for number in range(2):
            tasks.start_soon(collect, engine, replace(ASK, request_id=str(number)))
    assert batches == [1, 1]


async def test_there_is_nothing_to_prefill_and_a_prefill_says_so(
    engine: TransformersLanguageModel, batches: list[int]
) -> None:
    assert engine.prompt_ids(HI, PromptEnd.OPEN) == engine.prompt_ids(HI, PromptEnd.ANSWER) == ()
    prefill = replace(ASK, messages=(), prompt_ids=(2, 4, 4), prefill=True)
    assert await collect(engine, prefill) == ("", GenerationEnd(FinishReason.LENGTH, TokenUsage(3, 0, 0)))
    assert batches == []


async def test_ids_are_taken_in_the_place_of_messages(engine: TransformersLanguageModel) -> None:
    assert await collect(engine, replace(ASK, prompt_ids=tuple(GREETING_IDS))) == await collect(engine, ASK)


async def test_the_context_bounds_prompt_and_answer(engine: TransformersLanguageModel) -> None:
    assert engine.context_tokens == CONTEXT_TOKENS
    _, end = await collect(engine, replace(ASK, prompt_ids=(4,) * (CONTEXT_TOKENS - 2)))
    assert (end.reason, end.usage.completion_tokens) == (FinishReason.LENGTH, 2)
    with pytest.raises(EngineRejected, match="1024 tokens, and the language model takes 1 to 1023"):
        await collect(engine, replace(ASK, prompt_ids=(4,) * CONTEXT_TOKENS))


async def test_a_failed_computation_is_told_to_all_and_the_next_batch_runs(
    engine: TransformersLanguageModel, gate: Gate
) -> None:
    gate.fails = True
    gate.open.set()
    ends: list[Any] = []
    async with anyio.create_task_group() as tasks:
        for number in range(2):
            request = replace(ASK, request_id=str(number), batch=1, batch_size=2)
            tasks.start_soon(collect, engine, request, ends)
    assert [type(end) for end in ends] == [EngineUnavailable] * 2
    assert "out of memory" in str(ends[0])
    gate.fails = False
    assert (await collect(engine, ASK))[1].usage.completion_tokens == 4


async def test_a_stuck_computation_times_out_and_is_told_until_it_ends(folder: Path, gate: Gate) -> None:
    engine = TransformersLanguageModel(TransformersOptions(folder, first_token_timeout_s=0.05))
    gate.open.set()
    await engine.warm_up()
    gate.open.clear()
    with pytest.raises(EngineTimeout, match=r"silent for 0\.05 s"):
        await collect(engine, ASK)
    with pytest.raises(EngineUnavailable, match="took too long"):
        await engine.warm_up()
    gate.open.set()
    await engine._thread.run(lambda stop: None)
    await engine.warm_up()
    await engine.aclose()


async def test_shutting_down_ends_open_answers(engine: TransformersLanguageModel, gate: Gate) -> None:
    ends: list[Any] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(collect, engine, ASK, ends)
        tasks.start_soon(collect, engine, replace(ASK, request_id="waits"), ends)
        await gate.until_reached()
        tasks.start_soon(engine.aclose)
        await anyio.wait_all_tasks_blocked()
        gate.open.set()
    assert [type(end) for end in ends] == [EngineUnavailable] * 2
    with pytest.raises(EngineUnavailable):
        await collect(engine, ASK)


async def test_before_it_is_warm_it_says_so(folder: Path) -> None:
    engine = TransformersLanguageModel(TransformersOptions(folder))
    with pytest.raises(EngineUnavailable, match="not loaded yet"):
        await collect(engine, ASK)
    await engine.aclose()


@pytest.mark.parametrize("file", ["tokenizer.json", "config.json", "model.safetensors"])
async def test_a_damaged_folder_is_named(tmp_path: Path, file: str) -> None:
    (write_small_llama(tmp_path) / file).write_bytes(b"{")
    engine = TransformersLanguageModel(TransformersOptions(tmp_path))
    with pytest.raises(ModelMissing, match=str(tmp_path)):
        await engine.warm_up()
    await engine.aclose()
