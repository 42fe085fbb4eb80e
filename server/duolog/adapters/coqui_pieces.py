"""From pieces of a model's sound to the chunks of one request: trimmed, faded, with the positions of the words."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from duolog.adapters.coqui_spelling import Spelling
from duolog.ports.tts import SpeechChunk, WordTiming

FADE_MS = 10
LEAD_MS = 10
"""Silence that remains before the first sound."""
SILENCE_LEVEL = 0.01
"""-40 dB of full scale; below it nothing of the first sound is heard."""


class PieceAssembler:
    """Pieces in, chunks out, in order. Holds back the last 10 ms: they are faded where nothing follows."""

    def __init__(self, sample_rate_hz: int, hop_samples: int) -> None:
        self._sample_rate_hz = sample_rate_hz
        self._hop_samples = hop_samples
        self._lead_samples = sample_rate_hz * LEAD_MS // 1000
        self._fade = np.linspace(0.0, 1.0, sample_rate_hz * FADE_MS // 1000, dtype=np.float32)
        self._words: deque[WordTiming] = deque()
        self._held = np.zeros(0, dtype=np.float32)
        self._planned = 0
        self._trimmed = 0
        self._sent = 0
        self._audible = False

    def begin_sentence(self, spelling: Spelling, frames: NDArray[np.int64]) -> None:
        """The next pieces are the sound of `spelling`; `frames` is the length of each of its ids."""
        edges = np.concatenate(([0], np.cumsum(frames))) * self._hop_samples + self._planned
        for word in spelling.words:
            start, end = int(edges[word.first_id]), int(edges[word.end_id])
            self._words.append(WordTiming(word.text_start, word.text_end, start, end))
        self._planned = int(edges[-1])

    def add(self, piece: NDArray[np.float32]) -> Iterator[SpeechChunk]:
        if not self._audible:
            piece = self._without_lead(piece)
        sound = np.concatenate((self._held, piece))
        ready = max(0, len(sound) - len(self._fade))
        self._held = sound[ready:]
        if ready:
            yield self._chunk(sound[:ready], last=False)

    def finish(self) -> Iterator[SpeechChunk]:
        """The rest. Nothing where nothing was audible."""
        if len(self._held):
            yield self._chunk(_faded_in(self._held[::-1], self._fade)[::-1], last=True)

    def _without_lead(self, piece: NDArray[np.float32]) -> NDArray[np.float32]:
        loud = np.flatnonzero(np.abs(piece) > SILENCE_LEVEL)
        self._audible = len(loud) > 0
        cut = max(0, int(loud[0]) - self._lead_samples) if self._audible else len(piece)
        self._trimmed += cut
        return _faded_in(piece[cut:], self._fade) if self._audible else piece[cut:]

    def _chunk(self, samples: NDArray[np.float32], *, last: bool) -> SpeechChunk:
        self._sent += len(samples)
        words: list[WordTiming] = []
        while self._words and (last or self._words[0].start_sample - self._trimmed < self._sent):
            words.append(self._placed(self._words.popleft()))
        return SpeechChunk(samples, self._sample_rate_hz, tuple(words))

    def _placed(self, word: WordTiming) -> WordTiming:
        """Relative to the first sample that is sent; never beyond the last."""
        total = self._planned - self._trimmed
        start = min(max(0, word.start_sample - self._trimmed), total)
        end = min(max(start, word.end_sample - self._trimmed), total)
        return WordTiming(word.text_start, word.text_end, start, end)


def _faded_in(samples: NDArray[np.float32], fade: NDArray[np.float32]) -> NDArray[np.float32]:
    faded = samples.copy()
    length = min(len(fade), len(faded))
    faded[:length] *= fade[:length]
    return faded
