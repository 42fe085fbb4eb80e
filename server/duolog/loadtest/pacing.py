"""The caller's microphone clock: which frame is due when, and when each was really sent. Pure; times in seconds on one
monotonic clock that the caller owns."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FRAME_MS = 20
FRAME_SAMPLES = 320
"""20 ms at 16 kHz."""


@dataclass(frozen=True, slots=True)
class FrameSchedule:
    """Absolute deadlines: a frame that is late does not delay the next, so a long call does not drift."""

    start_s: float
    frame_ms: int = FRAME_MS

    def deadline_s(self, index: int) -> float:
        """When frame `index` leaves: the moment its last sample has been captured."""
        return self.start_s + (index + 1) * self.frame_ms / 1000

    def first_frame_from(self, now_s: float) -> int:
        """Number of the first frame whose capture begins no earlier than now."""
        return max(0, math.ceil((now_s - self.start_s) * 1000 / self.frame_ms - 1e-6))


class SentFrames:
    """When each frame of the call was handed to the socket."""

    def __init__(self, schedule: FrameSchedule) -> None:
        self.schedule = schedule
        self._sent_s: list[float] = []

    def __len__(self) -> int:
        return len(self._sent_s)

    def record(self, now_s: float) -> None:
        self._sent_s.append(now_s)

    def time_of_sample(self, sample: int) -> float:
        """When the frame that holds this sample of the call was sent; for one not sent yet, its deadline."""
        index = max(0, sample) // FRAME_SAMPLES
        return self._sent_s[index] if index < len(self._sent_s) else self.schedule.deadline_s(index)

    def worst_lateness_ms(self) -> float:
        """How far the most delayed frame was behind its deadline: above some 20 ms the measurement is in doubt."""
        return max(
            ((sent_s - self.schedule.deadline_s(index)) * 1000 for index, sent_s in enumerate(self._sent_s)),
            default=0.0,
        )


def cut_frames(samples: NDArray[np.int16]) -> list[bytes]:
    """The recording as 20 ms frames of little-endian PCM16, the last one filled up with silence."""
    missing = -len(samples) % FRAME_SAMPLES
    padded = np.concatenate([samples, np.zeros(missing, dtype=np.int16)]).astype("<i2")
    return [padded[start : start + FRAME_SAMPLES].tobytes() for start in range(0, len(padded), FRAME_SAMPLES)]
