"""What callers say: recordings of a folder, or sentences spoken by espeak-ng, and the noise of a room."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soxr
from numpy.typing import NDArray

from duolog.adapters.espeak_library import SAMPLE_RATE_HZ as ESPEAK_RATE_HZ
from duolog.adapters.espeak_library import shared_library
from duolog.loadtest.audio_files import HEADERLESS_CODECS, SAMPLE_RATE_HZ, read_speech
from duolog.loadtest.failures import AudioUnreadable
from duolog.loadtest.timeline import first_voiced_sample, last_voiced_sample

SOUND_SUFFIXES = {".wav", ".flac", ".ogg", ".opus", ".mp3", ".m4a", *HEADERLESS_CODECS}
MOST_SOUNDS = 200
LONGEST_S = 30.0
WORDS_PER_MIN = 165
ESPEAK_VOICE = "en-us"
LEVEL = 0.35
"""Peak of espeak-ng's sentences, of full scale: as loud as a close microphone."""


@dataclass(frozen=True, slots=True, eq=False)
class Sound:
    """Something to say, 16 kHz mono."""

    label: str
    samples: NDArray[np.int16]
    voiced_from_s: float
    voiced_until_s: float

    @property
    def length_s(self) -> float:
        return len(self.samples) / SAMPLE_RATE_HZ


def sound_of(label: str, samples: NDArray[np.int16]) -> Sound:
    first, last = first_voiced_sample(samples), last_voiced_sample(samples) + 1
    return Sound(label, samples, first / SAMPLE_RATE_HZ, last / SAMPLE_RATE_HZ)


def recorded_sounds(folder: Path) -> list[Sound]:
    """The folder's recordings by name, sub-folders left out. Raises AudioUnreadable."""
    if not folder.is_dir():
        raise AudioUnreadable(f"There is no folder {folder}; name one that holds recordings of people speaking.")
    paths = sorted(path for path in folder.iterdir() if path.suffix.lower() in SOUND_SUFFIXES)
    if not paths:
        raise AudioUnreadable(f"{folder} holds no recordings ({', '.join(sorted(SOUND_SUFFIXES))}); put some there.")
    sounds = [sound_of(path.name, read_speech(path)) for path in paths[:MOST_SOUNDS]]
    fitting = [sound for sound in sounds if sound.length_s <= LONGEST_S and sound.samples.any()]
    if not fitting:
        raise AudioUnreadable(f"Every recording in {folder} is silent or longer than {LONGEST_S:.0f} s; cut them.")
    return fitting


def spoken_sounds(sentences: Sequence[str]) -> list[Sound]:
    """The sentences, spoken by espeak-ng. Raises ConfigurationError, AudioUnreadable."""
    return [_spoken(sentence) for sentence in sentences]


def room_noise(length_s: float, rms: float, seed: int) -> Sound:
    """A hum and a hiss at this level of full scale; the same for the same seed."""
    count = round(length_s * SAMPLE_RATE_HZ)
    times = np.arange(count) / SAMPLE_RATE_HZ
    hiss = np.random.default_rng(seed).standard_normal(count)
    sound = 0.9 * hiss + 0.6 * np.sin(2 * np.pi * 100 * times)
    scaled = sound * (rms / max(1e-9, float(np.sqrt(np.mean(sound**2)))) if count else 0.0)
    samples = np.asarray(np.clip(scaled, -1, 1) * 32_767, dtype=np.int16)
    return Sound("noise", samples, 0.0, length_s)


def _spoken(sentence: str) -> Sound:
    try:
        spoken = shared_library().speak(sentence, ESPEAK_VOICE, WORDS_PER_MIN, lambda: False)
    except RuntimeError as error:
        raise AudioUnreadable(f'espeak-ng could not say "{sentence}" ({error}); give recordings instead.') from error
    if not spoken.samples.any():
        raise AudioUnreadable(f'espeak-ng says nothing for "{sentence}"; write words.')
    resampled = soxr.resample(spoken.samples.astype(np.float32), ESPEAK_RATE_HZ, SAMPLE_RATE_HZ, quality="HQ")
    level = resampled * (LEVEL * 32_767 / float(np.abs(resampled).max()))
    return sound_of(sentence, np.asarray(np.round(level), dtype=np.int16))
