"""Cuts a stream of arbitrary chunks into windows of one exact length."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray


class Framer:
    """Keeps the remainder between chunks; no sample is lost or repeated."""

    def __init__(self, window_samples: int) -> None:
        """Raises ValueError for a window without samples."""
        if window_samples <= 0:
            raise ValueError(f"a window needs at least one sample, not {window_samples}")
        self.window_samples = window_samples
        self._rest = np.zeros(0, np.float32)

    @property
    def pending_samples(self) -> int:
        """Samples that wait for the rest of their window."""
        return len(self._rest)

    def push(self, samples: NDArray[np.float32]) -> Iterator[NDArray[np.float32]]:
        """Yield every window that is complete now, shape (window_samples,)."""
        joined = np.concatenate((self._rest, samples)) if len(self._rest) else samples
        whole = len(joined) // self.window_samples * self.window_samples
        self._rest = joined[whole:].copy()
        for start in range(0, whole, self.window_samples):
            yield joined[start : start + self.window_samples]
