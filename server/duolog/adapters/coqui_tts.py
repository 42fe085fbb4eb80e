"""Speech by Coqui TTS: any folder with a single-speaker VITS model (`config.json` and a checkpoint) is a voice.

All voices share one thread: phonemes, sound and word positions are computed there, never on the event loop. The sound
of a request comes in pieces, the first one short; leading silence is cut to 10 ms, and both ends are faded over 10 ms.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

from onnxruntime.capi import onnxruntime_pybind11_state as ort
from TTS.config import load_config

from duolog.adapters.coqui_engines import OnnxEngine, TorchEngine, VitsEngine, has_durations
from duolog.adapters.coqui_folder import MEND, VoiceFolder, open_folder
from duolog.adapters.coqui_pieces import PieceAssembler
from duolog.adapters.coqui_spelling import Speller
from duolog.adapters.model_thread import ModelThread, StopFlag
from duolog.ports.errors import ConfigurationError, EngineError, EngineRejected, ModelMissing
from duolog.ports.tts import SpeechChunk, SpeechRequest, Voice

WARM_UP_TEXT = "Hello there, it is good to hear you."
WARM_UP_TEXTS = {"zh": "你好，很高兴听到你的声音。"}
"""In languages whose spelling needs dictionaries of its own."""
MIN_SPEED, MAX_SPEED = 0.25, 4.0
"""Beyond these VITS stops being understandable."""

_RUN_ERRORS = (RuntimeError, ValueError, MemoryError, ort.Fail, ort.RuntimeException, ort.InvalidArgument)
_GRAPH_ERRORS = (ort.Fail, ort.InvalidGraph, ort.InvalidProtobuf, ort.RuntimeException, ort.InvalidArgument)


@dataclass(frozen=True, slots=True)
class _LoadedVoice:
    speller: Speller
    engine: VitsEngine
    hop_samples: int
    sample_rate_hz: int


class CoquiSynthesizer:
    """The `SpeechSynthesizer` for Coqui's VITS models."""

    def __init__(
        self,
        voices: Mapping[str, Path],
        *,
        threads: int = 1,
        cores: frozenset[int] | None = None,
        use_onnx: bool = True,
    ) -> None:
        """`voices`: folder by voice id; `threads`: of the model, bound to `cores`; `use_onnx=False`: the checkpoint.

        Raises ModelMissing where a folder lacks a part, ConfigurationError where a model is of another kind.
        """
        if not voices:
            raise ConfigurationError(f"No voice is configured; {MEND}.")
        self._folders = {voice_id: open_folder(voice_id, path) for voice_id, path in voices.items()}
        self._threads = threads
        self._use_onnx = use_onnx
        self._loaded: dict[str, _LoadedVoice] = {}
        self._thread = ModelThread("coqui-tts", engine="tts", cores=cores)

    def voices(self) -> tuple[Voice, ...]:
        return tuple(
            Voice(
                id=folder.id,
                languages=(folder.language,),
                sample_rate_hz=folder.sample_rate_hz,
                has_word_timings=folder.phonemizer == "espeak",
            )
            for folder in self._folders.values()
        )

    async def warm_up(self) -> None:
        """Also raises ModelMissing where a model file is damaged."""
        for voice_id, folder in self._folders.items():
            text = WARM_UP_TEXTS.get(folder.language, WARM_UP_TEXT)
            request = SpeechRequest(text, voice=voice_id, language=folder.language)
            async with aclosing(self.synthesize(request)) as chunks:
                async for _ in chunks:
                    pass

    async def aclose(self) -> None:
        await self._thread.aclose()
        self._loaded.clear()

    async def synthesize(self, request: SpeechRequest) -> AsyncGenerator[SpeechChunk, None]:
        """One chunk or several; a stop takes effect within the piece being computed.

        The language of the request is not looked at: a voice speaks its own.
        """
        folder = self._folders.get(request.voice)
        if folder is None:
            known = ", ".join(sorted(self._folders))
            raise EngineRejected(f"There is no voice {request.voice!r}; choose one of: {known}.", engine="tts")

        def job(stop: StopFlag, emit: Callable[[SpeechChunk], None]) -> None:
            for chunk in self._speak(folder, request, stop):
                emit(chunk)

        async with aclosing(self._thread.stream(job, max_buffered=16)) as chunks:
            async for chunk in chunks:
                yield chunk

    def _speak(self, folder: VoiceFolder, request: SpeechRequest, stop: StopFlag) -> Iterator[SpeechChunk]:
        voice = self._voice(folder)
        try:
            yield from _chunks(voice, request, stop)
        except _RUN_ERRORS as error:
            raise EngineError(f"The voice {folder.id!r} failed to speak: {error}", engine="tts") from error

    def _voice(self, folder: VoiceFolder) -> _LoadedVoice:
        if folder.id not in self._loaded:
            self._loaded[folder.id] = _load(folder, threads=self._threads, use_onnx=self._use_onnx)
        return self._loaded[folder.id]


def _chunks(voice: _LoadedVoice, request: SpeechRequest, stop: StopFlag) -> Iterator[SpeechChunk]:
    length_scale = 1 / min(MAX_SPEED, max(MIN_SPEED, request.speed))
    assembler = PieceAssembler(voice.sample_rate_hz, voice.hop_samples)
    for spelling in voice.speller.spell(request.text):
        stop.check()
        rendering = voice.engine.render(spelling.ids, length_scale)
        assembler.begin_sentence(spelling, rendering.frames)
        for piece in rendering.pieces:
            stop.check()
            yield from assembler.add(piece)
    yield from assembler.finish()


def _load(folder: VoiceFolder, *, threads: int, use_onnx: bool) -> _LoadedVoice:
    try:
        config = load_config(str(folder.config_path))
        speller = Speller(config)
    except (ValueError, KeyError, TypeError, AttributeError, ImportError) as error:
        raise ModelMissing(f"The configuration of the voice {folder.id!r} does not load ({error}); {MEND}.") from error
    return _LoadedVoice(
        speller=speller,
        engine=_engine(folder, config, threads=threads, use_onnx=use_onnx),
        hop_samples=int(config.audio.hop_length),
        sample_rate_hz=folder.sample_rate_hz,
    )


def _engine(folder: VoiceFolder, config: object, *, threads: int, use_onnx: bool) -> VitsEngine:
    try:
        if use_onnx and folder.graph is not None and has_durations(folder.graph):
            return OnnxEngine(folder.graph, config, threads)
    except _GRAPH_ERRORS as error:
        raise ModelMissing(f"The exported graph of the voice {folder.id!r} does not load ({error}); {MEND}.") from error
    if folder.checkpoint is None:
        raise ModelMissing(f"The voice {folder.id!r} has no checkpoint to load; {MEND}.")
    return TorchEngine(folder.checkpoint, config, threads)
