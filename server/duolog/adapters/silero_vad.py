"""Voice activity by Silero VAD v6 (ONNX, shipped inside faster-whisper). One session for all calls, state per call."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from duolog.ports.errors import EngineRejected, ModelMissing
from duolog.ports.vad import WINDOW_SAMPLES

CONTEXT_SAMPLES = 64
"""The model sees the end of the window before, too."""
STATE_SHAPE = (1, 1, 128)


class SileroVad:
    """`VoiceActivityDetector` of one call. Re-entrant among calls: the shared session is."""

    def __init__(self) -> None:
        """Raises ModelMissing where the package lacks the model."""
        self._session = _shared_session()
        self._h = np.zeros(STATE_SHAPE, np.float32)
        self._c = np.zeros(STATE_SHAPE, np.float32)
        self._input = np.zeros((1, CONTEXT_SAMPLES + WINDOW_SAMPLES), np.float32)

    def probability(self, window: NDArray[np.float32]) -> float:
        """Raises EngineRejected for a window of another shape."""
        if window.shape != (WINDOW_SAMPLES,):
            raise EngineRejected(
                f"The voice detector takes windows of {WINDOW_SAMPLES} samples, not of shape {window.shape}.",
                engine="vad",
            )
        self._input[0, :CONTEXT_SAMPLES] = self._input[0, -CONTEXT_SAMPLES:]
        self._input[0, CONTEXT_SAMPLES:] = window
        probability, self._h, self._c = self._session.run(None, {"input": self._input, "h": self._h, "c": self._c})
        return float(probability[0])

    def reset(self) -> None:
        for state in (self._h, self._c, self._input):
            state[...] = 0.0


@cache
def _shared_session() -> onnxruntime.InferenceSession:
    model = files("faster_whisper") / "assets" / "silero_vad_v6.onnx"
    if not model.is_file():
        raise ModelMissing(
            "faster-whisper lacks its voice detector silero_vad_v6.onnx; run `make setup` to reinstall it."
        )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model.read_bytes(), options, providers=["CPUExecutionProvider"])
