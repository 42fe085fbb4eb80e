"""What a scenario's caller sounds like: 16 kHz PCM16, made here or read from the corpus."""

from __future__ import annotations

from contextlib import aclosing
from pathlib import Path

import anyio
import numpy as np
import soxr
from numpy.typing import NDArray

from benchmarks.eval.scenario import Act
from duolog.adapters.espeak_voice import VOICE_ID, EspeakSynthesizer
from duolog.loadtest.audio_files import read_speech
from duolog.ports.errors import ConfigurationError
from duolog.ports.tts import SpeechRequest

RATE_HZ = 16_000
SPEED = 0.95
Sound = NDArray[np.int16]


class Sounds:
    """Makes each act's sound. `aclose` when done."""

    def __init__(self, corpus: Path) -> None:
        self._corpus = corpus
        self._voice = EspeakSynthesizer()
        self._one_at_a_time = anyio.Lock()

    async def aclose(self) -> None:
        await self._voice.aclose()

    async def of(self, act: Act) -> Sound:
        """Raises AudioUnreadable, ConfigurationError."""
        if act.speech is not None:
            return await self.speech(act.speech, act.language)
        if act.clip is not None:
            return read_speech(self._corpus / act.clip)
        if act.tone_ms is not None:
            return hum(act.tone_ms)
        if act.noise is not None:
            return noise(act.noise)
        return np.zeros((act.silence_ms or 0) * RATE_HZ // 1000, np.int16)

    async def speech(self, text: str, language: str) -> Sound:
        pieces, rate_hz = [], RATE_HZ
        request = SpeechRequest(text, VOICE_ID, language, SPEED)
        async with self._one_at_a_time, aclosing(self._voice.synthesize(request)) as chunks:
            async for chunk in chunks:
                pieces.append(chunk.samples)
                rate_hz = chunk.sample_rate_hz
        sound = np.concatenate(pieces) if pieces else np.zeros(0, np.float32)
        return _pcm16(np.asarray(soxr.resample(sound, rate_hz, RATE_HZ), np.float64))


def hum(length_ms: int) -> Sound:
    """A low tone with a voice's overtones, faded in and out."""
    time = np.arange(length_ms * RATE_HZ // 1000) / RATE_HZ
    tone = sum(np.sin(2 * np.pi * 130 * part * time) / part for part in range(1, 9))
    return _pcm16(np.asarray(tone) * 0.25 * _fade(len(time), 0.03))


def noise(kind: str) -> Sound:
    """`cough`: two short bursts; `hiss`: 1.5 s of white noise; `click`: a key. Raises ConfigurationError."""
    draw = np.random.default_rng(5)
    if kind == "hiss":
        return _pcm16(draw.standard_normal(RATE_HZ * 3 // 2) * 0.05)
    if kind == "click":
        return _pcm16(draw.standard_normal(RATE_HZ // 50) * np.linspace(1, 0, RATE_HZ // 50) ** 2 * 0.4)
    if kind != "cough":
        raise ConfigurationError(f"there is no noise `{kind}`; there are cough, hiss and click.")
    burst = draw.standard_normal(RATE_HZ // 5) * np.exp(-np.linspace(0, 6, RATE_HZ // 5)) * 0.4
    smooth = np.convolve(burst, np.ones(6) / 6, mode="same")
    return _pcm16(np.concatenate([smooth, np.zeros(RATE_HZ // 10), smooth * 0.7]))


def _fade(length: int, seconds: float) -> NDArray[np.float64]:
    ramp = np.ones(length)
    edge = min(length // 2, int(seconds * RATE_HZ))
    ramp[:edge] = np.linspace(0, 1, edge)
    ramp[length - edge :] = np.linspace(1, 0, edge)
    return ramp


def _pcm16(sound: NDArray[np.float64]) -> Sound:
    return (np.clip(sound, -1, 1) * 32_767).astype(np.int16)
