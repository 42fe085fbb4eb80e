"""Answers by their exact question: the same model, persona, sampling and messages get the same text, without the model.

Two levels of three; the third is the engine's own prefix cache, which every other request meets (serving/prefill.py).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import asdict, dataclass
from typing import Protocol

from duolog.ports.llm import FinishReason, GenerationEnd, GenerationRequest, TextDelta, TokenUsage
from duolog.serving.batcher import Admitted, BatcherRequest
from duolog.serving.tiered_cache import Found, Level, TieredCache
from duolog.telemetry import metrics

VERSION = b"\x01"
"""First byte of a stored answer."""


@dataclass(frozen=True, slots=True)
class Recalled:
    """First value of an answer that was not made but remembered, in the place of Admitted."""

    level: Level


AnswerPart = Admitted | Recalled | TextDelta | GenerationEnd


class AnswerSource(Protocol):
    """What answers a request: the batcher, or a memory before it."""

    def generate(self, request: BatcherRequest) -> AsyncGenerator[AnswerPart, None]:
        """As `Batcher.generate`; a remembered answer begins with Recalled. Use it under `aclosing`."""
        ...


@dataclass(frozen=True, slots=True)
class CachedAnswer:
    text: str
    prompt_tokens: int
    completion_tokens: int


class PromptCache:
    """Shared by all calls of a process."""

    def __init__(self, tiers: TieredCache, model: str) -> None:
        """`model` names the model exactly: other weights under the same name must not share answers."""
        self._tiers = tiers
        self._model = model

    def key(self, persona: str, persona_version: str, request: GenerationRequest) -> str:
        """Of everything that decides the answer: SHA-256 of canonical JSON, byte for byte the messages'."""
        document = {
            "model": self._model,
            "persona": [persona, persona_version],
            "sampling": asdict(request.sampling),
            "messages": [[message.role.value, message.content] for message in request.messages],
        }
        canonical = json.dumps(document, ensure_ascii=True, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()

    async def find(self, key: str) -> Found[CachedAnswer] | None:
        """Waits a few milliseconds for the store at most."""
        return await self._tiers.find(key, decode)

    def keep(self, key: str, answer: CachedAnswer) -> None:
        """Returns at once. An answer without words is not kept."""
        if answer.text.strip():
            self._tiers.keep(key, encode(answer))


class RememberingSource:
    """Answers of one persona from memory where they are there, else from the batcher, and then remembered."""

    def __init__(self, source: AnswerSource, cache: PromptCache, persona: str, persona_version: str) -> None:
        self._source = source
        self._cache = cache
        self._persona = persona, persona_version

    async def generate(self, request: BatcherRequest) -> AsyncGenerator[AnswerPart, None]:
        """Only an answer that the model has ended by itself is remembered."""
        key = self._cache.key(*self._persona, request.generation)
        found = await self._cache.find(key)
        if found is not None:
            answer = found.value
            metrics.PROMPT_TOKENS.labels("cached").inc(answer.prompt_tokens)
            yield Recalled(found.level)
            yield TextDelta(answer.text)
            usage = TokenUsage(answer.prompt_tokens, answer.prompt_tokens, answer.completion_tokens)
            yield GenerationEnd(FinishReason.STOP, usage)
            return
        pieces = []
        async with aclosing(self._source.generate(request)) as stream:
            async for part in stream:
                if isinstance(part, TextDelta):
                    pieces.append(part.text)
                elif isinstance(part, GenerationEnd) and part.reason is FinishReason.STOP:
                    used = part.usage
                    self._cache.keep(key, CachedAnswer("".join(pieces), used.prompt_tokens, used.completion_tokens))
                yield part


def encode(answer: CachedAnswer) -> bytes:
    return VERSION + json.dumps([answer.text, answer.prompt_tokens, answer.completion_tokens]).encode()


def decode(stored: bytes) -> CachedAnswer:
    """Raises ValueError where it is none of ours."""
    if not stored.startswith(VERSION):
        raise ValueError("not an answer of this version")
    fields = json.loads(stored.removeprefix(VERSION))
    match fields:
        case [str(text), int(prompt_tokens), int(completion_tokens)] if text:
            return CachedAnswer(text, prompt_tokens, completion_tokens)
    raise ValueError("not an answer")
