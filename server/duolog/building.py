"""Builds the adapters that the settings name. Part of the composition root: only `app` imports it.

Vendors are imported when they are chosen: a server with scripted engines starts without torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import structlog

from duolog.adapters.kv_events import KvEventsOptions, ZmqKvEvents
from duolog.adapters.machine_memory import MemoryOfMachine
from duolog.adapters.nvidia_monitor import NvidiaMonitor
from duolog.adapters.openai_llm import Dialect, OpenAILanguageModel, OpenAIOptions
from duolog.adapters.redis_cache import RedisByteCache, RedisIdempotencyStore
from duolog.adapters.redis_pins import RedisPinStore
from duolog.adapters.redis_store import RedisOptions, RedisSessionStore
from duolog.adapters.replicated_llm import ReplicatedLanguageModel
from duolog.adapters.vllm_monitor import VllmMonitor
from duolog.cores import CoreMap, has_bfloat16, has_cpu_vllm, machine_cores, share_cores
from duolog.models.manifest import load_manifest
from duolog.models.store import ModelStore
from duolog.ports.asr import SpeechRecognizer
from duolog.ports.cache import ByteCache
from duolog.ports.errors import ModelMissing
from duolog.ports.idempotency import IdempotencyStore
from duolog.ports.llm import LanguageModel
from duolog.ports.machine import GpuMonitor, MachineMemory
from duolog.ports.store import SessionStore
from duolog.ports.tts import SpeechSynthesizer
from duolog.ports.turn_detector import TurnDetector
from duolog.ports.vad import VoiceActivityDetectorFactory
from duolog.serving.batcher import Batcher, BatcherOptions
from duolog.serving.guard import GuardOptions, Reading, Watermarks
from duolog.serving.idempotency import Idempotency, IdempotencyOptions
from duolog.serving.pins.keep_warm import KeepWarmOptions
from duolog.serving.pins.keeper import PinSources
from duolog.serving.pins.placement import PinOptions
from duolog.serving.placement import NoPrefixCache, Placement
from duolog.serving.policies import PolicyOptions
from duolog.serving.policies.factory import PolicyName, make_policy
from duolog.serving.predictor import ServiceTimePredictor
from duolog.serving.prompt_cache import PromptCache
from duolog.serving.recognizer_batch import BatchLimits
from duolog.serving.sentence_judge import AskOptions, SentenceEnd
from duolog.serving.speech_cache import SpeechCache
from duolog.serving.store_worker import StoreWorker
from duolog.serving.tiered_cache import CacheOptions, TieredCache
from duolog.settings import (
    AsrDevice,
    BatchPolicy,
    Dtype,
    LlmEngine,
    Settings,
    SpeechEngine,
    TurnDetectorEngine,
    kv_event_endpoints,
)

log = structlog.get_logger(__name__)

MIB = 1_048_576
ASR_BATCH = {AsrDevice.CPU: 1, AsrDevice.CUDA: 8}
"""On the CPU a batch delays its first more than it speeds up its last (docs/benchmarks.md)."""
ASR_COMPUTE_TYPE = {AsrDevice.CPU: "int8", AsrDevice.CUDA: "auto"}
"""CTranslate2's names; `auto`: the fastest that the GPU has."""
CACHE_TIMEOUT_S = 0.5
"""A cache in the store that takes longer is as good as none."""
CACHE_COMMANDS = 4
"""At once: a look-up does not wait for a large value that is being written."""


@dataclass(frozen=True, slots=True)
class Adapters:
    """One of each port."""

    asr: SpeechRecognizer
    vad: VoiceActivityDetectorFactory
    turn_detector: TurnDetector | None
    llm: LanguageModel
    tts: SpeechSynthesizer
    store: SessionStore
    replicas: tuple[str, ...]
    """Ids of the chat model's replicas."""
    pin_sources: PinSources
    memory: MachineMemory
    gpus: GpuMonitor


def build_adapters(settings: Settings) -> Adapters:
    """Raises ConfigurationError, ModelMissing."""
    cores = share_cores(settings, machine_cores())
    store = ModelStore(settings.models_dir.absolute(), load_manifest())
    return Adapters(
        asr=_recognizer(settings, store, cores),
        vad=_vad(settings),
        turn_detector=_turn_detector(settings, store, cores),
        llm=_language_model(settings, store, cores),
        tts=_synthesizer(settings, store, cores),
        store=_session_store(settings),
        replicas=("transformers",) if settings.embeds_llm else tuple(replica_id(url) for url in settings.llm_urls),
        pin_sources=_pin_sources(settings),
        memory=MemoryOfMachine(),
        gpus=NvidiaMonitor(),
    )


