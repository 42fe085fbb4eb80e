"""A voice detector that goes by loudness alone: exact on synthetic sound, useless on real noise."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from duolog.audio.levels import rms

LOUD_RMS = 0.01
VOICE, SILENCE = 0.99, 0.01


class ScriptedVad:
    """Deterministic `VoiceActivityDetector` without memory."""

    def probability(self, window: NDArray[np.float32]) -> float:
        return VOICE if rms(window) >= LOUD_RMS else SILENCE

    def reset(self) -> None:
        """Nothing to forget."""
