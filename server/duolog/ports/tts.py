"""Text to speech. The synthesizer scheduler in `serving/` is the only caller of an engine."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Voice:
    """A voice an engine can speak with."""

    id: str
    languages: tuple[str, ...]
    """ISO 639-1 codes it speaks."""
    sample_rate_hz: int
    has_word_timings: bool
    """False: word positions are estimated, and history cut by them is marked approximate."""
    last_resort: bool = False
    """True: understandable but mechanical; it stands in only where no other voice speaks the language."""


@dataclass(frozen=True, slots=True)
class SpeechRequest:
    text: str
    """Speakable text, already normalised by `text/`."""
    voice: str
    """Id of a Voice."""
    language: str
    speed: float = 1.0
    """1.0 is the voice's own pace; 1.2 is faster."""


@dataclass(frozen=True, slots=True)
class WordTiming:
    """Where one word of the request's text lies in the sound."""

    text_start: int
    text_end: int
    """Character offsets into SpeechRequest.text, end exclusive."""
    start_sample: int
    end_sample: int
    """Sample offsets from the start of the request's speech, at the voice's rate, end exclusive."""


@dataclass(frozen=True, slots=True)
class SpeechChunk:
    """A piece of the phrase's sound, in order."""

    samples: NDArray[np.float32]
    """Shape (n,), mono, -1 to 1."""
    sample_rate_hz: int
    words: tuple[WordTiming, ...] = ()
    """Timings of the words that begin in this chunk."""


class SpeechSynthesizer(Protocol):
    """A text-to-speech engine. Not re-entrant: one `synthesize` at a time, the caller sees to it."""

    def synthesize(self, request: SpeechRequest) -> AsyncGenerator[SpeechChunk, None]:
        """Speak one phrase: one chunk for whole-phrase models, several for streaming ones.

        Closing the generator stops the work as soon as the model allows. Raises EngineRejected for an unknown voice,
        EngineError where synthesis fails. Text with nothing to say yields nothing.
        """
        ...

    def voices(self) -> tuple[Voice, ...]:
        """The voices there are; at least one."""
        ...

    async def warm_up(self) -> None:
        """Load every voice and speak once, so that the first real phrase is as fast as the tenth."""
        ...

    async def aclose(self) -> None:
        """Free threads and memory. Idempotent."""
        ...
