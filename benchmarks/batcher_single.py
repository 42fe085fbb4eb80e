"""Parts of `make bench-batcher` that send one request after another: the batcher's own cost, and both caches."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import anyio
import numpy as np

from benchmarks.batcher_engines import OpenEngine
from duolog.adapters.memory_cache import MemoryByteCache
from duolog.adapters.scripted_llm import ScriptedLanguageModel, ScriptedOptions
from duolog.loadtest.failures import CallFailed
from duolog.ports.llm import (
    ChatMessage,
    GenerationEnd,
    GenerationRequest,
    PromptEnd,
    Role,
    Sampling,
    TextDelta,
    TokenUsage,
)
from duolog.serving.batcher import Batcher, BatcherRequest
from duolog.serving.policies import PolicyOptions, RequestClass
from duolog.serving.policies.factory import PolicyName, make_policy
from duolog.serving.predictor import ServiceTimePredictor
from duolog.serving.prompt_cache import AnswerPart, PromptCache, Recalled, RememberingSource
from duolog.serving.store_worker import StoreWorker
from duolog.serving.tiered_cache import CacheOptions, TieredCache

LONE_REQUESTS = 1_000
HISTORY_TOKENS, SAID_TOKENS = 320, 20
HITS = (0, 2, 4, 6)
"""Of so many requests as the last one says."""
DIFFERENT_QUESTIONS = 40
ZIPF = 1.0
"""The n-th question is asked so often as 1 / n to this power says."""
GREEDY = Sampling(temperature=0.0, repetition_penalty=1.0, max_tokens=2)


async def added_by_batcher() -> dict[str, Any]:
    """To the first token of a request that is alone, in front of an engine that takes no time."""
    engine = ScriptedLanguageModel(ScriptedOptions(first_token_s=0, token_s=0, remembers=False))
    predictor = ServiceTimePredictor()
    batcher = Batcher(engine, make_policy(PolicyName.SLO, PolicyOptions(), predictor), predictor=predictor)
    through, past = [], []
    for number in range(LONE_REQUESTS):
        request = GenerationRequest(f"lone-{number}", (ChatMessage(Role.USER, "What is new?"),), GREEDY, f"s{number}")
        past.append((await _first_token(engine.generate(request)))[0])
        asked = BatcherRequest(request, RequestClass.FINAL, anyio.current_time() + 0.5)
        through.append((await _first_token(batcher.generate(asked)))[0])
    added = np.subtract(through, past)
    return {
        "requests": LONE_REQUESTS,
        "past_p50_ms": _ms(float(np.percentile(past, 50))),
        "through_p50_ms": _ms(float(np.percentile(through, 50))),
        "added_p50_ms": _ms(float(np.percentile(added, 50))),
        "added_p99_ms": _ms(float(np.percentile(through, 99) - np.percentile(past, 99))),
    }


async def kv_gain(engine: OpenEngine) -> list[dict[str, Any]]:
    """Mean time to the first token where so many of the prompts have their history in the cache, one after another.

    By the formula the time falls as the tokens to compute do: N of a prompt, S saved by a hit, P the hits' share.
    """
    rows: list[dict[str, Any]] = []
    for hits in HITS:
        times, usages = [], []
        for number in range(HITS[-1]):
            history = _words(engine, HISTORY_TOKENS)
            if number < hits:
                await _first_token(engine.model.generate(_greedy(history)))
            first_s, usage = await _first_token(engine.model.generate(_greedy(history + _words(engine, SAID_TOKENS))))
            times.append(1000 * first_s)
            usages.append(usage)
        prompt_tokens = statistics.mean(usage.prompt_tokens for usage in usages)
        saved_tokens = statistics.mean(usage.cached_tokens for usage in usages)  # P · S
        mean_ms = statistics.mean(times)
        rows.append(
            {
                "hit_share": hits / HITS[-1],
                "prompt_tokens": round(prompt_tokens),
                "saved_tokens": round(saved_tokens),
                "first_token_mean_ms": round(mean_ms, 1),
                "gain": round((rows[0]["first_token_mean_ms"] if rows else mean_ms) / mean_ms, 2),
                "gain_by_formula": round(prompt_tokens / (prompt_tokens - saved_tokens), 2),
            }
        )
    return rows


async def repeated_questions(engine: OpenEngine, asked: int) -> dict[str, Any]:
    """Questions of many callers, some asked far more often than others, through the prompt cache and `slo`."""
    system = ChatMessage(Role.SYSTEM, f"You are guide {time.time_ns()}. Answer in one short sentence.")
    dice = random.Random(1)
    weights = [1 / number**ZIPF for number in range(1, DIFFERENT_QUESTIONS + 1)]
    numbers = dice.choices(range(DIFFERENT_QUESTIONS), weights, k=asked)
    worker = StoreWorker("bench")
    tiers = TieredCache("prompt", MemoryByteCache(), worker, CacheOptions(2**24, 3_600.0))
    source = RememberingSource(
        engine.batcher(PolicyName.SLO), PromptCache(tiers, "bench"), "guide", str(time.time_ns())
    )
    recalled: list[float] = []
    made: list[float] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.run)
        for number, question in enumerate(numbers):
            messages = (system, ChatMessage(Role.USER, f"What is in room number {question}?"))
            ids = engine.model.prompt_ids(messages, PromptEnd.ANSWER)
            sampling = Sampling(temperature=0.0, max_tokens=60, stop=(".", "\n"))
            request = GenerationRequest(f"ask-{number}", messages, sampling, f"s{number}", prompt_ids=ids)
            asking = BatcherRequest(request, RequestClass.FINAL, anyio.current_time() + 0.5)
            first_s, was_recalled = await _remembered(source.generate(asking))
            (recalled if was_recalled else made).append(1000 * first_s)
        tasks.cancel_scope.cancel()
    return {
        "questions": asked,
        "different": len(set(numbers)),
        "hit_rate": round(len(recalled) / asked, 3),
        "highest_possible": round(1 - len(set(numbers)) / asked, 3),
        "first_token_recalled_p50_ms": round(statistics.median(recalled), 2) if recalled else None,
        "first_token_made_p50_ms": round(statistics.median(made), 1),
    }


def _greedy(ids: tuple[int, ...]) -> GenerationRequest:
    return GenerationRequest(f"kv-{time.monotonic_ns()}", (), GREEDY, prompt_ids=ids)


def _words(engine: OpenEngine, count: int) -> tuple[int, ...]:
    """Never the same."""
    return tuple(random.choice(engine.words) for _ in range(count))


async def _first_token(stream: AsyncGenerator[Any, None]) -> tuple[float, TokenUsage]:
    """Seconds to it, and the usage at the end."""
    started, first = time.perf_counter(), None
    async with aclosing(stream) as values:
        async for value in values:
            if isinstance(value, TextDelta) and first is None:
                first = time.perf_counter() - started
            if isinstance(value, GenerationEnd):
                return time.perf_counter() - started if first is None else first, value.usage
    raise CallFailed("An answer had no end.")


async def _remembered(stream: AsyncGenerator[AnswerPart, None]) -> tuple[float, bool]:
    """Seconds to the first text, and whether it was remembered."""
    started, first, recalled = time.perf_counter(), 0.0, False
    async with aclosing(stream) as values:
        async for value in values:
            recalled = recalled or isinstance(value, Recalled)
            if isinstance(value, TextDelta) and not first:
                first = time.perf_counter() - started
    return first, recalled


def _ms(seconds: float) -> float:
    return round(1000 * float(seconds), 3)
