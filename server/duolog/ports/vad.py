"""Voice activity detection: one stateful detector per call, cheap enough for the event loop (0.07 ms a window)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

WINDOW_SAMPLES = 512
"""32 ms at 16 kHz."""


class VoiceActivityDetector(Protocol):
    """Says how likely a window is to hold speech."""

    def probability(self, window: NDArray[np.float32]) -> float:
        """Probability 0 to 1 for the next window, shape (512,), 16 kHz mono, -1 to 1."""
        ...

    def reset(self) -> None:
        """Forget the past, as at the start of a call."""
        ...


VoiceActivityDetectorFactory = Callable[[], VoiceActivityDetector]
