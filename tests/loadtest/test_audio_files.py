"""Recordings of every kind become what a microphone delivers."""

from __future__ import annotations

from pathlib import Path

import av
import numpy as np
import pytest
import soundfile

from duolog.loadtest.audio_files import read_speech, write_wav
from duolog.loadtest.failures import AudioUnreadable

pytestmark = pytest.mark.real


def tone(rate_hz: int, seconds: float = 0.5) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    return np.asarray(0.5 * np.sin(2 * np.pi * 440 * np.arange(int(rate_hz * seconds)) / rate_hz))


def is_the_tone(samples: np.ndarray[tuple[int, ...], np.dtype[np.int16]]) -> bool:
    """Half a second of 440 Hz at half of full scale."""
    spectrum = np.abs(np.fft.rfft(samples[1_000:7_000].astype(np.float64)))
    peak_hz = spectrum.argmax() * 16_000 / 6_000
    return bool(abs(len(samples) - 8_000) < 700 and abs(peak_hz - 440) < 5 and 15_000 < np.abs(samples).max() < 18_000)


@pytest.mark.parametrize(("suffix", "rate_hz"), [("wav", 16_000), ("wav", 44_100), ("flac", 8_000), ("ogg", 48_000)])
def test_with_header(tmp_path: Path, suffix: str, rate_hz: int) -> None:
    path = tmp_path / f"tone.{suffix}"
    soundfile.write(path, np.column_stack([tone(rate_hz)] * 2), rate_hz)
    assert is_the_tone(read_speech(path))


def test_telephone_wav(tmp_path: Path) -> None:
    path = tmp_path / "tone.wav"
    soundfile.write(path, tone(8_000), 8_000, subtype="ULAW")
    assert is_the_tone(read_speech(path))


@pytest.mark.parametrize(("suffix", "codec"), [("raw", "pcm_s16le"), ("mulaw", "pcm_mulaw"), ("alaw", "pcm_alaw")])
def test_headerless(tmp_path: Path, suffix: str, codec: str) -> None:
    path = tmp_path / f"tone.{suffix}"
    container = {"raw": "s16le"}.get(suffix, suffix)
    with av.open(str(path), "w", format=container) as out:
        stream = out.add_stream(codec, rate=16_000, layout="mono")
        samples = np.asarray(tone(16_000) * 32_767, dtype=np.int16)[np.newaxis]
        frame = av.AudioFrame.from_ndarray(samples, format="s16", layout="mono")
        frame.sample_rate = 16_000
        for packet in [*stream.encode(frame), *stream.encode(None)]:
            out.mux(packet)
    assert is_the_tone(read_speech(path))


def test_a_container_that_only_av_reads(tmp_path: Path) -> None:
    path = tmp_path / "tone.webm"
    with av.open(str(path), "w") as out:
        stream = out.add_stream("libopus", rate=48_000, layout="mono")
        samples = np.asarray(tone(48_000) * 32_767, dtype=np.int16)[np.newaxis]
        frame = av.AudioFrame.from_ndarray(samples, format="s16", layout="mono")
        frame.sample_rate = 48_000
        for packet in [*stream.encode(frame), *stream.encode(None)]:
            out.mux(packet)
    assert is_the_tone(read_speech(path))


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    empty, text = tmp_path / "empty.wav", tmp_path / "text.wav"
    soundfile.write(empty, np.zeros(0), 16_000)
    text.write_text("no sound")
    with pytest.raises(AudioUnreadable, match="holds no sound"):
        read_speech(empty)
    with pytest.raises(AudioUnreadable, match="could not be read as sound"):
        read_speech(text)
    with pytest.raises(AudioUnreadable, match="There is no file"):
        read_speech(tmp_path / "absent.wav")
    with pytest.raises(AudioUnreadable, match="could not be written"):
        write_wav(tmp_path / "absent" / "out.wav", np.zeros(1, dtype=np.int16), 16_000)
