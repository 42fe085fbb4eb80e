"""How loud sound is, and where it is quiet. Samples are float, -1 to 1; levels are dB below full scale."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

SILENCE_DBFS = -120.0
"""The level of digital silence, instead of minus infinity."""


def rms(samples: NDArray[np.float32]) -> float:
    """Root mean square, 0 to 1; 0 without samples."""
    return float(np.sqrt(np.mean(np.square(samples, dtype=np.float64)))) if len(samples) else 0.0


def rms_dbfs(samples: NDArray[np.float32]) -> float:
    """Level of the whole; a full-scale sine has -3."""
    return _dbfs(rms(samples))


def peak_dbfs(samples: NDArray[np.float32]) -> float:
    """Level of the loudest sample."""
    return _dbfs(float(np.max(np.abs(samples)))) if len(samples) else SILENCE_DBFS


def quietest_point(samples: NDArray[np.float32], start: int, end: int, window_samples: int) -> int:
    """Middle of the quietest window that lies in `start` to `end`, the last one of equals: the place to cut.

    Raises ValueError where no window fits.
    """
    if end - start < window_samples or start < 0 or end > len(samples):
        raise ValueError(f"no window of {window_samples} samples lies in {start} to {end} of {len(samples)}")
    energy = np.concatenate(([0.0], np.cumsum(np.square(samples[start:end], dtype=np.float64))))
    sums = energy[window_samples:] - energy[:-window_samples]
    quietest = len(sums) - 1 - int(np.argmin(sums[::-1]))
    return start + quietest + window_samples // 2


def _dbfs(amplitude: float) -> float:
    return max(SILENCE_DBFS, 20 * float(np.log10(amplitude))) if amplitude > 0 else SILENCE_DBFS
