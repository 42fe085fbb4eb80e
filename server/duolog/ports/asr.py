"""Speech to text. The recognizer scheduler in `serving/` is the only caller of an engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

SAMPLE_RATE_HZ = 16_000
"""What every recognizer is fed."""


@dataclass(frozen=True, slots=True)
class TranscriptionRequest:
    """One utterance, or the part of it there is so far."""

    samples: NDArray[np.float32]
    """Shape (n,), mono, 16 kHz, -1 to 1."""
    language: str | None
    """ISO 639-1 code, or None to detect it."""
    partial: bool = False
    """True: a quick greedy decode whose last words may change. False: the best the engine can do."""
    expected: tuple[str, ...] = ()
    """Where `language` is None: the languages it can be; empty: any."""

    @property
    def audio_s(self) -> float:
        return len(self.samples) / SAMPLE_RATE_HZ


@dataclass(frozen=True, slots=True)
class Transcript:
    """What was understood, with the evidence the hallucination gate needs."""

    text: str
    """Stripped; empty where nothing was recognised."""
    language: str
    mean_logprob: float
    """Mean log-probability per token; 0 is certain."""
    no_speech_prob: float
    """0 to 1."""
    compression_ratio: float
    """UTF-8 bytes of the text over its zlib size; repetition raises it."""
    audio_s: float
    """Length of the samples that were decoded."""
    looks: int = 1
    """How often the engine decoded it, or the piece of it that needed most; more where it doubted what it heard."""


class SpeechRecognizer(Protocol):
    """A speech-to-text engine. Not re-entrant: one `transcribe` at a time, the caller sees to it."""

    async def transcribe(self, requests: Sequence[TranscriptionRequest]) -> list[Transcript]:
        """Transcribe a batch, results in the order of `requests`: finals and partials, of any number and length.

        Each says what it would say alone, but for what other padding does to single words; an engine that cannot
        compute several at once takes them one after another. Long audio is heard to its end, never cut or refused.
        Cancellation: returns control within one decoder step; a cancelled batch leaves no work running for long.
        Raises EngineError.
        """
        ...

    async def warm_up(self) -> None:
        """Load and run once, so that the first real request is as fast as the tenth."""
        ...

    async def aclose(self) -> None:
        """Free threads and memory. Idempotent."""
        ...
