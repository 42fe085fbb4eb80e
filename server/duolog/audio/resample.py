"""Sample-rate conversion of a stream: the converter keeps its state from chunk to chunk, so there are no seams."""

from __future__ import annotations

import numpy as np
import soxr
from numpy.typing import NDArray

FULL_SCALE = 32_768.0


class Resampler:
    """Converts one mono stream from `in_hz` to `out_hz` (soxr, high quality).

    With equal rates samples pass unchanged and at once; otherwise the filter holds back a few milliseconds, which
    `finish` hands over.
    """

    def __init__(self, in_hz: int, out_hz: int) -> None:
        """Raises ValueError for a rate that is not positive."""
        if in_hz <= 0 or out_hz <= 0:
            raise ValueError(f"sample rates must be positive, not {in_hz} and {out_hz} Hz")
        self.in_hz = in_hz
        self.out_hz = out_hz
        self._stream = None if in_hz == out_hz else soxr.ResampleStream(in_hz, out_hz, 1, dtype="float32")

    def push(self, samples: NDArray[np.int16] | NDArray[np.float32]) -> NDArray[np.float32]:
        """Convert the next samples, shape (n,); int16 is scaled to -1…1. The result's length varies by a few."""
        return self._convert(_as_float(samples), last=False)

    def finish(self) -> NDArray[np.float32]:
        """The end of the stream: what the filter still holds. The resampler may not be used after it."""
        return self._convert(np.zeros(0, np.float32), last=True)

    def _convert(self, samples: NDArray[np.float32], *, last: bool) -> NDArray[np.float32]:
        if self._stream is None:
            return samples
        converted: NDArray[np.float32] = self._stream.resample_chunk(samples, last=last)
        return converted


def _as_float(samples: NDArray[np.int16] | NDArray[np.float32]) -> NDArray[np.float32]:
    if samples.dtype == np.int16:
        return samples.astype(np.float32) / np.float32(FULL_SCALE)
    return samples.astype(np.float32, copy=False)
