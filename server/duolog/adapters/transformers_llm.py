"""A chat model of Hugging Face transformers in this process: real padded batches, no server and no continuous batching.

generate ──▶ rows of one `GenerationRequest.batch` ──▶ one job of the model's thread ──▶ each row's tokens to its caller

It keeps nothing of a prompt for the next one, so there is nothing to prefill: `prompt_ids` are empty, and a prefill
that is asked for all the same ends at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import torch
from anyio.streams.memory import MemoryObjectReceiveStream
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM
from transformers.utils import logging as transformers_logging

from duolog.adapters.batch_row import BatchRow, RowRequest, run_batch
from duolog.adapters.chat_tokenizer import ChatTokenizer
from duolog.adapters.model_thread import JobStopped, ModelThread, StopFlag
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

GATHER_S = 0.005
"""A batch begins so long after its first row at the latest: a caller may have gone before it came here."""
_GREETING = (ChatMessage(Role.USER, "Hi"),)
_LOAD_ERRORS = (OSError, ValueError, KeyError, RuntimeError, SafetensorError)


@dataclass(frozen=True, slots=True)
class TransformersOptions:
    folder: Path
    """Configuration, safetensors, tokenizer and chat template, as vLLM serves it."""
    dtype: str = "float32"
    """Name of a torch type: on a CPU without bfloat16 instructions anything but float32 is several times slower."""
    context_tokens: int = 4_096
    """No more than this of the model's own context length."""
    threads: int = 1
    """That torch computes with."""
    cores: frozenset[int] | None = None
    """They are bound to these; None: to none."""
    first_token_timeout_s: float = 15.0
    inter_token_timeout_s: float = 5.0


@dataclass(frozen=True, slots=True)
class _Loaded:
    model: Any
    tokenizer: ChatTokenizer
    end_ids: frozenset[int]
    context_tokens: int


@dataclass(eq=False, slots=True)
class _Batch:
    """Rows that are gathered, then computed together."""

    rows: list[BatchRow] = field(default_factory=list)
    begun: anyio.Event = field(default_factory=anyio.Event)
    job: asyncio.Future[None] | None = None


