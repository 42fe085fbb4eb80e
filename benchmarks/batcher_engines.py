"""What `make bench-batcher` compares, each on the same core of the machine with the same weights and number format.

pipeline       the text-generation pipeline of Hugging Face transformers, one request at a time
transformers   our own engine without continuous batching
vllm           started as `duolog up` starts it
"""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from transformers import pipeline
from transformers.generation.streamers import BaseStreamer
from transformers.utils import logging as transformers_logging

from benchmarks.stack import ROOT, free_ports, running
from duolog.adapters.model_thread import ModelThread, StopFlag
from duolog.adapters.openai_llm import Dialect, OpenAILanguageModel, OpenAIOptions
from duolog.adapters.transformers_llm import TransformersLanguageModel, TransformersOptions
from duolog.cores import has_bfloat16, machine_cores, share_cores
from duolog.models.manifest import load_manifest
from duolog.models.store import ModelStore
from duolog.ports.llm import (
    ChatMessage,
    FinishReason,
    GenerationEnd,
    GenerationRequest,
    LanguageModel,
    PromptEnd,
    Sampling,
    TextDelta,
    TokenUsage,
)
from duolog.processes import children
from duolog.serving.batcher import Batcher, BatcherOptions
from duolog.serving.placement import NoPrefixCache, OneReplica
from duolog.serving.policies import PolicyOptions
from duolog.serving.policies.factory import PolicyName, make_policy
from duolog.serving.predictor import ServiceTimePredictor
from duolog.settings import BatcherSettings, LlmSettings, Profile, Settings

LOG = ROOT / ".duolog" / "logs" / "bench-batcher.log"
PATIENCE_S = 300.0
"""Nothing is given up before: who waits long counts as late, not as gone."""
CONTEXT_TOKENS = 4_096
COMMON = """
    time person year way day thing man world life hand part child eye woman place work week case point company number
    group problem fact water money month right book job word business issue side kind head house friend father power
    hour game line end member law car city name team minute idea body back parent face level office door health art war
    history party result change morning reason moment air teacher force education food light sea sun road tree song
"""


class EngineName(StrEnum):
    PIPELINE = "pipeline"
    TRANSFORMERS = "transformers"
    VLLM = "vllm"


POLICIES = {
    EngineName.PIPELINE: (PolicyName.DIRECT,),
    EngineName.TRANSFORMERS: (PolicyName.TARGET_SIZE, PolicyName.TOKEN_WINDOW),
    EngineName.VLLM: tuple(PolicyName),
}


@dataclass(frozen=True, slots=True)
class OpenEngine:
    name: EngineName
    model: LanguageModel
    words: tuple[int, ...]
    """Ids of tokens that are common words, each with a space before it: text of them has these tokens again."""

    @property
    def keeps_prefixes(self) -> bool:
        """Prefills are worth sending."""
        return self.name is EngineName.VLLM

    def batcher(self, policy: PolicyName) -> Batcher:
        """A new one, which has learnt nothing, with the settings' own options."""
        chosen = BatcherSettings()
        options = PolicyOptions(
            one_batch_at_a_time=self.name is EngineName.TRANSFORMERS,
            target_batch=chosen.target_batch,
            max_batch=chosen.max_batch,
            prefill_budget_tokens=chosen.prefill_budget_tokens,
            chunk_tokens=chosen.chunk_tokens,
            token_pace_s=chosen.token_pace_s,
        )
        predictor = ServiceTimePredictor()
        chunk = chosen.chunk_tokens if policy is PolicyName.SLO and self.keeps_prefixes else None
        patience = BatcherOptions(PATIENCE_S, PATIENCE_S, PATIENCE_S, 10_000, prefill_chunk_tokens=chunk)
        placement = OneReplica() if self.keeps_prefixes else NoPrefixCache()
        return Batcher(self.model, make_policy(policy, options, predictor), patience, placement, predictor)


@asynccontextmanager
async def open_engine(name: EngineName) -> AsyncIterator[OpenEngine]:
    """Started, warm, and alone: the others are not running."""
    settings = Settings(profile=Profile.TINY, llm=LlmSettings(port=free_ports(1)[0], max_model_len=CONTEXT_TOKENS))
    store = ModelStore(settings.models_dir.absolute(), load_manifest())
    folder = store.path(store.manifest.profile("tiny").llm)
    cores = frozenset(share_cores(settings, machine_cores()).llm)
    dtype = "bfloat16" if has_bfloat16() else "float32"
    async with _running(name, settings, folder):
        model: LanguageModel
        if name is EngineName.PIPELINE:
            model = PipelineEngine(folder, dtype, cores)
        elif name is EngineName.TRANSFORMERS:
            limits = {"first_token_timeout_s": PATIENCE_S, "inter_token_timeout_s": PATIENCE_S}
            model = TransformersLanguageModel(
                TransformersOptions(folder, dtype, CONTEXT_TOKENS, len(cores), cores, **limits)
            )
        else:
            model = _vllm(settings, folder)
        try:
            await model.warm_up()
            yield OpenEngine(name, model, common_words(folder))
        finally:
            await model.aclose()


