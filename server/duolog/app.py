"""The composition root: the one module that builds adapters and joins them to the wire.

Settings → adapters → serving (recognizer, batcher, synthesizer, writer) → Switchboard → Starlette
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import FrameType

import anyio
import structlog
import uvicorn
from anyio.abc import TaskGroup
from starlette.applications import Starlette

from duolog.adapters.replicated_llm import ReplicatedLanguageModel
from duolog.building import (
    Adapters,
    ask_options,
    build_adapters,
    build_batcher,
    build_caches,
    build_repeats,
    guard_options,
    pin_options,
    recognizer_limits,
)
from duolog.health import NEEDED, Health
from duolog.personas import Persona, PersonaLibrary
from duolog.ports.errors import DuologError, EngineError, EngineUnavailable, ModelMissing
from duolog.ports.llm import ChatMessage
from duolog.realtime.drain import Drain
from duolog.realtime.ports import AppPorts, ClientOptions, PartHealth, PersonaSummary, WireLimits
from duolog.realtime.routes import build_app
from duolog.realtime.server import server_config
from duolog.serving.guard import Ladder
from duolog.serving.guard_watch import GuardSources, GuardWatch
from duolog.serving.load_limits import LimitOptions, LoadLimits
from duolog.serving.persona_warmth import PersonaWarmth
from duolog.serving.pins.keeper import PinKeeper
from duolog.serving.pins.observed_engine import ObservedEngine
from duolog.serving.pins.placement import PinnedPlacement
from duolog.serving.recognizer import Recognizer
from duolog.serving.sentence_judge import SentenceJudge
from duolog.serving.session_writer import SessionWriter
from duolog.serving.synthesizer import Synthesizer
from duolog.serving.turn_judge import TurnJudge
from duolog.session.call import Call
from duolog.session.engines import CallOptions, Engines
from duolog.session.prompts import opening
from duolog.session.switchboard import CallRequest, Switchboard
from duolog.settings import Settings
from duolog.telemetry import metrics

log = structlog.get_logger(__name__)

WEB_DIR = Path(__file__).resolve().parents[2] / "web"
RETRY_S = 1.0
"""Between two tries to reach an engine or the store that is not there."""
GOODBYE_S = 3.0
"""Open calls get this long to be told that the server ends."""
PROBE_S = 10.0
"""Between two looks at the LLM server and the store."""


class SystemClock:
    """The wall clock."""

    def unix_time(self) -> float:
        return time.time()


class Application:
    """Everything of one server process that lives as long as it does."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._adapters: Adapters = build_adapters(settings)
        self._library = PersonaLibrary(settings.personas.folder, settings.personas.default)
        self._check_voices()
        self._health = Health(
            {
                "asr": "loading the speech recognizer",
                "tts": "loading the voices",
                "llm": "loading the language model"
                if settings.embeds_llm
                else f"waiting for the language model at {', '.join(settings.llm_urls)}",
                "store": "connecting to the session store",
            }
        )
        self._recognizer = Recognizer(
            self._adapters.asr,
            limits=recognizer_limits(settings),
            partial_core_share=settings.asr.partial_core_share,
        )
        self._caches = build_caches(settings)
        self._repeats = build_repeats(settings)
        self._synthesizer = Synthesizer(self._adapters.tts, cache=self._caches.speech)
        self._pins = PinnedPlacement(self._adapters.replicas, pin_options(settings))
        self._batcher = build_batcher(settings, ObservedEngine(self._adapters.llm, self._pins), self._pins)
        self._sentences = SentenceJudge(self._batcher, ask_options(settings))
        guard = settings.guard
        self._limits = LoadLimits(LimitOptions(guard.short_answer_tokens, guard.retry_after_s))
        self._pin_keeper = PinKeeper(self._pins, self._batcher, self._adapters.pin_sources, self._limits)
        self._warmth = PersonaWarmth(self._batcher, self._pins, self._limits, self._openings)
        self._guard = GuardWatch(
            Ladder(guard_options(settings)),
            self._limits,
            GuardSources(self._adapters.memory, self._adapters.gpus, self._pins.kv_usage, self._queue_ages),
            self._recognizer.stretch_partials,
        )
        self._writer = SessionWriter(self._adapters.store)
        self._switchboard: Switchboard | None = None
        self._clock = SystemClock()
        self.failed = anyio.Event()
        self.failure: DuologError | None = None
        """What waiting does not mend; the server ends with it."""

        server = settings.server
        self.limits = WireLimits(
            max_message_bytes=server.max_frame_bytes,
            max_call_s=server.max_call_s,
            idle_call_s=server.idle_call_s,
            send_timeout_s=server.send_timeout_s,
            ping_interval_s=server.ping_interval_s,
        )
        self.drain = Drain()

    def starlette(self) -> Starlette:
        """The ASGI application around it."""
        server = self._settings.server
        ports = AppPorts(
            open_call=self._open_call,
            personas=self._summaries,
            default_persona=self._settings.personas.default,
            voices=lambda: [voice.id for voice in self._synthesizer.voices()],
            health=self._parts,
            metrics_text=lambda: metrics.exposition()[0],
            web_dir=WEB_DIR,
            clock=self._clock,
            api_keys=server.api_keys,
            allowed_origins=server.allowed_origins,
            limits=self.limits,
            drain=self.drain,
            idempotency=self._repeats.idempotency,
        )
        return build_app(ports, self._lifespan)

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncGenerator[None, None]:
        async with AsyncExitStack() as stack:
            for adapter in (self._adapters.asr, self._adapters.tts, self._adapters.llm, self._adapters.store):
                stack.push_async_callback(adapter.aclose)
            stack.push_async_callback(self._caches.store.aclose)
            stack.push_async_callback(self._repeats.store.aclose)
            stack.push_async_callback(self._adapters.gpus.aclose)
            for source in (self._adapters.pin_sources.monitor, self._adapters.pin_sources.store):
                if source is not None:
                    stack.push_async_callback(source.aclose)
            if self._adapters.turn_detector is not None:
                stack.push_async_callback(self._adapters.turn_detector.aclose)
            try:
                async with anyio.create_task_group() as tasks:
                    self._start(tasks)
                    yield
                    tasks.cancel_scope.cancel()
            except Exception:  # The process edge: a server without one of its services must not live on.
                log.exception("a service of the server failed")
                self._fail(EngineUnavailable("A service of the server failed; its log says why.", engine="server"))

    def _start(self, tasks: TaskGroup) -> None:
        for service in (self._recognizer.run, self._synthesizer.run, self._writer.run, metrics.watch_loop_lag):
            tasks.start_soon(service)
        if self._settings.personas.reload:
            tasks.start_soon(self._library.watch)
        tasks.start_soon(self._warm_up_speech)
        tasks.start_soon(self._watch_llm)
        if isinstance(self._adapters.llm, ReplicatedLanguageModel):
            self._adapters.llm.listen(self._pins.set_alive)
            tasks.start_soon(self._adapters.llm.watch)
        tasks.start_soon(self._pin_keeper.run)
        tasks.start_soon(self._caches.worker.run)
        tasks.start_soon(self._repeats.worker.run)
        tasks.start_soon(self._repeats.idempotency.run)
        tasks.start_soon(self._watch_store)
        tasks.start_soon(self._guard.run)
        if self._settings.personas.warm_up:
            tasks.start_soon(self._warmth.run)
        tasks.start_soon(self._export_queues)

    async def _warm_up_speech(self) -> None:
        """Recognizer, then voices: both compute on the same core."""
        for name, engine in (("asr", self._adapters.asr), ("tts", self._adapters.tts)):
            try:
                await engine.warm_up()
            except ModelMissing as error:
                self._give_up(name, error)
                return
            except DuologError as error:
                log.error("engine failed to load", engine=name, error=str(error))  # noqa: TRY400 - rejected: one sentence, no traceback
                self._health.set(name, ready=False, detail=str(error))
            else:
                self._health.set(name, ready=True, detail="warm")
        await self._warm_up_turn_detector()

    async def _warm_up_turn_detector(self) -> None:
        """Calls do without it: nobody waits for it."""
        if self._adapters.turn_detector is None:
            return
        try:
            await self._adapters.turn_detector.warm_up()
        except DuologError as error:
            log.warning("no end-of-turn model; turns end by the text and the silence", error=str(error))

    def _give_up(self, name: str, error: ModelMissing) -> None:
        self._health.set(name, ready=False, detail=str(error))
        self._fail(error)

    def _fail(self, error: DuologError) -> None:
        self.failure = self.failure or error
        self.failed.set()

    async def _watch_llm(self) -> None:
        """Warm the model up when it appears, and again after it was gone."""
        while True:
            try:
                await self._adapters.llm.warm_up()
            except EngineError as error:
                self._health.set("llm", ready=False, detail=str(error))
                await anyio.sleep(RETRY_S)
                continue
            except ModelMissing as error:
                self._give_up("llm", error)
                return
            if self._switchboard is None:
                self._switchboard = self._new_switchboard()
                await self._sentences.measure()
            self._health.set("llm", ready=True, detail=f"{self._adapters.llm.context_tokens} tokens of context")
            await anyio.sleep(PROBE_S)

    async def _watch_store(self) -> None:
        while True:
            try:
                await self._adapters.store.ping()
            except EngineError as error:
                self._health.set("store", ready=False, detail=f"{error} Calls go on, but cannot be resumed.")
                await anyio.sleep(RETRY_S)
                continue
            self._health.set("store", ready=True, detail="answers")
            await anyio.sleep(PROBE_S)

    async def _export_queues(self) -> None:
        while True:
            snapshot = self._batcher.snapshot()
            for klass, count in snapshot.queued.items():
                metrics.REQUEST_QUEUE_SIZE.labels(klass.name.lower()).set(count)
            for klass, count in snapshot.in_flight.items():
                metrics.REQUESTS_IN_FLIGHT.labels(klass.name.lower()).set(count)
            metrics.ENGINE_QUEUE.labels("asr").set(self._recognizer.waiting)
            metrics.ENGINE_QUEUE.labels("tts").set(self._synthesizer.waiting)
            metrics.SESSIONS_UNSAVED.set(self._writer.waiting)
            await anyio.sleep(1)

    def _queue_ages(self) -> dict[str, float]:
        return {
            **{klass.name.lower(): age_s for klass, age_s in self._batcher.oldest_wait_s().items()},
            "transcript": self._recognizer.oldest_final_s(),
            "phrase": self._synthesizer.oldest_first_phrase_s(),
        }

    def _new_switchboard(self) -> Switchboard:
        detector = self._adapters.turn_detector
        engines = Engines(
            recognizer=self._recognizer,
            batcher=self._batcher,
            synthesizer=self._synthesizer,
            vad=self._adapters.vad,
            writer=self._writer,
            clock=self._clock,
            context_tokens=self._adapters.llm.context_tokens,
            turn_judge=TurnJudge(detector) if detector is not None else None,
            sentence_judge=self._sentences,
            prompt_cache=self._caches.prompts,
            limits=self._limits,
        )
        options = CallOptions(
            prefix_padding_ms=self._settings.vad.prefix_padding_ms,
            vad_threshold=self._settings.vad.threshold,
            language=self._settings.asr.language,
        )
        return Switchboard(
            engines, self._persona, self._adapters.store, options, max_calls=self._settings.server.max_calls
        )

    @asynccontextmanager
    async def _open_call(
        self, persona: str | None, resume: str | None, options: ClientOptions
    ) -> AsyncGenerator[Call, None]:
        self._health.require_ready()
        if self._switchboard is None:
            raise RuntimeError("ready without a switchboard")
        request = CallRequest(
            persona=persona,
            resume=resume,
            greet=options.greeting,
            reports_playout=options.extensions,
            input_rate_hz=options.input_rate_hz,
            output_rate_hz=options.output_rate_hz,
        )
        async with self._switchboard.open_call(request) as call:
            yield call

    def _parts(self) -> dict[str, PartHealth]:
        parts = self._health.parts()
        told = {name: PartHealth(part.ready, part.detail, needed=name in NEEDED) for name, part in parts.items()}
        return {**told, "load": PartHealth(ready=True, detail=self._guard.detail, needed=False)}

    def _openings(self) -> dict[str, tuple[ChatMessage, ...]]:
        return {persona.id: opening(persona.instructions) for persona in self._library.all()}

    def _persona(self, persona_id: str | None) -> Persona:
        return self._library.get(persona_id or self._settings.personas.default)

    def _summaries(self) -> list[PersonaSummary]:
        return [
            PersonaSummary(
                id=persona.id,
                name=persona.name,
                description=persona.description,
                languages=persona.languages,
                voice=persona.voice,
                greeting=persona.greeting,
            )
            for persona in self._library.all()
        ]

    def _check_voices(self) -> None:
        known = {voice.id for voice in self._adapters.tts.voices()}
        for persona in self._library.all():
            if persona.voice not in known:
                log.warning("persona's voice is not installed", persona=persona.id, voice=persona.voice)


