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
        self._frames: deque[tuple[bytes, Turn | None]] = deque()
        """Each with the turn whose last voiced sample it holds."""
        self._ends: Turn | None = None
        """The turn that ends with the frame in hand."""

    def speak(self, samples: NDArray[np.int16], turn: Turn, frames_ahead: int = 0) -> None:
        """Queue a recording as this turn; the turn is told when its last voiced sample has been sent.

        It begins so many frames after the next one, later where others are still queued: a microphone that is behind
        its clock first sends the silence it owes, so that speech is never sent before it could have been spoken.
        """
        self._frames.extend([(SILENCE, None)] * (frames_ahead - len(self._frames)))
        last_voiced = last_voiced_sample(samples) // FRAME_SAMPLES
        frames = cut_frames(samples)
        self._frames.extend((frame, turn if index == last_voiced else None) for index, frame in enumerate(frames))

    def next_frame(self) -> bytes:
        frame, self._ends = self._frames.popleft() if self._frames else (SILENCE, None)
        return frame

    def frame_sent(self, now_s: float) -> None:
        """The frame that `next_frame` gave has been handed to the socket."""
        if self._ends is not None:
            self._ends.last_voiced_s = now_s
            self._ends = None
