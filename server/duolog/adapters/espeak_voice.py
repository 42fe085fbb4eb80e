"""Speech by espeak-ng itself: over a hundred languages, mechanical, understandable. The voice of last resort."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing

import numpy as np

from duolog.adapters.coqui_pieces import PieceAssembler
from duolog.adapters.coqui_spelling import SpelledWord, Spelling
from duolog.adapters.coqui_words import word_spans
from duolog.adapters.espeak_library import (
    SAMPLE_RATE_HZ,
    VOICE_NAMES,
    WordMark,
    known_languages,
    shared_library,
)
from duolog.adapters.model_thread import ModelThread, StopFlag
from duolog.ports.errors import EngineError, EngineRejected
from duolog.ports.tts import SpeechChunk, SpeechRequest, Voice

VOICE_ID = "espeak"
WORDS_PER_MIN = 165
"""At speed 1.0; espeak-ng's own 175 is fast to listen to."""
SLOWEST, FASTEST = 80, 450
"""Words a minute; espeak-ng's limits."""
PIECE_SAMPLES = SAMPLE_RATE_HZ // 5


class EspeakSynthesizer:
    """The `SpeechSynthesizer` with one voice, `espeak`, for all languages that espeak-ng knows."""

    def __init__(self, *, cores: frozenset[int] | None = None) -> None:
        """`cores`: CPU cores its thread is bound to."""
        two_letters = {name for name in known_languages() if len(name) == 2}
        languages = ("en", "zh", *sorted(two_letters - {"en", "zh"}))
        self._voice = Voice(VOICE_ID, languages, SAMPLE_RATE_HZ, has_word_timings=True, last_resort=True)
        self._thread = ModelThread("espeak", engine="tts", cores=cores)

    def voices(self) -> tuple[Voice, ...]:
        return (self._voice,)

    async def warm_up(self) -> None:
        """Also raises ConfigurationError where the library is damaged."""
        async with aclosing(self.synthesize(SpeechRequest("Hello.", VOICE_ID, "en"))) as chunks:
            async for _ in chunks:
                pass

    async def aclose(self) -> None:
        await self._thread.aclose()

    async def synthesize(self, request: SpeechRequest) -> AsyncGenerator[SpeechChunk, None]:
        """Several chunks; a stop takes effect within 60 ms of sound. A language it lacks is refused."""
        code = request.language.split("-", maxsplit=1)[0].lower()
        if request.voice != VOICE_ID:
            raise EngineRejected(f"There is no voice {request.voice!r}; choose one of: {VOICE_ID}.", engine="tts")
        if code not in self._voice.languages:
            raise EngineRejected(f"espeak-ng does not speak {request.language!r}; give another voice.", engine="tts")

        def job(stop: StopFlag, emit: Callable[[SpeechChunk], None]) -> None:
            for chunk in _chunks(request, VOICE_NAMES.get(code, code), stop):
                emit(chunk)

        async with aclosing(self._thread.stream(job, max_buffered=16)) as chunks:
            async for chunk in chunks:
                yield chunk


def _chunks(request: SpeechRequest, voice_name: str, stop: StopFlag) -> Iterator[SpeechChunk]:
    spans = list(word_spans(request.text, 0, len(request.text)))
    if not spans:
        return
    rate = min(FASTEST, max(SLOWEST, round(WORDS_PER_MIN * request.speed)))
    try:
        sound = shared_library().speak(request.text, voice_name, rate, stop.is_set)
    except RuntimeError as error:
        raise EngineError(f"The voice of last resort failed to speak: {error}", engine="tts") from error
    stop.check()
    assembler = PieceAssembler(SAMPLE_RATE_HZ, hop_samples=1)
    assembler.begin_sentence(*_placed(spans, sound.marks, len(sound.samples)))
    samples = np.divide(sound.samples, 32_768, dtype=np.float32)
    for start in range(0, len(samples), PIECE_SAMPLES):
        yield from assembler.add(samples[start : start + PIECE_SAMPLES])
    yield from assembler.finish()


def _placed(
    spans: Sequence[tuple[int, int]], marks: Sequence[WordMark], total: int
) -> tuple[Spelling, np.ndarray[tuple[int, ...], np.dtype[np.int64]]]:
    """The words as if each were one symbol, and the length of each in samples; the first begins at 0."""
    edges = word_edges(spans, marks, total)
    words = tuple(SpelledWord(start, end, index, index + 1) for index, (start, end) in enumerate(spans))
    return Spelling(tuple(range(len(spans))), words), np.diff(np.array(edges, dtype=np.int64))


def word_edges(spans: Sequence[tuple[int, int]], marks: Sequence[WordMark], total: int) -> list[int]:
    """Where each word begins, and the end of the last. Words that espeak-ng joined share the time in equal parts."""
    begins: dict[int, int] = {0: 0}
    latest = 0
    for index, (start, end) in enumerate(spans):
        sample = next((mark.sample for mark in marks if start <= mark.text_offset < end), latest)
        if index and latest < sample < total:
            begins[index] = latest = sample
    known = [*begins, len(spans)]
    at = [*begins.values(), total]
    return [round(float(edge)) for edge in np.interp(range(len(spans) + 1), known, at)]
