"""What the services tell the metrics of their engines: time, failures, first tokens."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

import anyio
import numpy as np
import pytest
from trio.testing import MockClock

from duolog.adapters.memory_store import MemorySessionStore
from duolog.adapters.scripted_asr import ScriptedRecognizer
from duolog.adapters.scripted_llm import ScriptedLanguageModel
from duolog.adapters.scripted_tts import ScriptedSynthesizer
from duolog.health import Health
from duolog.ports.asr import TranscriptionRequest
from duolog.ports.errors import EngineError, EngineTimeout, EngineUnavailable
from duolog.ports.llm import (
    ChatMessage,
    FinishReason,
    GenerationEnd,
    GenerationRequest,
    Role,
    Sampling,
    TextDelta,
    TokenUsage,
)
from duolog.ports.store import StoredSession
from duolog.ports.tts import SpeechRequest
from duolog.serving.batcher import Batcher, BatcherRequest, RequestClass
from duolog.serving.policies.direct import DirectPolicy
from duolog.serving.recognizer import Recognizer
from duolog.serving.session_writer import SessionWriter
from duolog.serving.synthesizer import Synthesizer
from duolog.telemetry.metrics import REGISTRY

pytestmark = pytest.mark.session


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return "trio", {"clock": MockClock(autojump_threshold=0)}


class Watch:
    """How far a metric has moved since."""

    def __init__(self, name: str, **labels: str) -> None:
        self._name, self._labels = name, labels
        self._before = self._value()

    def _value(self) -> float:
        return REGISTRY.get_sample_value(self._name, self._labels) or 0.0

    @property
    def moved(self) -> float:
        return self._value() - self._before


def errors(engine: str, error: type[EngineError]) -> Watch:
    return Watch("duolog_engine_errors_total", engine=engine, error=error.__name__)


class Model(ScriptedLanguageModel):
    """Takes 2 s to the first token and 1 s more to the end; or fails."""

    def __init__(self, *, fails: bool = False) -> None:
        super().__init__()
        self.fails = fails

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[TextDelta | GenerationEnd, None]:
        await anyio.sleep(2)
        if self.fails:
            raise EngineUnavailable("gone", engine="llm")
        yield TextDelta("Hello")
        await anyio.sleep(1)
        yield GenerationEnd(FinishReason.STOP, TokenUsage(10, 4, 1))


def asking() -> BatcherRequest:
    generation = GenerationRequest("r", (ChatMessage(Role.USER, "Hi"),), Sampling(), session_id="a")
    return BatcherRequest(generation, RequestClass.FINAL, deadline=10.0)


async def drain(batcher: Batcher) -> None:
    async with aclosing(batcher.generate(asking())) as stream:
        async for _ in stream:
            pass


async def test_the_language_models_first_token_and_time_are_told_by_class() -> None:
    first, whole = (
        Watch("inference_first_token_seconds_sum", **{"class": "final"}),
        Watch("duolog_engine_seconds_sum", engine="llm", kind="final"),
    )
    await drain(Batcher(Model(), DirectPolicy()))
    assert first.moved == pytest.approx(2.0)
    assert whole.moved == pytest.approx(3.0)


async def test_the_language_models_failures_are_counted() -> None:
    failed = errors("llm", EngineUnavailable)
    with pytest.raises(EngineUnavailable):
        await drain(Batcher(Model(fails=True), DirectPolicy()))
    assert failed.moved == 1


async def test_the_recognizers_failures_are_counted_once_a_batch() -> None:
    failed, engine = errors("asr", EngineTimeout), ScriptedRecognizer()
    engine.fail_next(EngineTimeout("slow", engine="asr"))
    recognizer = Recognizer(engine)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(recognizer.run)
        with pytest.raises(EngineTimeout):
            await recognizer.transcribe("a", TranscriptionRequest(np.zeros(16_000, np.float32), "en"))
        tasks.cancel_scope.cancel()
    assert failed.moved == 1


async def test_the_voices_time_and_failures_are_told() -> None:
    failed, first = (
        errors("tts", EngineUnavailable),
        Watch("duolog_engine_seconds_count", engine="tts", kind="first_phrase"),
    )
    engine = ScriptedSynthesizer()
    synthesizer = Synthesizer(engine)

    async def hear() -> None:
        request = SpeechRequest("Hello.", voice="scripted", language="en")
        async with aclosing(synthesizer.speak("a", request)) as chunks:
            async for _ in chunks:
                pass

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(synthesizer.run)
        await hear()
        engine.fail_next(EngineUnavailable("gone", engine="tts"))
        with pytest.raises(EngineUnavailable):
            await hear()
        tasks.cancel_scope.cancel()
    assert (failed.moved, first.moved) == (1, 2)


class BrokenStore(MemorySessionStore):
    async def save(self, session: StoredSession) -> None:
        raise EngineUnavailable("gone", engine="store")


async def test_the_stores_time_and_failures_are_told() -> None:
    failed, saved = (
        errors("store", EngineUnavailable),
        Watch("duolog_engine_seconds_count", engine="store", kind="save"),
    )
    for store in (MemorySessionStore(60), BrokenStore(60)):
        writer = SessionWriter(store)
        writer.submit(StoredSession("a", "ava", (), 0.0))
        with anyio.move_on_after(0.1):
            await writer.run()
    assert saved.moved == 1
    assert failed.moved == 2, "one write and one more at shutdown"


def test_a_part_that_was_not_heard_of_is_not_ready() -> None:
    Health({"store": "connecting"})
    assert REGISTRY.get_sample_value("duolog_engine_ready", {"engine": "store"}) == 0