def create_app(settings: Settings) -> Starlette:
    """Build everything from the settings. Raises ConfigurationError, ModelMissing."""
    return Application(settings).starlette()


async def serve(settings: Settings) -> None:
    """Run the server until SIGINT or SIGTERM; open calls are told goodbye first.

    Raises ConfigurationError, ModelMissing.
    """
    application = Application(settings)
    server = settings.server
    config = server_config(
        application.starlette(),
        application.limits,
        host=server.host,
        port=server.port,
        tls_cert=server.tls_cert,
        tls_key=server.tls_key,
    )
    uvicorn_server = _Server(config)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_say_goodbye, uvicorn_server, application.drain)
        tasks.start_soon(_end_when_failed, uvicorn_server, application)
        await uvicorn_server.serve()
        tasks.cancel_scope.cancel()
    if application.failure is not None:
        raise application.failure


class _Server(uvicorn.Server):
    """uvicorn, whose first signal begins a goodbye instead of an end."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.asked_to_end = anyio.Event()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.asked_to_end.is_set():
            super().handle_exit(sig, frame)
        self.asked_to_end.set()


async def _end_when_failed(server: _Server, application: Application) -> None:
    await application.failed.wait()
    server.asked_to_end.set()


async def _say_goodbye(server: _Server, drain: Drain) -> None:
    await server.asked_to_end.wait()
    drain.begin("The server is shutting down; call again in a moment.")
    with anyio.move_on_after(GOODBYE_S):
        await drain.wait_idle()
    server.should_exit = True
