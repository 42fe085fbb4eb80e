"""End-of-turn detection from sound: has the user finished? Advice on a pause, never the only judge."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

SAMPLE_RATE_HZ = 16_000
WINDOW_S = 8.0
"""What a detector looks at; earlier sound is of no use to it."""


class TurnDetector(Protocol):
    """An end-of-turn model."""

    async def probability(self, samples: NDArray[np.float32]) -> float:
        """Probability 0 to 1 that the turn is over.

        `samples`: shape (n,), mono, 16 kHz, -1 to 1, the utterance so far with the silence after its last word; only
        the last 8 s are looked at. Cancellation returns control at once. Raises EngineError.
        """
        ...

    async def warm_up(self) -> None:
        """Load and run once."""
        ...

    async def aclose(self) -> None:
        """Free threads and memory. Idempotent."""
        ...