class TransformersLanguageModel:
    """Re-entrant, from one event loop. Batches are computed one after another."""

    def __init__(self, options: TransformersOptions) -> None:
        self._options = options
        self._thread = ModelThread("transformers-llm", engine="llm", cores=options.cores)
        self._loaded: _Loaded | None = None
        self._gathering: dict[int, _Batch] = {}
        self._overdue: set[asyncio.Future[None]] = set()
        """Batches that somebody waited for in vain, and that may still hold the thread."""

    @property
    def context_tokens(self) -> int:
        return self._ready().context_tokens

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[TextDelta | GenerationEnd, None]:
        """One row of a batch. Closing or cancelling takes it out before the batch's next token."""
        loaded = self._ready()
        ids = request.prompt_ids or loaded.tokenizer.prompt_ids(request.messages, PromptEnd.ANSWER)
        if request.prefill:
            yield GenerationEnd(FinishReason.LENGTH, TokenUsage(len(ids)))
            return
        asked = self._row_request(loaded, ids, request.sampling)
        send, receive = anyio.create_memory_object_stream[TextDelta | GenerationEnd](asked.max_tokens + 2)
        loop = asyncio.get_running_loop()

        def deliver(value: TextDelta | GenerationEnd) -> None:
            if not row.closed.is_set():
                send.send_nowait(value)

        def emit(value: TextDelta | GenerationEnd) -> None:
            loop.call_soon_threadsafe(deliver, value)

        row = BatchRow(asked, loaded.tokenizer.decoder(), emit)
        with send, receive:
            try:
                job = await self._join(request, row)
                job.add_done_callback(lambda _: send.close())
                value = await self._next(receive, job, self._options.first_token_timeout_s)
                while isinstance(value, TextDelta):
                    yield value
                    value = await self._next(receive, job, self._options.inter_token_timeout_s)
                yield value
            finally:
                row.closed.set()

    def prompt_ids(self, messages: tuple[ChatMessage, ...], end: PromptEnd) -> tuple[int, ...]:  # noqa: ARG002 - rejected: the Protocol's parameters
        """Always empty: no prefix is kept for a later request."""
        return ()

    async def warm_up(self) -> None:
        """Load the model, generate a little. Called again it says whether the thread still answers.

        Raises ModelMissing where a file is absent or damaged.
        """
        if any(not job.done() for job in self._overdue):
            raise EngineUnavailable(
                f"The language model in {self._options.folder} still computes an answer that took too long.",
                engine="llm",
            )
        self._overdue.clear()
        if self._loaded is not None:
            return
        self._loaded = await self._thread.run(self._load)
        request = GenerationRequest("warm-up", _GREETING, Sampling(temperature=0.0, max_tokens=4))
        async with aclosing(self.generate(request)) as stream:
            async for _ in stream:
                pass

    async def aclose(self) -> None:
        """Joins the thread: waits for the computation that runs."""
        await self._thread.aclose()

    def _ready(self) -> _Loaded:
        if self._loaded is None:
            raise EngineUnavailable("The language model is not loaded yet; try again in a moment.", engine="llm")
        return self._loaded

    def _row_request(self, loaded: _Loaded, ids: tuple[int, ...], sampling: Sampling) -> RowRequest:
        """Raises EngineRejected where the context has no room for an answer."""
        room = loaded.context_tokens - len(ids)
        if not ids or room < 1:
            raise EngineRejected(
                f"The prompt has {len(ids)} tokens, and the language model takes 1 to {loaded.context_tokens - 1}.",
                engine="llm",
            )
        return RowRequest(ids, sampling, loaded.end_ids, min(sampling.max_tokens, room))

    async def _join(self, request: GenerationRequest, row: BatchRow) -> asyncio.Future[None]:
        """Wait until the row's batch has begun."""
        number = request.batch
        batch = self._gathering.setdefault(number, _Batch()) if number else _Batch()
        batch.rows.append(row)
        try:
            if number and len(batch.rows) < request.batch_size:
                with anyio.move_on_after(GATHER_S):
                    await batch.begun.wait()
            return batch.job or self._begin(number, batch)
        finally:
            if batch.job is None and all(one.closed.is_set() or one is row for one in batch.rows):
                self._gathering.pop(number, None)

    def _begin(self, number: int, batch: _Batch) -> asyncio.Future[None]:
        self._gathering.pop(number, None)
        model = self._ready().model
        batch.job = self._thread.start(lambda stop: run_batch(model, model.config.pad_token_id or 0, batch.rows, stop))
        batch.begun.set()
        return batch.job

    async def _next(
        self, receive: MemoryObjectReceiveStream[TextDelta | GenerationEnd], job: asyncio.Future[None], limit_s: float
    ) -> TextDelta | GenerationEnd:
        """The row's next value. Raises EngineTimeout, EngineUnavailable."""
        value = None
        with anyio.move_on_after(limit_s) as waiting:
            value = await anext(receive, None)
        if value is None:
            raise self._failure(job, limit_s, timed_out=waiting.cancelled_caught)
        return value

    def _failure(self, job: asyncio.Future[None], limit_s: float, *, timed_out: bool) -> EngineError:
        """Why a row got no further value."""
        if timed_out and not job.done():
            self._overdue.add(job)
            return EngineTimeout(f"The language model was silent for {limit_s:g} s.", engine="llm")
        error = None if job.cancelled() else job.exception()
        if error is None or isinstance(error, JobStopped):
            return EngineUnavailable("The language model was shut down in the middle of an answer.", engine="llm")
        found = EngineUnavailable(f"The language model failed to compute an answer: {error}", engine="llm")
        found.__cause__ = error
        return found

    def _load(self, _: StopFlag) -> _Loaded:
        """In the model's thread, whose settings of torch are its own."""
        options = self._options
        torch.set_num_threads(options.threads)
        transformers_logging.set_verbosity_error()
        transformers_logging.disable_progress_bar()
        tokenizer = ChatTokenizer(options.folder)
        try:
            model = AutoModelForCausalLM.from_pretrained(
                str(options.folder), dtype=getattr(torch, options.dtype), local_files_only=True
            )
            model = model.eval().to("cuda" if torch.cuda.is_available() else "cpu")
        except _LOAD_ERRORS as error:
            raise ModelMissing(
                f"The language model in {options.folder} cannot be loaded ({error}); run `duolog models fetch`."
            ) from error
        length = min(options.context_tokens, model.config.max_position_embeddings)
        return _Loaded(model, tokenizer, _end_ids(model, tokenizer), length)


def _end_ids(model: Any, tokenizer: ChatTokenizer) -> frozenset[int]:
    """Tokens that end an answer: the model's own, and the chat template's."""
    own = model.generation_config.eos_token_id
    return frozenset([*(own if isinstance(own, list) else [] if own is None else [own]), *tokenizer.end_of_turn_ids()])
