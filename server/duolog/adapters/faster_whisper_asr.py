"""Speech to text with Whisper through faster-whisper and CTranslate2, in a thread of its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from duolog.adapters.model_thread import ModelThread, StopFlag
from duolog.adapters.whisper_window import WhisperWindow
from duolog.ports.asr import SAMPLE_RATE_HZ, Transcript, TranscriptionRequest
from duolog.ports.errors import EngineError, EngineRejected, EngineUnavailable, ModelMissing

MODEL_FILES = ("model.bin", "config.json", "tokenizer.json")
VENDOR_ERRORS: dict[type[Exception], type[EngineError]] = {
    RuntimeError: EngineUnavailable,
    MemoryError: EngineUnavailable,
    ValueError: EngineRejected,
}


class FasterWhisperRecognizer:
    """`SpeechRecognizer` over a folder in CTranslate2's format. The model is loaded by the first use."""

    def __init__(
        self,
        model_dir: Path,
        *,
        threads: int = 1,
        cores: frozenset[int] | None = None,
        compute_type: str = "int8",
        device: str = "cpu",
    ) -> None:
        """`cores`: CPU cores the thread is bound to. `device`: `cpu`, `cuda` or `auto`. Raises ModelMissing."""
        absent = [name for name in MODEL_FILES if not (model_dir / name).is_file()]
        if absent:
            raise ModelMissing(
                f"The Whisper model in {model_dir} lacks {', '.join(absent)}; run `duolog models prepare`."
            )
        self._model_dir = model_dir
        self._threads = threads
        self._compute_type = compute_type
        self._device = device
        self._thread = ModelThread("whisper", engine="asr", cores=cores)
        self._loaded: WhisperWindow | None = None

    async def transcribe(self, requests: Sequence[TranscriptionRequest]) -> list[Transcript]:
        """As the port says. Raises ModelMissing, EngineError.

        Cancellation: control returns at once; the thread first ends its encoder or decoder run, which the token cap
        bounds to a few tenths of a second on a slow core.
        """
        return await self._thread.run(lambda stop: self._transcribe(requests, stop))

    async def warm_up(self) -> None:
        second = np.random.default_rng(0).normal(0, 0.01, SAMPLE_RATE_HZ).astype(np.float32)
        await self.transcribe([TranscriptionRequest(second, language="en")])

    async def aclose(self) -> None:
        await self._thread.aclose()
        self._loaded = None

    def _transcribe(self, requests: Sequence[TranscriptionRequest], stop: StopFlag) -> list[Transcript]:
        window = self._window()
        try:
            return window.transcribe(requests, stop)
        except tuple(VENDOR_ERRORS) as error:
            kind = next(ours for vendor, ours in VENDOR_ERRORS.items() if isinstance(error, vendor))
            raise kind(f"Whisper failed: {error}", engine="asr") from error

    def _window(self) -> WhisperWindow:
        if self._loaded is None:
            try:
                self._loaded = WhisperWindow(
                    self._model_dir, threads=self._threads, compute_type=self._compute_type, device=self._device
                )
            except (RuntimeError, ValueError, OSError) as error:
                mend = "run `duolog models prepare`" if self._device == "cpu" else "or set asr.device to cpu"
                raise ModelMissing(
                    f"The Whisper model in {self._model_dir} cannot be loaded on {self._device} ({error}); {mend}."
                ) from error
        return self._loaded