@dataclass(frozen=True, slots=True)
class Caches:
    """What is remembered of answers and speech."""

    prompts: PromptCache | None
    speech: SpeechCache | None
    store: ByteCache
    worker: StoreWorker
    """Its `run` must be running."""


def build_caches(settings: Settings) -> Caches:
    chosen, wait_s = settings.cache, settings.cache.wait_ms / 1000
    store = RedisByteCache(RedisOptions(settings.store_url, timeout_s=CACHE_TIMEOUT_S, max_connections=CACHE_COMMANDS))
    worker = StoreWorker("cache", tasks=CACHE_COMMANDS)
    prompts = CacheOptions(chosen.prompt_mib * MIB, chosen.prompt_ttl_s, wait_s)
    speech = CacheOptions(chosen.speech_mib * MIB, chosen.speech_ttl_s, wait_s)
    return Caches(
        PromptCache(TieredCache("prompt", store, worker, prompts), _model_identity(settings))
        if chosen.prompts
        else None,
        SpeechCache(TieredCache("speech", store, worker, speech), _speech_identity(settings))
        if chosen.speech
        else None,
        store,
        worker,
    )


@dataclass(frozen=True, slots=True)
class Repeats:
    """What keeps requests that come twice from being carried out twice."""

    idempotency: Idempotency
    store: IdempotencyStore
    worker: StoreWorker
    """Its `run`, and that of `idempotency`, must be running."""


def build_repeats(settings: Settings) -> Repeats:
    store = RedisIdempotencyStore(RedisOptions(settings.store_url, timeout_s=CACHE_TIMEOUT_S, max_connections=2))
    worker = StoreWorker("idempotency")
    chosen = settings.cache
    options = IdempotencyOptions(ttl_s=chosen.repeat_ttl_s, lock_s=chosen.repeat_lock_s)
    return Repeats(Idempotency(store, worker, options), store, worker)


def _model_identity(settings: Settings) -> str:
    """Names the weights: server processes that share a store may serve other models under the same name."""
    llm = settings.llm
    if llm.engine is LlmEngine.SCRIPTED:
        return "scripted"
    if not settings.starts_vllm and not settings.embeds_llm:
        return f"{llm.model or llm.served_name} at {' '.join(sorted(settings.llm_urls))}"
    return f"{llm.model or load_manifest().profile(settings.profile).llm} {llm.dtype.value}"


def _speech_identity(settings: Settings) -> str:
    tts = settings.tts
    return f"{tts.engine.value} {'onnx' if tts.onnx else 'torch'} {sorted((k, str(v)) for k, v in tts.voices.items())}"


def build_batcher(settings: Settings, engine: LanguageModel, placement: Placement | None = None) -> Batcher:
    """The batcher in front of `engine`, with the policy that the settings name."""
    chosen = settings.batcher
    options = PolicyOptions(
        one_batch_at_a_time=settings.embeds_llm,
        target_batch=chosen.target_batch,
        max_batch=chosen.max_batch,
        prefill_budget_tokens=chosen.prefill_budget_tokens,
        chunk_tokens=chosen.chunk_tokens,
        token_pace_s=chosen.token_pace_s,
    )
    predictor = ServiceTimePredictor()
    policy = make_policy(PolicyName(chosen.policy), options, predictor)
    if settings.embeds_llm:
        placement = NoPrefixCache()
    chunk_tokens = chosen.chunk_tokens if chosen.policy is BatchPolicy.SLO and not settings.embeds_llm else None
    limits = BatcherOptions(max_queued=chosen.max_queued, prefill_chunk_tokens=chunk_tokens)
    return Batcher(engine, policy, limits, placement, predictor)


def ask_options(settings: Settings) -> AskOptions:
    turns = settings.turn_detector
    return AskOptions(SentenceEnd(turns.sentence_end), turns.sentence_end_affordable_ms / 1000)


