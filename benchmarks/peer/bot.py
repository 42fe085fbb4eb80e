"""The peer: an agent of Pipecat 1.14.0 with the models, prompt and limits that Duolog is measured with.

Runs in its own virtual environment (benchmarks/peer/requirements.txt). One process serves the configurations of
CONFIGURATIONS at `/ws/<letter>`; recognizer and voice are loaded once and shared by all calls, which is faster at
several calls than Pipecat's own habit of loading them per call. Beside the audio it sends small JSON texts that say
when a turn ended, was transcribed and was first answered, and what was answered; they carry no load.
"""
# mypy: ignore-errors
# Rejected: its packages live in another environment than the type checker.

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import json
import sys
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import uvicorn
from fastapi import FastAPI, WebSocket
from faster_whisper import WhisperModel
from loguru import logger
from pipecat.audio.vad.silero import SileroVADAnalyzer
from pipecat.audio.vad.vad_analyzer import VADParams
from pipecat.frames.frames import (
    Frame,
    LLMFullResponseEndFrame,
    LLMTextFrame,
    TranscriptionFrame,
    UserStoppedSpeakingFrame,
)
from pipecat.observers.base_observer import BaseObserver, FramePushed
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import LLMContextAggregatorPair, LLMUserAggregatorParams
from pipecat.processors.aggregators.llm_text_processor import LLMTextProcessor
from pipecat.serializers.protobuf import ProtobufFrameSerializer
from pipecat.services.openai.llm import OpenAILLMService
from pipecat.services.piper import tts as piper_service
from pipecat.services.piper.tts import PiperTTSService
from pipecat.services.whisper.stt import WhisperSTTService
from pipecat.transcriptions.language import Language
from pipecat.transports.websocket.fastapi import FastAPIWebsocketParams, FastAPIWebsocketTransport
from pipecat.turns.user_stop import SpeechTimeoutUserTurnStopStrategy
from pipecat.turns.user_turn_strategies import UserTurnStrategies
from pipecat.utils.text.base_text_aggregator import Aggregation, TextType
from pipecat.utils.text.simple_text_aggregator import SimpleTextAggregator
from pipecat.utils.time import time_now_iso8601
from pipecat.workers.runner import WorkerRunner
from starlette.websockets import WebSocketDisconnect, WebSocketState

VOICE_RATE_HZ = 22_050
FIRST_CLAUSE_WORDS = 3


@dataclass(frozen=True, slots=True)
class Configuration:
    """What differs between the measured forms of the peer."""

    smart_turn: bool
    """True: the default turn strategy. False: the turn ends with the voice detector's stop."""
    first_clause: bool
    """True: speech begins with the first clause; False: with the first whole sentence, as Pipecat does."""


CONFIGURATIONS = {
    "A": Configuration(smart_turn=True, first_clause=False),
    "C": Configuration(smart_turn=False, first_clause=False),
    "D": Configuration(smart_turn=False, first_clause=True),
}


@dataclass(frozen=True, slots=True)
class Options:
    llm_url: str
    llm_model: str
    whisper: Path
    voice: Path
    prompt: str
    max_tokens: int


@functools.cache
def shared_whisper(folder: str) -> WhisperModel:
    return WhisperModel(folder, device="cpu", compute_type="int8", cpu_threads=2)


piper_service.PiperVoice.load = functools.cache(piper_service.PiperVoice.load)


class TunedWhisper(WhisperSTTService):
    """The service with the knobs that Pipecat does not expose: beam 1, temperature 0, two threads, one model."""

    def _load(self) -> None:
        self._model = shared_whisper(str(self._settings.model))

    async def run_stt(self, audio: bytes) -> AsyncGenerator[Frame, None]:
        samples = np.frombuffer(audio, dtype=np.int16).astype(np.float32) / 32768.0

        def transcribe() -> str:
            segments, _ = self._model.transcribe(samples, language="en", beam_size=1, temperature=0.0)
            return "".join(segment.text for segment in segments if segment.no_speech_prob < 0.4).strip()

        text = await asyncio.to_thread(transcribe)
        if text:
            yield TranscriptionFrame(text, self._user_id, time_now_iso8601(), Language.EN)


class FirstClauseAggregator(SimpleTextAggregator):
    """Gives out the first clause of three words or more as soon as it is there, then whole sentences."""

    def __init__(self) -> None:
        super().__init__()
        self._first = True

    async def aggregate(self, text: str) -> AsyncGenerator[Aggregation, None]:
        async for aggregation in super().aggregate(text):
            self._first = False
            yield aggregation
        clause = self._text.strip()
        if self._first and clause.endswith((",", ";", ":")) and len(clause.split()) >= FIRST_CLAUSE_WORDS:
            self._first = False
            self._text = ""
            yield Aggregation(text=clause, type=TextType.SENTENCE)

    async def flush(self) -> Aggregation | None:
        self._first = True
        return await super().flush()

    async def handle_interruption(self) -> None:
        self._first = True
        await super().handle_interruption()

    async def reset(self) -> None:
        self._first = True
        await super().reset()