@asynccontextmanager
async def _running(name: EngineName, settings: Settings, folder: Path) -> AsyncIterator[None]:
    if name is not EngineName.VLLM:
        yield
        return
    spec = children.vllm(settings, str(folder))
    async with running(spec.command, spec.environment, f"http://127.0.0.1:{settings.llm.port}/health", LOG):
        yield


def _vllm(settings: Settings, folder: Path) -> LanguageModel:
    return OpenAILanguageModel(
        OpenAIOptions(
            settings.llm_url,
            settings.llm_model,
            Dialect.VLLM,
            tokenizer_dir=folder,
            send_priority=True,
            first_token_timeout_s=PATIENCE_S,
            inter_token_timeout_s=PATIENCE_S,
            max_connections=1_000,
        )
    )


def common_words(folder: Path) -> tuple[int, ...]:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    encoded = (tokenizer.encode(f" {word}", add_special_tokens=False).ids for word in COMMON.split())
    return tuple(ids[0] for ids in encoded if len(ids) == 1)


class PipelineEngine:
    """`transformers.pipeline` as its documentation shows it, with a streamer; requests wait for one another."""

    context_tokens = CONTEXT_TOKENS

    def __init__(self, folder: Path, dtype: str, cores: frozenset[int]) -> None:
        self._folder = folder
        self._dtype = dtype
        self._threads = len(cores)
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._thread = ModelThread("pipeline", engine="llm", cores=cores)
        self._pipeline: Any = None

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[TextDelta | GenerationEnd, None]:
        count = 0
        async with aclosing(self._thread.stream(partial(self._run, request), max_buffered=CONTEXT_TOKENS)) as tokens:
            async for _ in tokens:
                count += 1
                yield TextDelta("word ")
        reason = FinishReason.LENGTH if count >= request.sampling.max_tokens else FinishReason.STOP
        yield GenerationEnd(reason, TokenUsage(len(request.prompt_ids), 0, count))

    def prompt_ids(self, messages: tuple[ChatMessage, ...], end: PromptEnd) -> tuple[int, ...]:  # noqa: ARG002 - rejected: the Protocol's parameters
        return ()

    async def warm_up(self) -> None:
        await self._thread.run(self._load)
        ids = tuple(self._tokenizer.encode(" Hello there").ids)
        request = GenerationRequest("warm-up", (), Sampling(temperature=0.0, max_tokens=4), prompt_ids=ids)
        async with aclosing(self.generate(request)) as stream:
            async for _ in stream:
                pass

    async def aclose(self) -> None:
        await self._thread.aclose()

    def _load(self, _: StopFlag) -> None:
        torch.set_num_threads(self._threads)
        transformers_logging.set_verbosity_error()
        transformers_logging.disable_progress_bar()
        dtype = getattr(torch, self._dtype)
        self._pipeline = pipeline("text-generation", model=str(self._folder), dtype=dtype, device="cpu")

    def _run(self, request: GenerationRequest, stop: StopFlag, emit: Callable[[int], None]) -> None:
        text = self._tokenizer.decode(list(request.prompt_ids))
        self._pipeline(
            text,
            max_new_tokens=request.sampling.max_tokens,
            do_sample=False,
            return_full_text=False,
            streamer=_Tokens(stop, emit),
        )


class _Tokens(BaseStreamer):  # type: ignore[misc] # transformers is followed by no type checker here
    """Gives out each generated token; the prompt comes first and is none."""

    def __init__(self, stop: StopFlag, emit: Callable[[int], None]) -> None:
        self._stop = stop
        self._emit = emit
        self._is_prompt = True

    def put(self, value: Any) -> None:
        self._stop.check()
        if not self._is_prompt:
            self._emit(int(value.reshape(-1)[0]))
        self._is_prompt = False

    def end(self) -> None:
        """Nothing is held back."""


def shuffled(words: Sequence[int], salt: int) -> tuple[int, ...]:
    """The same words in another order, so that the same load has other prompts of the same lengths."""
    return tuple(random.Random(salt).sample(words, len(words)))
