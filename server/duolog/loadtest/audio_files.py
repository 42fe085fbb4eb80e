"""Reads any recording into what a microphone would deliver: 16 kHz mono PCM16. Knows nothing of calls."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import av
import numpy as np
import soundfile
import soxr
from av.error import FFmpegError
from numpy.typing import NDArray

from duolog.loadtest.failures import AudioUnreadable

SAMPLE_RATE_HZ = 16_000
"""What the microphone of a call with extensions delivers."""

HEADERLESS_CODECS = {".raw": "s16le", ".pcm": "s16le", ".mulaw": "mulaw", ".ulaw": "mulaw", ".alaw": "alaw"}
"""Files without a header, by suffix: read as mono at 16 kHz."""


def read_speech(path: Path) -> NDArray[np.int16]:
    """The file's sound, shape (n,), 16 kHz mono; channels are averaged. Raises AudioUnreadable."""
    if not path.is_file():
        raise AudioUnreadable(f"There is no file {path}; name a recording (WAV, FLAC, OGG, MP3, Opus, raw or µ-law).")
    samples, rate_hz = _decode(path)
    if rate_hz != SAMPLE_RATE_HZ:
        samples = soxr.resample(samples, rate_hz, SAMPLE_RATE_HZ, quality="HQ")
    if not len(samples):
        raise AudioUnreadable(f"{path} holds no sound; name a recording of somebody speaking.")
    return to_pcm16(samples)


def write_wav(path: Path, samples: NDArray[np.int16], rate_hz: int) -> None:
    """Write mono PCM16. Raises AudioUnreadable where the folder does not take it."""
    try:
        soundfile.write(path, samples, rate_hz, subtype="PCM_16", format="WAV")
    except (soundfile.LibsndfileError, OSError) as error:
        raise AudioUnreadable(f"The answer could not be written to {path}: {error}") from error


def to_pcm16(samples: NDArray[np.float32]) -> NDArray[np.int16]:
    """Floats of -1 to 1, clipped, as PCM16."""
    scaled = np.clip(samples, -1.0, 1.0) * 32767.0
    return np.asarray(np.round(scaled), dtype=np.int16)


def _decode(path: Path) -> tuple[NDArray[np.float32], int]:
    readers: tuple[Callable[[Path], tuple[NDArray[np.float32], int]], ...] = (_read_with_soundfile, _read_with_av)
    if path.suffix.lower() in HEADERLESS_CODECS:
        readers = (_read_headerless,)
    reason: Exception | None = None
    for reader in readers:
        try:
            return reader(path)
        except (soundfile.LibsndfileError, FFmpegError, OSError, ValueError) as error:
            reason = error
    raise AudioUnreadable(f"{path} could not be read as sound ({reason}); convert it to WAV.") from reason


def _read_with_soundfile(path: Path) -> tuple[NDArray[np.float32], int]:
    samples, rate_hz = soundfile.read(path, dtype="float32", always_2d=True)
    return samples.mean(axis=1, dtype=np.float32), int(rate_hz)


def _read_with_av(path: Path) -> tuple[NDArray[np.float32], int]:
    with av.open(str(path)) as container:
        return _decode_container(container)


def _read_headerless(path: Path) -> tuple[NDArray[np.float32], int]:
    options = {"sample_rate": str(SAMPLE_RATE_HZ), "ch_layout": "mono"}
    with av.open(str(path), format=HEADERLESS_CODECS[path.suffix.lower()], options=options) as container:
        return _decode_container(container)


def _decode_container(container: av.container.InputContainer) -> tuple[NDArray[np.float32], int]:
    if not container.streams.audio:
        raise ValueError("it has no sound track")
    resampler = av.AudioResampler(format="flt", layout="mono", rate=SAMPLE_RATE_HZ)
    pieces = [piece.to_ndarray() for frame in container.decode(audio=0) for piece in resampler.resample(frame)]
    pieces += [piece.to_ndarray() for piece in resampler.resample(None)]
    if not pieces:
        return np.zeros(0, dtype=np.float32), SAMPLE_RATE_HZ
    return np.concatenate(pieces, axis=1)[0].astype(np.float32), SAMPLE_RATE_HZ
