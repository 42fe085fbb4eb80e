"""A turn detector that answers from a script: exact in tests, useless on real speech."""

from __future__ import annotations

from collections.abc import Callable

import anyio
import numpy as np
from numpy.typing import NDArray

Script = Callable[[NDArray[np.float32]], float]
"""Sound → probability."""


def undecided(_: NDArray[np.float32]) -> float:
    """Neither over nor not."""
    return 0.5


class ScriptedTurnDetector:
    """Deterministic `TurnDetector`. Counts what it was asked."""

    def __init__(self, script: Script = undecided, *, delay_s: float = 0.03) -> None:
        self._script = script
        self._delay_s = delay_s
        self.looks = 0

    async def probability(self, samples: NDArray[np.float32]) -> float:
        self.looks += 1
        await anyio.sleep(self._delay_s)
        return self._script(samples)

    async def warm_up(self) -> None:
        """Always warm."""

    async def aclose(self) -> None:
        """Holds nothing."""
