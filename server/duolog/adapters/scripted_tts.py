"""A synthesizer that computes nothing: a tone for each word, at exact positions, after exact delays.

For tests in virtual time and for load without models. Uses no thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Iterator

import anyio
import numpy as np
from numpy.typing import NDArray

from duolog.adapters.coqui_words import word_spans
from duolog.ports.errors import EngineError, EngineRejected
from duolog.ports.tts import SpeechChunk, SpeechRequest, Voice, WordTiming

SCRIPTED_VOICE = Voice(id="scripted", languages=("en", "zh"), sample_rate_hz=24_000, has_word_timings=True)
MS_PER_CHAR = 60
GAP_MS = 40
"""Silence after each word."""
CHUNK_MS = 200
AMPLITUDE = 0.3


class ScriptedSynthesizer:
    """Deterministic `SpeechSynthesizer`; `fail_next` and `stall_next` script what goes wrong."""

    def __init__(
        self,
        voices: tuple[Voice, ...] = (SCRIPTED_VOICE,),
        *,
        delay_s: float = 0.0,
        chunk_delay_s: float = 0.0,
        remembers: bool = True,
    ) -> None:
        """`delay_s`: until the first chunk; `chunk_delay_s`: before each later one (a chunk is 200 ms of sound).

        `remembers`: keep what was asked, for tests to look at.
        """
        self._remembers = remembers
        self._voices = {voice.id: voice for voice in voices}
        self._delay_s = delay_s
        self._chunk_delay_s = chunk_delay_s
        self._faults: deque[EngineError | None] = deque()
        self.requests: list[SpeechRequest] = []
        """Every request that was begun, in order."""
        self.running = 0
        """Requests being spoken now; never more than one where the caller keeps the port's contract."""

    def fail_next(self, error: EngineError) -> None:
        """The next request without a fault of its own raises `error` instead of its first chunk."""
        self._faults.append(error)

    def stall_next(self) -> None:
        """The next request without a fault of its own never ends."""
        self._faults.append(None)

    def voices(self) -> tuple[Voice, ...]:
        return tuple(self._voices.values())

    async def warm_up(self) -> None:
        await anyio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        await anyio.lowlevel.checkpoint()

    async def synthesize(self, request: SpeechRequest) -> AsyncGenerator[SpeechChunk, None]:
        voice = self._voices.get(request.voice)
        if voice is None:
            known = ", ".join(sorted(self._voices))
            raise EngineRejected(f"There is no voice {request.voice!r}; choose one of: {known}.", engine="tts")
        if self._remembers:
            self.requests.append(request)
        self.running += 1
        try:
            await anyio.sleep(self._delay_s)
            await self._act_out_fault()
            for index, chunk in enumerate(scripted_speech(request, voice.sample_rate_hz)):
                await anyio.sleep(self._chunk_delay_s if index else 0)
                yield chunk
        finally:
            self.running -= 1

    async def _act_out_fault(self) -> None:
        if not self._faults:
            return
        fault = self._faults.popleft()
        if fault is None:
            await anyio.sleep_forever()
        else:
            raise fault


def scripted_speech(request: SpeechRequest, sample_rate_hz: int) -> Iterator[SpeechChunk]:
    """What the engine says, chunk by chunk."""
    sounds: list[NDArray[np.float32]] = []
    words: list[WordTiming] = []
    position = 0
    for index, (start, end) in enumerate(word_spans(request.text, 0, len(request.text))):
        length = round((end - start) * MS_PER_CHAR * sample_rate_hz / 1000 / request.speed)
        words.append(WordTiming(start, end, position, position + length))
        gap = np.zeros(round(GAP_MS * sample_rate_hz / 1000 / request.speed), dtype=np.float32)
        sounds += [_tone(index, length, sample_rate_hz), gap]
        position += length + len(gap)
    samples = np.concatenate(sounds) if sounds else np.zeros(0, dtype=np.float32)
    size = sample_rate_hz * CHUNK_MS // 1000
    for begin in range(0, len(samples), size):
        own = tuple(word for word in words if begin <= word.start_sample < begin + size)
        yield SpeechChunk(samples[begin : begin + size], sample_rate_hz, own)


def _tone(index: int, length: int, sample_rate_hz: int) -> NDArray[np.float32]:
    """Neighbouring words differ in pitch."""
    pitch_hz = 220.0 * 2 ** ((index % 5) / 5)
    tone = AMPLITUDE * np.sin(2 * np.pi * pitch_hz * np.arange(length) / sample_rate_hz)
    return tone.astype(np.float32)
