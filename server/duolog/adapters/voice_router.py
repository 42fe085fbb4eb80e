"""Several speech engines as one: each voice by its own engine, and a stand-in where a voice lacks the language."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace

import structlog

from duolog.ports.errors import ConfigurationError, EngineRejected
from duolog.ports.tts import SpeechChunk, SpeechRequest, SpeechSynthesizer, Voice
from duolog.ports.voice_choice import voice_for

log = structlog.get_logger(__name__)


class VoiceRouter:
    """`SpeechSynthesizer` over others. It owns them: closing it closes them."""

    def __init__(self, engines: Sequence[SpeechSynthesizer]) -> None:
        """Voices are offered in the order of `engines`. Raises ConfigurationError where two have the same id."""
        self._engines = tuple(engines)
        self._engine_of: dict[str, SpeechSynthesizer] = {}
        self._reported: set[tuple[str, str]] = set()
        voices: list[Voice] = []
        for engine in self._engines:
            for voice in engine.voices():
                if voice.id in self._engine_of:
                    raise ConfigurationError(f"Two voices are called {voice.id!r}; rename one in `tts.voices`.")
                self._engine_of[voice.id] = engine
                voices.append(voice)
        self._voices = tuple(voices)

    def voices(self) -> tuple[Voice, ...]:
        return self._voices

    async def synthesize(self, request: SpeechRequest) -> AsyncGenerator[SpeechChunk, None]:
        """Chunks may differ in sample rate from one request to the next: each voice keeps its own."""
        voice = voice_for(self._voices, request.voice, request.language)
        if voice is None:
            known = ", ".join(sorted(self._engine_of))
            raise EngineRejected(f"There is no voice {request.voice!r}; choose one of: {known}.", engine="tts")
        self._report(request, voice)
        engine = self._engine_of[voice.id]
        async with aclosing(engine.synthesize(replace(request, voice=voice.id))) as chunks:
            async for chunk in chunks:
                yield chunk

    async def warm_up(self) -> None:
        for engine in self._engines:
            await engine.warm_up()

    async def aclose(self) -> None:
        for engine in self._engines:
            await engine.aclose()

    def _report(self, request: SpeechRequest, voice: Voice) -> None:
        """Once for each voice and language."""
        key = (request.voice, request.language)
        if voice.id == request.voice or key in self._reported:
            return
        self._reported.add(key)
        log.warning(
            "another voice stands in for a language",
            voice=request.voice,
            language=request.language,
            stand_in=voice.id,
            last_resort=voice.last_resort,
        )
