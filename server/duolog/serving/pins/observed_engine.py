"""The engine behind the batcher, watched: pins learn which prompts ran where, and what of them was cached."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from duolog.ports.llm import ChatMessage, GenerationEnd, GenerationRequest, LanguageModel, PromptEnd, TextDelta
from duolog.serving.pins.placement import PinnedPlacement


class ObservedEngine:
    """A `LanguageModel` that passes everything through."""

    def __init__(self, engine: LanguageModel, placement: PinnedPlacement) -> None:
        self._engine = engine
        self._placement = placement

    @property
    def context_tokens(self) -> int:
        return self._engine.context_tokens

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[TextDelta | GenerationEnd, None]:
        self._placement.begun(request)
        try:
            async with aclosing(self._engine.generate(request)) as stream:
                async for value in stream:
                    if isinstance(value, GenerationEnd):
                        self._placement.computed(request, value.usage)
                    yield value
        finally:
            self._placement.ended(request)

    def prompt_ids(self, messages: tuple[ChatMessage, ...], end: PromptEnd) -> tuple[int, ...]:
        return self._engine.prompt_ids(messages, end)

    async def warm_up(self) -> None:
        await self._engine.warm_up()

    async def aclose(self) -> None:
        await self._engine.aclose()
