"""Framing, resampling and levels of a stream that comes in arbitrary chunks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from duolog.audio.framing import Framer
from duolog.audio.levels import SILENCE_DBFS, peak_dbfs, quietest_point, rms, rms_dbfs
from duolog.audio.resample import Resampler

pytestmark = pytest.mark.pure

SIZES = st.lists(st.integers(0, 700), max_size=12)


def tone(samples: int, rate_hz: int = 16_000, pitch_hz: float = 440.0) -> NDArray[np.float32]:
    return (0.5 * np.sin(2 * np.pi * pitch_hz * np.arange(samples) / rate_hz)).astype(np.float32)


def chunks_of(samples: NDArray[np.float32], sizes: list[int]) -> list[NDArray[np.float32]]:
    return np.split(samples, np.cumsum(sizes)[:-1]) if sizes else []


@settings(deadline=None)
@given(SIZES, st.integers(1, 512))
def test_windows_are_exact_and_nothing_is_lost(sizes: list[int], window: int) -> None:
    stream = np.arange(sum(sizes), dtype=np.float32)
    framer = Framer(window)
    windows = [frame for chunk in chunks_of(stream, sizes) for frame in framer.push(chunk)]
    assert all(len(frame) == window for frame in windows)
    joined = np.concatenate([np.zeros(0, np.float32), *windows])
    assert joined.tolist() == stream[: len(joined)].tolist()
    assert framer.pending_samples == len(stream) - len(joined) < window


def test_a_window_without_samples_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Framer(0)


@settings(deadline=None)
@given(SIZES)
def test_resampling_does_not_depend_on_the_chunks(sizes: list[int]) -> None:
    stream = tone(sum(sizes), 24_000)
    whole, pieces = Resampler(24_000, 16_000), Resampler(24_000, 16_000)
    expected = np.concatenate([whole.push(stream), whole.finish()])
    got = np.concatenate([*(pieces.push(chunk) for chunk in chunks_of(stream, sizes)), pieces.finish()])
    assert len(got) == len(expected)
    np.testing.assert_allclose(got, expected, atol=1e-5)


@pytest.mark.parametrize(("in_hz", "out_hz"), [(48_000, 16_000), (24_000, 16_000), (8_000, 16_000), (22_050, 24_000)])
def test_length_and_sound_are_kept(in_hz: int, out_hz: int) -> None:
    resampler = Resampler(in_hz, out_hz)
    got = np.concatenate([resampler.push(tone(in_hz, in_hz)), resampler.finish()])
    assert abs(len(got) - out_hz) <= 1
    middle = slice(out_hz // 4, out_hz // 2)
    np.testing.assert_allclose(got[middle], tone(out_hz, out_hz)[middle], atol=2e-3)


def test_equal_rates_pass_at_once_and_int16_is_scaled() -> None:
    resampler = Resampler(16_000, 16_000)
    assert resampler.push(np.array([16_384, -32_768], np.int16)).tolist() == [0.5, -1.0]
    assert len(resampler.finish()) == 0


def test_a_rate_that_is_not_positive_is_refused() -> None:
    with pytest.raises(ValueError, match="positive"):
        Resampler(0, 16_000)


def test_levels() -> None:
    assert rms_dbfs(2 * tone(16_000)) == pytest.approx(-3.01, abs=0.01)
    assert peak_dbfs(tone(16_000)) == pytest.approx(-6.02, abs=0.01)
    assert rms_dbfs(np.zeros(10, np.float32)) == peak_dbfs(np.zeros(0, np.float32)) == SILENCE_DBFS
    assert rms(np.zeros(0, np.float32)) == 0.0


def test_the_quietest_point_lies_in_the_pause() -> None:
    samples = np.concatenate([tone(8_000), np.zeros(4_000, np.float32), tone(8_000)])
    assert 8_000 < quietest_point(samples, 0, len(samples), 1_600) < 12_000
    assert 13_000 <= quietest_point(samples, 13_000, 20_000, 1_600) < 20_000


def test_a_range_too_short_for_the_window_is_refused() -> None:
    with pytest.raises(ValueError, match="no window"):
        quietest_point(tone(1_000), 0, 100, 200)
