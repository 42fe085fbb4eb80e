"""One end-of-turn model for all calls, asked in the middle of a pause: it answers in time or not at all."""

from __future__ import annotations

import anyio
import numpy as np
import structlog
from numpy.typing import NDArray

from duolog.ports.errors import EngineError
from duolog.ports.turn_detector import TurnDetector
from duolog.telemetry import metrics

log = structlog.get_logger(__name__)

PATIENCE_S = 0.3
"""A later answer is of no use: the pause has been decided without it."""
MAX_WAITING = 8
"""Looks that may wait for the model, 30 ms each; one more is not begun."""


class TurnJudge:
    """Asks a `TurnDetector` and never fails: without an answer the policy goes by the text and the silence alone."""

    def __init__(
        self, detector: TurnDetector, *, patience_s: float = PATIENCE_S, max_waiting: int = MAX_WAITING
    ) -> None:
        self._detector = detector
        self._patience_s = patience_s
        self._max_waiting = max_waiting
        self._waiting = 0

    async def judge(self, samples: NDArray[np.float32]) -> float | None:
        """Probability 0 to 1 that the turn is over; None where it came too late, or the model failed or is busy."""
        if self._waiting >= self._max_waiting:
            metrics.DROPS.labels("turn_judgement", "busy").inc()
            return None
        self._waiting += 1
        try:
            with anyio.move_on_after(self._patience_s):
                return await self._detector.probability(samples)
            metrics.DROPS.labels("turn_judgement", "late").inc()
        except EngineError as error:
            metrics.DROPS.labels("turn_judgement", "failed").inc()
            log.warning("end-of-turn model failed", error=str(error))
        finally:
            self._waiting -= 1
        return None