def guard_options(settings: Settings) -> GuardOptions:
    guard = settings.guard
    marks = {
        Reading.MEMORY: Watermarks(guard.memory_warn, guard.memory_refuse),
        Reading.KV_CACHE: Watermarks(guard.kv_warn, guard.kv_refuse),
        Reading.QUEUE_AGE: Watermarks(guard.queue_warn_s, guard.queue_refuse_s),
        Reading.LOOP_LAG: Watermarks(guard.lag_warn_s, guard.lag_refuse_s),
    }
    if guard.gpu_memory:
        marks[Reading.GPU_MEMORY] = marks[Reading.MEMORY]
    return GuardOptions(marks if guard.enabled else {}, guard.raise_s, guard.lower_s)


def recognizer_limits(settings: Settings) -> BatchLimits:
    """What the recognizer computes together."""
    return BatchLimits(settings.asr.batch or ASR_BATCH[settings.asr.device])


def _recognizer(settings: Settings, store: ModelStore, cores: CoreMap) -> SpeechRecognizer:
    if settings.asr.engine is SpeechEngine.SCRIPTED:
        from duolog.adapters.scripted_asr import ScriptedRecognizer  # noqa: PLC0415

        return ScriptedRecognizer(remembers=False)
    from duolog.adapters.faster_whisper_asr import FasterWhisperRecognizer  # noqa: PLC0415

    def whisper(folder: Path) -> SpeechRecognizer:
        asr = settings.asr
        return FasterWhisperRecognizer(
            folder,
            threads=asr.threads,
            cores=frozenset(cores.asr),
            device=asr.device,
            compute_type=ASR_COMPUTE_TYPE[asr.device],
        )

    default = whisper(settings.asr.model or store.path(store.manifest.profile(settings.profile).asr))
    if not settings.asr.models:
        return default
    from duolog.adapters.asr_by_language import RecognizerByLanguage  # noqa: PLC0415

    return RecognizerByLanguage(default, {code: whisper(folder) for code, folder in settings.asr.models.items()})


def _vad(settings: Settings) -> VoiceActivityDetectorFactory:
    if settings.vad.engine is SpeechEngine.SCRIPTED:
        from duolog.adapters.scripted_vad import ScriptedVad  # noqa: PLC0415

        return ScriptedVad
    from duolog.adapters.silero_vad import SileroVad  # noqa: PLC0415

    return SileroVad


def _turn_detector(settings: Settings, store: ModelStore, cores: CoreMap) -> TurnDetector | None:
    """None where none is wanted, or the model is not there: calls do without."""
    if settings.turn_detector.engine is TurnDetectorEngine.NONE:
        return None
    if settings.turn_detector.engine is TurnDetectorEngine.SCRIPTED:
        from duolog.adapters.scripted_turn_detector import ScriptedTurnDetector  # noqa: PLC0415

        return ScriptedTurnDetector()
    from duolog.adapters.smart_turn import SmartTurn  # noqa: PLC0415

    if settings.turn_detector.model is not None:
        return SmartTurn(settings.turn_detector.model, cores=frozenset(cores.asr))
    try:
        return SmartTurn(store.path(store.manifest.profile(settings.profile).turn), cores=frozenset(cores.asr))
    except ModelMissing as error:
        log.warning("no end-of-turn model; turns end by the text and the silence", error=str(error))
        return None


def _language_model(settings: Settings, store: ModelStore, cores: CoreMap) -> LanguageModel:
    llm = settings.llm
    if llm.engine is LlmEngine.SCRIPTED:
        from duolog.adapters.scripted_llm import ScriptedLanguageModel, ScriptedOptions  # noqa: PLC0415

        return ScriptedLanguageModel(ScriptedOptions(first_token_s=0, token_s=0, remembers=False))
    if llm.engine is LlmEngine.TRANSFORMERS:
        return _embedded_model(settings, store, frozenset(cores.llm))
    models = {replica_id(url): _server_model(settings, store, url) for url in settings.llm_urls}
    return ReplicatedLanguageModel(models) if len(models) > 1 else next(iter(models.values()))