class Marks(BaseObserver):
    """Tells the caller what happened when, over the call's own socket."""

    def __init__(self, socket: WebSocket) -> None:
        super().__init__(observe_every_push=False)
        self._socket = socket
        self._answer = ""

    async def on_push_frame(self, data: FramePushed) -> None:
        match data.frame:
            case UserStoppedSpeakingFrame():
                await self._tell("endpoint")
            case TranscriptionFrame():
                await self._tell("transcript", data.frame.text)
            case LLMTextFrame():
                if not self._answer:
                    await self._tell("first_token")
                self._answer += data.frame.text
            case LLMFullResponseEndFrame():
                await self._tell("answer", self._answer)
                self._answer = ""

    async def _tell(self, mark: str, text: str = "") -> None:
        if self._socket.application_state is not WebSocketState.CONNECTED:
            return  # the caller has hung up
        with contextlib.suppress(WebSocketDisconnect):  # the caller hung up meanwhile
            await self._socket.send_text(json.dumps({"mark": mark, "text": text}))


async def run_call(socket: WebSocket, configuration: Configuration, options: Options) -> None:
    transport = FastAPIWebsocketTransport(
        socket,
        FastAPIWebsocketParams(
            audio_in_enabled=True,
            audio_out_enabled=True,
            audio_out_10ms_chunks=2,
            serializer=ProtobufFrameSerializer(),
        ),
    )
    stt = TunedWhisper(
        device="cpu",
        compute_type="int8",
        ttfs_p99_latency=0.0,
        settings=TunedWhisper.Settings(model=str(options.whisper), language=Language.EN),
    )
    llm = OpenAILLMService(
        api_key="none",
        base_url=options.llm_url,
        settings=OpenAILLMService.Settings(
            model=options.llm_model,
            system_instruction=options.prompt,
            max_tokens=options.max_tokens,
            temperature=0.0,
        ),
    )
    tts = PiperTTSService(
        download_dir=options.voice.parent, settings=PiperTTSService.Settings(voice=options.voice.stem)
    )
    aggregators = LLMContextAggregatorPair(LLMContext(), user_params=user_parameters(configuration))
    splitter = [LLMTextProcessor(text_aggregator=FirstClauseAggregator())] if configuration.first_clause else []
    pipeline = Pipeline(
        [transport.input(), stt, aggregators.user(), llm, *splitter, tts, transport.output(), aggregators.assistant()]
    )
    worker = PipelineWorker(
        pipeline,
        params=PipelineParams(audio_in_sample_rate=16_000, audio_out_sample_rate=VOICE_RATE_HZ),
        enable_rtvi=False,
        observers=[Marks(socket)],
    )

    @transport.event_handler("on_client_disconnected")
    async def on_client_disconnected(_transport: object, _client: object) -> None:
        await worker.cancel()

    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    await runner.run()


def user_parameters(configuration: Configuration) -> LLMUserAggregatorParams:
    vad = SileroVADAnalyzer(params=VADParams(stop_secs=0.2, start_secs=0.2, confidence=0.7))
    strategies = None
    if not configuration.smart_turn:
        strategies = UserTurnStrategies(stop=[SpeechTimeoutUserTurnStopStrategy(user_speech_timeout=0.0)])
    return LLMUserAggregatorParams(vad_analyzer=vad, user_turn_strategies=strategies)


def build_app(options: Options) -> FastAPI:
    app = FastAPI()

    @app.get("/ready")
    async def ready() -> dict[str, bool]:
        return {"ready": True}

    @app.websocket("/ws/{letter}")
    async def call(socket: WebSocket, letter: str) -> None:
        await socket.accept()
        await run_call(socket, CONFIGURATIONS[letter], options)

    return app


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--llm-url", required=True)
    parser.add_argument("--llm-model", required=True)
    parser.add_argument("--whisper", type=Path, required=True)
    parser.add_argument("--voice", type=Path, required=True, help="the voice's .onnx file")
    parser.add_argument("--prompt", required=True)
    parser.add_argument("--max-tokens", type=int, required=True)
    arguments = parser.parse_args()
    logger.remove()
    logger.add(sys.stderr, level="INFO")
    options = Options(**{key: value for key, value in vars(arguments).items() if key != "port"})
    shared_whisper(str(options.whisper))
    piper_service.PiperVoice.load(options.voice, use_cuda=False)
    uvicorn.run(build_app(options), host="127.0.0.1", port=arguments.port, log_level="warning")


if __name__ == "__main__":
    main()
