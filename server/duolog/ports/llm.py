"""A chat model. Every request passes `serving/batcher.py`; nobody else calls an engine."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class Role(StrEnum):
    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"


@dataclass(frozen=True, slots=True)
class ChatMessage:
    role: Role
    content: str


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to choose tokens. Defaults are those of a careful voice answer."""

    temperature: float = 0.7
    top_p: float = 1.0
    """Of the likeliest tokens, as many as together reach this; below 1 an engine sorts its vocabulary at each token."""
    min_p: float = 0.08
    """No token less likely than this times the likeliest is chosen; a server may know `top_p` alone. 0: any is."""
    repetition_penalty: float = 1.05
    max_tokens: int = 160
    stop: tuple[str, ...] = ()
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    request_id: str
    """Unique; the engine's logs carry it."""
    messages: tuple[ChatMessage, ...]
    sampling: Sampling
    session_id: str = ""
    """Sticky routing key: requests of one call share a KV prefix."""
    priority: int = 0
    """Lower runs first (vLLM's convention)."""
    prompt_ids: tuple[int, ...] = ()
    """The exact prompt, as `prompt_ids` of this engine made it: sent instead of `messages`."""
    prefill: bool = False
    """Only compute the KV cache of `prompt_ids`, for a later request that begins with them; the stream is its end."""
    likeliest: int = 0
    """Of a prefill: how many of the likeliest next tokens its end is to name, at most 20."""
    replica: str = ""
    """Which of the engine's replicas is to run it; empty: the engine's choice."""
    batch: int = 0
    """Requests of the same number were let in together: an engine without continuous batching runs them as one batch.
    0: alone."""
    batch_size: int = 1
    """How many have this number."""


@dataclass(frozen=True, slots=True)
class TokenUsage:
    prompt_tokens: int = 0
    cached_tokens: int = 0
    """Prompt tokens served from the engine's prefix cache, as the engine reports them."""
    completion_tokens: int = 0


class FinishReason(StrEnum):
    STOP = "stop"
    LENGTH = "length"
    ABORTED = "aborted"


@dataclass(frozen=True, slots=True)
class TextDelta:
    text: str
    """At least one character."""


@dataclass(frozen=True, slots=True)
class TokenChance:
    """A token that may come next."""

    text: str
    """With the space before it; empty: the end of the message."""
    probability: float


@dataclass(frozen=True, slots=True)
class GenerationEnd:
    """Always the last value of a stream that did not raise."""

    reason: FinishReason
    usage: TokenUsage
    likely: tuple[TokenChance, ...] = ()
    """What was asked for by `GenerationRequest.likeliest`; empty where the engine cannot tell."""


class PromptEnd(StrEnum):
    """How the ids of a prompt end."""

    ANSWER = "answer"
    """The model's turn to speak: a prompt to generate from."""
    OPEN = "open"
    """In the middle of the last message, of which more may follow: a prompt to prefill."""


class LanguageModel(Protocol):
    """A chat model engine, re-entrant."""

    def generate(self, request: GenerationRequest) -> AsyncGenerator[TextDelta | GenerationEnd, None]:
        """Stream an answer: TextDelta…, then one GenerationEnd. A prefill streams only its end.

        Closing the generator (`aclosing`) or cancelling stops the engine's work for it within 20 ms.
        Raises EngineUnavailable, EngineTimeout, EngineRejected, EngineProtocolError; also in mid-stream.
        """
        ...

    def prompt_ids(self, messages: tuple[ChatMessage, ...], end: PromptEnd) -> tuple[int, ...]:
        """The token ids of these messages with the model's own chat template; empty where the engine keeps them to
        itself, and then there is no prefill.

        The same messages give the same ids, and more messages after them only add to the ids. Raises EngineRejected
        where the template refuses the conversation.
        """
        ...

    async def warm_up(self) -> None:
        """Run one short request; raises EngineUnavailable where the engine is not ready."""
        ...

    async def aclose(self) -> None:
        """Close connections. Idempotent."""
        ...

    @property
    def context_tokens(self) -> int:
        """Context length of the model, prompt and answer together. Known after `warm_up`."""
        ...
