"""What the caller says, frame by frame, with silence in between and after. Pure; it is told when a frame is sent."""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

from duolog.loadtest.call_log import Turn
from duolog.loadtest.pacing import FRAME_SAMPLES, cut_frames
from duolog.loadtest.timeline import last_voiced_sample

SILENCE = bytes(FRAME_SAMPLES * 2)


class Microphone:
    """A queue of frames that never runs out: after the last one comes silence."""

    def __init__(self) -> None:
        self._frames: deque[bytes] = deque()
        self._voiced_frames_left = 0
        self._turn: Turn | None = None

    def speak(self, samples: NDArray[np.int16], turn: Turn) -> None:
        """Queue a recording as this turn; the turn is told when its last voiced sample has been sent."""
        self._frames.extend(cut_frames(samples))
        self._voiced_frames_left = last_voiced_sample(samples) // FRAME_SAMPLES + 1
        self._turn = turn

    def next_frame(self) -> bytes:
        return self._frames.popleft() if self._frames else SILENCE

    def frame_sent(self, now_s: float) -> None:
        """The frame that `next_frame` gave has been handed to the socket."""
        if self._turn is None or not self._voiced_frames_left:
            return
        self._voiced_frames_left -= 1
        if not self._voiced_frames_left:
            self._turn.last_voiced_s = now_s
            self._turn = None