def _embedded_model(settings: Settings, store: ModelStore, cores: frozenset[int]) -> LanguageModel:
    llm = settings.llm
    folder = Path(llm.model) if llm.model else store.path(store.manifest.profile(settings.profile).llm)
    dtype = llm.dtype
    if dtype is Dtype.AUTO:
        dtype = Dtype.BFLOAT16 if has_bfloat16() else Dtype.FLOAT32
    # Imported when it is chosen: it takes seconds, and a missing model is told at once.
    from duolog.adapters.transformers_llm import TransformersLanguageModel, TransformersOptions  # noqa: PLC0415

    return TransformersLanguageModel(
        TransformersOptions(
            folder,
            dtype.value,
            context_tokens=llm.max_model_len,
            threads=len(cores),
            cores=cores,
            first_token_timeout_s=llm.first_token_timeout_s,
            inter_token_timeout_s=llm.token_timeout_s,
        )
    )


def replica_id(base_url: str) -> str:
    """The same in every server process: calls find their replica again from another one."""
    return urlsplit(base_url).netloc


def pin_options(settings: Settings) -> PinOptions:
    own = settings.starts_vllm
    block_tokens = (32 if has_cpu_vllm() else 16) if own else settings.pins.block_tokens
    pins = settings.pins
    budget = pins.budget_share if pins.touches else 0.0
    return PinOptions(block_tokens, keep_warm=KeepWarmOptions(budget, pins.protect_s))


def _pin_sources(settings: Settings) -> PinSources:
    if settings.llm.engine is not LlmEngine.OPENAI:
        return PinSources({})
    addresses = {replica_id(url): url for url in settings.llm_urls}
    endpoints = [KvEventsOptions(*kv_event_endpoints(settings, port)) for port in settings.llm_ports] or [
        KvEventsOptions(endpoint) for endpoint in settings.pins.events
    ]
    return PinSources(
        events={name: ZmqKvEvents(one) for name, one in zip(addresses, endpoints, strict=False)},
        monitor=VllmMonitor(addresses, settings.llm.api_key),
        store=RedisPinStore(RedisOptions(settings.store_url)),
    )


def _server_model(settings: Settings, store: ModelStore, base_url: str) -> OpenAILanguageModel:
    llm, own = settings.llm, settings.starts_vllm
    return OpenAILanguageModel(
        OpenAIOptions(
            base_url=base_url,
            model=settings.llm_model,
            dialect=Dialect.VLLM if own else None,
            api_key=llm.api_key,
            context_tokens=None if own else llm.max_model_len,
            tokenizer_dir=_tokenizer_dir(settings, store),
            send_priority=own,
            connect_timeout_s=llm.connect_timeout_s,
            first_token_timeout_s=llm.first_token_timeout_s,
            inter_token_timeout_s=llm.token_timeout_s,
        )
    )


def _tokenizer_dir(settings: Settings, store: ModelStore) -> Path | None:
    """None: unknown, and prompts are sent as messages."""
    if settings.llm.model is not None or not settings.starts_vllm:
        folder = Path(settings.llm.model or "")
        return folder if settings.llm.model and folder.is_dir() else None
    return store.path(store.manifest.profile(settings.profile).llm)


def _synthesizer(settings: Settings, store: ModelStore, cores: CoreMap) -> SpeechSynthesizer:
    if settings.tts.engine is SpeechEngine.SCRIPTED:
        from duolog.adapters.scripted_tts import ScriptedSynthesizer  # noqa: PLC0415
        from duolog.ports.tts import Voice  # noqa: PLC0415

        voice = Voice("joe", ("en", "zh"), 24_000, has_word_timings=True)
        return ScriptedSynthesizer((voice,), remembers=False)
    embedded = store.manifest.profile(settings.profile).tts
    voices = {embedded: store.path(embedded), **settings.tts.voices}
    # Imported last: it takes seconds, and a missing model is told at once.
    from duolog.adapters.coqui_tts import CoquiSynthesizer  # noqa: PLC0415
    from duolog.adapters.espeak_voice import EspeakSynthesizer  # noqa: PLC0415
    from duolog.adapters.voice_router import VoiceRouter  # noqa: PLC0415

    bound = frozenset(cores.tts)
    coqui = CoquiSynthesizer(voices, threads=settings.tts.threads, cores=bound, use_onnx=settings.tts.onnx)
    return VoiceRouter((coqui, EspeakSynthesizer(cores=bound)))


def _session_store(settings: Settings) -> SessionStore:
    return RedisSessionStore(RedisOptions(settings.store_url, ttl_s=int(settings.store.session_ttl_s)))
