"""A chat model that schedules as vLLM does and computes nothing: for policies in virtual time.

Each step takes tokens from what runs, in order, then from what waits, by priority and arrival: one from each that
decodes, at most `long_prefill_tokens` of a prompt where others are there, `step_tokens` in all. A step is never cut
short, priorities never take a running prompt's share, and whole blocks of computed prompts stay cached.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio

from duolog.ports.llm import (
    ChatMessage,
    FinishReason,
    GenerationEnd,
    GenerationRequest,
    PromptEnd,
    TextDelta,
    TokenUsage,
)


@dataclass(frozen=True, slots=True)
class SimulatedOptions:
    """As one core of a CPU with a small model."""

    step_tokens: int = 256
    long_prefill_tokens: int = 128
    max_sequences: int = 64
    block_tokens: int = 32
    cached_blocks: int = 100_000
    step_s: float = 0.01
    prefill_token_s: float = 0.001
    decode_s: float = 0.02
    """Of a step in which anything decodes."""
    decode_each_s: float = 0.003


@dataclass(eq=False, slots=True)
class _Sequence:
    request: GenerationRequest
    arrival: int
    computed: int = 0
    cached: int = 0
    generated: int = 0
    gone: bool = False
    news: anyio.Event = field(default_factory=anyio.Event)

    @property
    def remaining(self) -> int:
        return len(self.request.prompt_ids) - self.computed

    @property
    def wanted(self) -> int:
        return self.request.sampling.max_tokens

    @property
    def ended(self) -> bool:
        return self.generated >= self.wanted


class SimulatedEngine:
    """A LanguageModel of token ids. Make it with `simulated_engine`, whose task runs its steps."""

    context_tokens = 8_192

    def __init__(self, options: SimulatedOptions | None = None) -> None:
        self._options = options or SimulatedOptions()
        self._waiting: list[_Sequence] = []
        self._running: list[_Sequence] = []
        self._cache: OrderedDict[int, None] = OrderedDict()
        self._woken = anyio.Event()
        self._arrived = 0
        self.most_prefills = 0
        """Prompts that were being computed in one step."""
        self.steps = 0

    @property
    def running(self) -> int:
        """Requests inside, waiting or not."""
        return sum(not sequence.gone for sequence in (*self._waiting, *self._running))

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[TextDelta | GenerationEnd, None]:
        self._arrived += 1
        sequence = _Sequence(request, self._arrived)
        self._waiting.append(sequence)
        self._woken.set()
        try:
            for given in range(sequence.wanted):
                while sequence.generated <= given:
                    await sequence.news.wait()
                    sequence.news = anyio.Event()
                if not request.prefill:
                    yield TextDelta("word ")
            usage = TokenUsage(len(request.prompt_ids), sequence.cached, sequence.generated)
            yield GenerationEnd(FinishReason.LENGTH, usage)
        finally:
            sequence.gone = True

    def prompt_ids(self, messages: tuple[ChatMessage, ...], end: PromptEnd) -> tuple[int, ...]:
        return ()

    async def warm_up(self) -> None: ...

    async def aclose(self) -> None: ...

    async def run(self) -> None:
        while True:
            self._running = [one for one in self._running if not one.gone and not one.ended]
            self._waiting = [one for one in self._waiting if not one.gone]
            shares = self._schedule()
            if not shares:
                self._woken = anyio.Event()
                await self._woken.wait()
                continue
            self.steps += 1
            await anyio.sleep(self._duration_s(shares))
            for sequence, tokens in shares:
                self._advance(sequence, tokens)

    def _schedule(self) -> list[tuple[_Sequence, int]]:
        """Tokens of each sequence in the next step."""
        budget, shares = self._options.step_tokens, []
        alone = len(self._running) + len(self._waiting) == 1
        for sequence in self._running:
            if (tokens := self._share(sequence, budget, alone=alone)) > 0:
                shares.append((sequence, tokens))
                budget -= tokens
        for sequence in sorted(self._waiting, key=lambda one: (one.request.priority, one.arrival)):
            if budget <= 0 or len(self._running) >= self._options.max_sequences:
                break
            sequence.computed = sequence.cached = self._cached_tokens(sequence.request.prompt_ids)
            tokens = self._share(sequence, budget, alone=alone)
            self._waiting.remove(sequence)
            self._running.append(sequence)
            shares.append((sequence, tokens))
            budget -= tokens
        self.most_prefills = max(self.most_prefills, sum(one.remaining > 0 for one, _ in shares))
        return shares

    def _share(self, sequence: _Sequence, budget: int, *, alone: bool) -> int:
        if sequence.remaining <= 0:
            return min(1, budget)
        limit = self._options.step_tokens if alone else self._options.long_prefill_tokens
        return min(sequence.remaining, limit, budget)

    def _duration_s(self, shares: list[tuple[_Sequence, int]]) -> float:
        options = self._options
        prefilled = sum(tokens for sequence, tokens in shares if sequence.remaining > 0)
        decoding = sum(sequence.remaining <= 0 for sequence, _ in shares)
        decode_s = options.decode_s + decoding * options.decode_each_s if decoding else 0.0
        return options.step_s + prefilled * options.prefill_token_s + decode_s

    def _advance(self, sequence: _Sequence, tokens: int) -> None:
        if sequence.remaining > 0:
            sequence.computed += tokens
            self._keep(sequence.request.prompt_ids[: sequence.computed])
        if sequence.remaining <= 0:
            sequence.generated += 1
            sequence.news.set()

    def _cached_tokens(self, ids: tuple[int, ...]) -> int:
        """Of whole blocks; the last token is always computed."""
        known = 0
        for key in self._chain(ids[:-1]):
            if key not in self._cache:
                break
            self._cache.move_to_end(key)
            known += self._options.block_tokens
        return known

    def _keep(self, ids: tuple[int, ...]) -> None:
        for key in self._chain(ids):
            self._cache[key] = None
            self._cache.move_to_end(key)
        while len(self._cache) > self._options.cached_blocks:
            self._cache.popitem(last=False)

    def _chain(self, ids: tuple[int, ...]) -> list[int]:
        size, keys = self._options.block_tokens, [0]
        for start in range(0, len(ids) - size + 1, size):
            keys.append(hash((keys[-1], ids[start : start + size])))
        return keys[1:]


@asynccontextmanager
async def simulated_engine(options: SimulatedOptions | None = None) -> AsyncGenerator[SimulatedEngine, None]:
    engine = SimulatedEngine(options)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(engine.run)
        yield engine
        tasks.cancel_scope.cancel()
