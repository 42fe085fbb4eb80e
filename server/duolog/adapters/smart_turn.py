"""End-of-turn detection by Smart Turn v3.2 (ONNX, int8), one thread, in a thread of its own: 28 ms a look."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
from faster_whisper.feature_extractor import FeatureExtractor
from numpy.typing import NDArray
from onnxruntime.capi.onnxruntime_pybind11_state import (
    Fail,
    InvalidArgument,
    InvalidGraph,
    InvalidProtobuf,
    NoSuchFile,
    RuntimeException,
)

from duolog.adapters.model_thread import ModelThread, StopFlag
from duolog.ports.errors import EngineRejected, EngineUnavailable, ModelMissing
from duolog.ports.turn_detector import SAMPLE_RATE_HZ, WINDOW_S

MODEL_FILE = "smart-turn-v3.2-cpu.onnx"
WINDOW_SAMPLES = int(WINDOW_S * SAMPLE_RATE_HZ)
INPUT_NAME = "input_features"
VARIANCE_FLOOR = 1e-7
"""As in the feature extractor the model was trained with."""
VENDOR_ERRORS = (Fail, InvalidArgument, InvalidGraph, InvalidProtobuf, NoSuchFile, RuntimeException, RuntimeError)


class SmartTurn:
    """`TurnDetector` over the folder that holds the model. It is loaded by the first use."""

    def __init__(self, model_dir: Path, *, cores: frozenset[int] | None = None) -> None:
        """`cores`: CPU cores the thread is bound to. Raises ModelMissing."""
        self._file = model_dir / MODEL_FILE
        if not self._file.is_file():
            raise ModelMissing(f"There is no {MODEL_FILE} in {model_dir}; run `duolog models prepare`.")
        self._thread = ModelThread("smart-turn", engine="turn", cores=cores)
        self._session: onnxruntime.InferenceSession | None = None
        self._extract = FeatureExtractor(feature_size=80, sampling_rate=SAMPLE_RATE_HZ)

    async def probability(self, samples: NDArray[np.float32]) -> float:
        """As the port says. Raises EngineRejected for sound of another shape, ModelMissing, EngineUnavailable."""
        if samples.ndim != 1 or not np.isfinite(samples).all():
            raise EngineRejected(
                "The turn detector takes mono audio of finite numbers; check the resampler.", engine="turn"
            )
        return await self._thread.run(lambda stop: self._look(samples, stop))

    async def warm_up(self) -> None:
        await self.probability(np.zeros(SAMPLE_RATE_HZ, np.float32))

    async def aclose(self) -> None:
        await self._thread.aclose()
        self._session = None

    def _look(self, samples: NDArray[np.float32], stop: StopFlag) -> float:
        stop.check()
        features = self._features(samples)
        stop.check()
        try:
            (output,) = self._loaded().run(None, {INPUT_NAME: features})
        except VENDOR_ERRORS as error:
            raise EngineUnavailable(f"Smart Turn failed: {error}", engine="turn") from error
        return float(np.clip(np.asarray(output).reshape(-1)[0], 0.0, 1.0))

    def _features(self, samples: NDArray[np.float32]) -> NDArray[np.float32]:
        """Log-mel of the last 8 s, shape (1, 80, 800): silence goes before shorter sound; mean 0, variance 1."""
        last = samples[-WINDOW_SAMPLES:].astype(np.float32)
        padded = np.pad(last, (WINDOW_SAMPLES - len(last), 0))
        normal = (padded - padded.mean()) / np.sqrt(padded.var() + VARIANCE_FLOOR)
        log_mel = self._extract(normal, padding=0)
        return np.asarray(log_mel, np.float32)[np.newaxis]

    def _loaded(self) -> onnxruntime.InferenceSession:
        if self._session is None:
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = 1
            options.inter_op_num_threads = 1
            options.log_severity_level = 3
            try:
                self._session = onnxruntime.InferenceSession(
                    str(self._file), options, providers=["CPUExecutionProvider"]
                )
            except VENDOR_ERRORS as error:
                raise ModelMissing(
                    f"{self._file} cannot be loaded ({error}); delete it and run `duolog models prepare`."
                ) from error
        return self._session
