"""Settings: one YAML file, then the environment, read once into one frozen value.

`DUOLOG__SECTION__KEY=value` overrides the file. An unknown key is a start-up error that names the key, its place and
the nearest allowed one. Each layer is handed the section it needs, never this module's reader.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BeforeValidator, Field

from duolog.ports.errors import ConfigurationError
from duolog.strict_yaml import Document, KeyPath, build, read_document

DEFAULT_FILE = Path("configs/duolog.yaml")
ENVIRONMENT_PREFIX = "DUOLOG__"
REPLICA_PORT_STEP = 10
"""Between the ports of own vLLMs."""

Port = Annotated[int, Field(ge=1, le=65_535)]
Seconds = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(gt=0, le=1)]
Count = Annotated[int, Field(ge=1)]


def _split_commas(value: object) -> object:
    """`a, b` from the environment is a list, as `[a, b]` is in the file."""
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


Texts = Annotated[tuple[str, ...], BeforeValidator(_split_commas)]
Cores = Annotated[tuple[Annotated[int, Field(ge=0)], ...], BeforeValidator(_split_commas)]


class Profile(StrEnum):
    """Which embedded models are used."""

    TINY = "tiny"
    """SmolLM2 135M: for tests and benchmarks, where speed and size matter."""
    SMALL = "small"
    """Qwen 2.5 0.5B: coherent small talk; the default."""


class SpeechEngine(StrEnum):
    """`scripted` stands for the deterministic engines of tests and load."""

    MODEL = "model"
    SCRIPTED = "scripted"


class AsrDevice(StrEnum):
    CPU = "cpu"
    CUDA = "cuda"


class LlmEngine(StrEnum):
    OPENAI = "openai"
    """vLLM or any other server of the OpenAI API."""
    TRANSFORMERS = "transformers"
    """Hugging Face transformers in the server's own process: padded batches, one at a time; for comparison."""
    SCRIPTED = "scripted"


class TurnDetectorEngine(StrEnum):
    MODEL = "model"
    """Smart Turn, where its weights are."""
    SCRIPTED = "scripted"
    NONE = "none"
    """Turns end by the text and the silence alone."""


class SentenceEndMode(StrEnum):
    """Whether the chat model is asked, at a pause, if the sentence may be over."""

    AUTO = "auto"
    """Where it answers fast enough, as measured when it has warmed up."""
    ON = "on"
    OFF = "off"


class Compile(StrEnum):
    """Whether vLLM compiles the model on a CPU."""

    AUTO = "auto"
    """Where the machine has a C++ compiler and Python's headers."""
    ON = "on"
    OFF = "off"


class Dtype(StrEnum):
    """How vLLM computes."""

    AUTO = "auto"
    """On a CPU `bfloat16` where the processor has instructions for it, else `float32`; on a GPU vLLM's choice."""
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"
    FLOAT32 = "float32"


class BatchPolicy(StrEnum):
    SLO = "slo"
    """First tokens in time: by deadline, within what the engine can do, adding nothing where it is idle."""
    DIRECT = "direct"
    """Every request passes at once; the engine's priorities decide."""
    TARGET_SIZE = "target_size"
    """Waits for a batch of `target_batch`, 50 ms at most."""
    TOKEN_WINDOW = "token_window"
    """Waits for 2,048 prompt tokens, as long as the deadlines allow."""


class LogFormat(StrEnum):
    AUTO = "auto"
    """Console on a terminal, JSON elsewhere."""
    CONSOLE = "console"
    JSON = "json"


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class ServerSettings:
    host: str = "127.0.0.1"
    port: Port = 8000
    tls_cert: Path | None = None
    """PEM certificate chain; phones give the microphone only to a page served over TLS."""
    tls_key: Path | None = None
    api_keys: Texts = field(default=(), repr=False)
    """Empty: no key is asked for."""
    allowed_origins: Texts = ()
    """Further pages that may open calls, e.g. `https://example.org`; the server's own page always may."""
    max_calls: Count = 32
    """Calls at once; one more is refused with the reason."""
    max_frame_bytes: Annotated[int, Field(ge=65_536)] = 16_777_216
    """Largest WebSocket message; the OpenAI API allows 15 MiB of audio in one."""
    max_call_s: Seconds = 3_600
    """A call is ended after this time."""
    idle_call_s: Seconds = 600
    """A call in which nobody sends anything is ended after this time."""
    send_timeout_s: Seconds = 10
    """A client that has not read for this long is dropped."""
    ping_interval_s: Seconds = 20
    """WebSocket keep-alive."""


@dataclass(frozen=True, slots=True)
class PersonaSettings:
    folder: Path = Path("configs/personas")
    default: str = "ava"
    reload: bool = True
    """Reload personas when their files change."""
    warm_up: bool = True
    """Compute each persona's prompt ahead, while nobody is served."""


@dataclass(frozen=True, slots=True)
class AsrSettings:
    engine: SpeechEngine = SpeechEngine.MODEL
    model: Path | None = None
    """Folder of a CTranslate2 Whisper model; None: the profile's."""
    models: Mapping[str, Path] = field(default_factory=dict)
    """Models of single languages: ISO 639-1 code → folder. The others are heard by `model`."""
    device: AsrDevice = AsrDevice.CPU
    batch: Count | None = None
    """Utterances that are computed together at most; None: 1 on the CPU, 8 on a GPU."""
    threads: Count = 1
    cores: Cores = ()
    """CPU cores its thread is bound to; empty: chosen from the machine (`duolog doctor` prints the map)."""
    language: str | None = None
    """ISO 639-1 code for all calls; None: the persona's, detected where it has several."""
    partial_core_share: Share = 0.3
    """Of one core, for the live captions of all calls together."""


@dataclass(frozen=True, slots=True)
class VadSettings:
    engine: SpeechEngine = SpeechEngine.MODEL
    threshold: Share = 0.5
    """Voice probability from which a window counts as speech."""
    prefix_padding_ms: Annotated[int, Field(ge=0, le=2_000)] = 300
    """Sound kept from before the voice was noticed."""


@dataclass(frozen=True, slots=True)
class TurnDetectorSettings:
    engine: TurnDetectorEngine = TurnDetectorEngine.MODEL
    model: Path | None = None
    """Folder with `smart-turn-v3.2-cpu.onnx`; None: the profile's."""
    sentence_end: SentenceEndMode = SentenceEndMode.AUTO
    sentence_end_affordable_ms: Annotated[int, Field(ge=1, le=1_000)] = 60
    """`auto`: the chat model is asked where it takes no longer."""


@dataclass(frozen=True, slots=True)
class LlmSettings:
    engine: LlmEngine = LlmEngine.OPENAI
    base_url: str | None = None
    """An OpenAI-compatible server, e.g. `http://gpu-box:8000/v1`; None: `duolog up` starts its own vLLM."""
    base_urls: Texts = ()
    """Several servers of the same model, instead of `base_url`: each call stays on one of them."""
    api_key: str | None = field(default=None, repr=False)
    model: str | None = None
    """Name of the model at `base_url`, folder or hub id for the own vLLM, folder for `transformers`; None: the
    profile's."""
    port: Port = 8001
    """Of the own vLLM; further replicas listen at every tenth port after it."""
    replicas: Count = 1
    """How many own vLLMs `duolog up` starts; they share the cores out."""
    served_name: str = "duolog"
    """Name under which the own vLLM serves the model."""
    dtype: Dtype = Dtype.AUTO
    """Number format of the own vLLM or `transformers`: a CPU without bfloat16 instructions prefills 6 to 10 times
    faster in float32."""
    compile: Compile = Compile.AUTO
    """The own vLLM compiles the model on a CPU: a fifth less time a token; takes a minute or two once, then is kept."""
    kv_cache_gib: Count = 1
    """Memory for the key-value cache of the own vLLM, on a CPU; vLLM takes whole GiB only."""
    max_model_len: Annotated[int, Field(ge=256)] = 4_096
    """Context length in tokens, prompt and answer together."""
    max_queued_tokens: Count = 8_192
    """The own vLLM refuses requests beyond this many waiting prompt tokens."""
    threads_bind: str = "auto"
    """Cores the own vLLM computes on (`auto`, or a list such as `0-3`), on a CPU."""
    extra_flags: Texts = ()
    """Further `vllm serve` flags; a flag that is given here replaces the built-in one."""
    connect_timeout_s: Seconds = 2
    first_token_timeout_s: Seconds = 15
    token_timeout_s: Seconds = 5
    """Longest gap between two tokens."""


@dataclass(frozen=True, slots=True)
class TtsSettings:
    engine: SpeechEngine = SpeechEngine.MODEL
    voices: Mapping[str, Path] = field(default_factory=dict)
    """Further voices beside the embedded `joe`: id → folder of a Coqui model (`config.json` and checkpoint)."""
    threads: Count = 1
    cores: Cores = ()
    """CPU cores its thread is bound to; empty: chosen from the machine."""
    onnx: bool = True
    """Run VITS voices in ONNX Runtime: twice as fast as torch on one thread."""


@dataclass(frozen=True, slots=True)
class StoreSettings:
    url: str | None = field(default=None, repr=False)
    """A Redis or Valkey server, e.g. `redis://cache:6379/0`; None: `duolog up` starts its own Valkey."""
    port: Port = 8002
    """Of the own Valkey."""
    session_ttl_s: Seconds = 3_600
    """How long a dropped call can be resumed."""


@dataclass(frozen=True, slots=True)
class BatcherSettings:
    policy: BatchPolicy = BatchPolicy.SLO
    max_queued: Count = 64
    """Requests that may wait; one more is refused."""
    target_batch: Count = 4
    """Of `target_size`."""
    max_batch: Count = 32
    """Of `target_size`: requests in the engine. For an engine without continuous batching: rows of a batch."""
    prefill_budget_tokens: Count = 512
    """Of `slo`: prompt tokens of finals that may be in computation at once; two of the engine's steps."""
    chunk_tokens: Count = 128
    """What the engine computes of one prompt in a step where it has others: vLLM's `--long-prefill-token-threshold`."""
    token_pace_s: Seconds = 0.15
    """Of `slo`: no answer begins where running ones would get their tokens slower."""


@dataclass(frozen=True, slots=True)
class PinSettings:
    budget_share: Share = 0.5
    """Of a replica's KV cache, for sessions that this server keeps warm; servers that share a replica share it."""
    protect_s: Seconds = 60
    """A session that was used within this time keeps its place when the budget is full."""
    touches: bool = True
    """False: only routing and accounting."""
    events_folder: Path = Path(".duolog/run")
    """Sockets of the own vLLMs' KV events: they carry what callers say, so the folder is this user's alone."""
    events: Texts = ()
    """Endpoints of other vLLMs' KV events, one for each of `llm.base_urls`, on a private net only."""
    block_tokens: Count = 32
    """Of the other vLLMs (`--block-size`); the own ones': 32 on a CPU, 16 on a GPU."""


@dataclass(frozen=True, slots=True)
class CacheSettings:
    prompts: bool = True
    """Remember the answers of personas that allow it."""
    prompt_mib: Count = 16
    """In this process."""
    prompt_ttl_s: Seconds = 3_600
    speech: bool = True
    """Remember phrases that were spoken."""
    speech_mib: Count = 32
    """In this process: 45 KB for each second of speech."""
    speech_ttl_s: Seconds = 86_400
    wait_ms: Annotated[float, Field(ge=0, le=100)] = 8
    """Longest wait of a turn for the store."""
    repeat_ttl_s: Seconds = 600
    """How long a client event or HTTP request that is sent again gets what came of the first."""
    repeat_lock_s: Seconds = 10
    """What a crashed server was carrying out may be carried out again after this long."""


@dataclass(frozen=True, slots=True)
class GuardSettings:
    enabled: bool = True
    """False: load is shown and nothing is given up."""
    memory_warn: Share = 0.80
    """Of the machine or its cgroup."""
    memory_refuse: Share = 0.85
    kv_warn: Share = 0.80
    """Of a replica's KV cache, held by running requests."""
    kv_refuse: Share = 0.85
    queue_warn_s: Seconds = 0.5
    """Wait of an answer for the model, of an utterance for the recognizer, of a first phrase for the voice."""
    queue_refuse_s: Seconds = 1.5
    lag_warn_s: Seconds = 0.05
    """How late the event loop is, over about a second."""
    lag_refuse_s: Seconds = 0.2
    gpu_memory: bool = False
    """GPU memory counts like memory: only where nothing takes it in advance, as vLLM does."""
    raise_s: Seconds = 0.8
    """Pressure that lasts so long is answered by one step more."""
    lower_s: Seconds = 1.2
    """Relief that lasts so long takes one step back."""
    short_answer_tokens: Count = 40
    """Under load an answer ends with the sentence that is running after so many tokens."""
    retry_after_s: Seconds = 10
    """What a refused caller is told."""


@dataclass(frozen=True, slots=True)
class ProcessSettings:
    ready_timeout_s: Seconds = 300
    """A child that is not ready by then has failed."""
    stop_grace_s: Seconds = 10
    """Time a child has to end before it is killed."""
    restart_first_s: Seconds = 0.5
    """Wait before the first restart of a crashed child; doubles with each crash."""
    restart_max_s: Seconds = 30
    restart_limit: Count = 8
    """Crashes without `restart_max_s` of calm between them, after which everything is stopped."""


@dataclass(frozen=True, slots=True)
class LoggingSettings:
    level: LogLevel = LogLevel.INFO
    format: LogFormat = LogFormat.AUTO
    folder: Path = Path(".duolog/logs")
    """Where `duolog up` keeps its children's output."""
    pii: bool = False
    """True: fields whose name carries `pii` (transcripts) are written to the log."""


@dataclass(frozen=True, slots=True)
class Settings:
    profile: Profile = Profile.SMALL
    models_dir: Path = Path(".duolog/models")
    """The model store: fetched and converted models."""
    server: ServerSettings = field(default_factory=ServerSettings)
    personas: PersonaSettings = field(default_factory=PersonaSettings)
    asr: AsrSettings = field(default_factory=AsrSettings)
    vad: VadSettings = field(default_factory=VadSettings)
    turn_detector: TurnDetectorSettings = field(default_factory=TurnDetectorSettings)
    llm: LlmSettings = field(default_factory=LlmSettings)
    tts: TtsSettings = field(default_factory=TtsSettings)
    store: StoreSettings = field(default_factory=StoreSettings)
    batcher: BatcherSettings = field(default_factory=BatcherSettings)
    pins: PinSettings = field(default_factory=PinSettings)
    cache: CacheSettings = field(default_factory=CacheSettings)
    guard: GuardSettings = field(default_factory=GuardSettings)
    processes: ProcessSettings = field(default_factory=ProcessSettings)
    logging: LoggingSettings = field(default_factory=LoggingSettings)

    @property
    def starts_vllm(self) -> bool:
        """`duolog up` runs its own vLLM."""
        return self.llm.engine is LlmEngine.OPENAI and not self.llm.base_url and not self.llm.base_urls

    @property
    def embeds_llm(self) -> bool:
        """The server process computes the chat model itself."""
        return self.llm.engine is LlmEngine.TRANSFORMERS

    @property
    def starts_valkey(self) -> bool:
        """`duolog up` runs its own Valkey."""
        return self.store.url is None

    @property
    def llm_ports(self) -> tuple[int, ...]:
        """Of the own vLLMs; empty where there are none."""
        count = self.llm.replicas if self.starts_vllm else 0
        return tuple(self.llm.port + REPLICA_PORT_STEP * number for number in range(count))

    @property
    def llm_urls(self) -> tuple[str, ...]:
        """Base URLs of the LLM servers, with their `/v1`."""
        named = (self.llm.base_url,) if self.llm.base_url else self.llm.base_urls
        ports = self.llm_ports or (self.llm.port,)
        return named or tuple(f"http://127.0.0.1:{port}/v1" for port in ports)

    @property
    def llm_url(self) -> str:
        """Base URL of the first LLM server."""
        return self.llm_urls[0]

    @property
    def llm_model(self) -> str:
        """The model's name in requests to `llm_url`."""
        elsewhere = self.llm.base_url or self.llm.base_urls
        return (self.llm.model or self.llm.served_name) if elsewhere else self.llm.served_name

    @property
    def store_url(self) -> str:
        """URL of the Redis or Valkey server."""
        return self.store.url or f"redis://127.0.0.1:{self.store.port}/0"


def kv_event_endpoints(settings: Settings, port: int) -> tuple[str, str]:
    """Of the own vLLM at `port`: news, and their replay."""
    folder = settings.pins.events_folder
    return f"ipc://{folder}/kv-{port}", f"ipc://{folder}/kv-{port}-replay"


def load_settings(path: Path | None, environment: Mapping[str, str]) -> Settings:
    """Read settings. `path` None: `configs/duolog.yaml` where it exists, else the defaults alone.

    Raises ConfigurationError. Relative paths stay relative to the working directory.
    """
    if path is None and DEFAULT_FILE.is_file():
        path = DEFAULT_FILE
    document = read_document(path) if path else Document("settings", {})
    settings = build(Settings, _with_environment(document, environment))
    _check(settings)
    return settings


def _with_environment(document: Document, environment: Mapping[str, str]) -> Document:
    """The document with every `DUOLOG__…` variable that is not empty laid over it."""
    values, origins = _copy(document.values), dict(document.origins)
    for name in sorted(environment):
        if not name.startswith(ENVIRONMENT_PREFIX) or not environment[name].strip():
            continue
        path = tuple(name.removeprefix(ENVIRONMENT_PREFIX).lower().split("__"))
        _set(values, path, _value(name, environment[name]))
        origins[path] = f"environment variable {name}"
    return replace(document, values=values, origins=origins)


def _copy(values: dict[str, Any]) -> dict[str, Any]:
    return {key: _copy(value) if isinstance(value, dict) else value for key, value in values.items()}


def _set(values: dict[str, Any], path: KeyPath, value: object) -> None:
    *sections, key = path
    for section in sections:
        inner = values.get(str(section))
        if not isinstance(inner, dict):
            inner = values[str(section)] = {}
        values = inner
    values[str(key)] = value


def _value(name: str, text: str) -> object:
    """`[a, b]` and `{a: b}` are YAML; `null` is None; everything else is the text itself."""
    if text.strip() == "null":
        return None
    if not text.lstrip().startswith(("[", "{")):
        return text
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigurationError(f"environment variable {name} is not valid YAML; check its brackets.") from error


def _check(settings: Settings) -> None:
    """What no single field can say."""
    server = settings.server
    if (server.tls_cert is None) != (server.tls_key is None):
        raise ConfigurationError("`server.tls_cert` and `server.tls_key` go together; give both or neither.")
    for name, file in (("server.tls_cert", server.tls_cert), ("server.tls_key", server.tls_key)):
        if file is not None and not file.is_file():
            raise ConfigurationError(f"`{name}` is {file}, and there is no such file; correct the path.")
    if settings.llm.base_url and settings.llm.base_urls:
        raise ConfigurationError(
            "`llm.base_url` and `llm.base_urls` exclude each other; list all servers in the latter."
        )
    if settings.pins.events and len(settings.pins.events) != len(settings.llm_urls):
        raise ConfigurationError("`pins.events` needs one endpoint for each server of `llm.base_urls`, in their order.")
    _check_guard(settings.guard)
    ports = {"server.port": server.port}
    for number, port in enumerate(settings.llm_ports, 1):
        ports["llm.port" if number == 1 else f"llm.port (replica {number})"] = port
    if settings.starts_valkey:
        ports["store.port"] = settings.store.port
    for name, port in ports.items():
        twin = next((other for other, taken in ports.items() if other != name and taken == port), None)
        if twin is not None:
            raise ConfigurationError(f"`{name}` and `{twin}` are both {port}; give each its own port.")


def _check_guard(guard: GuardSettings) -> None:
    for name, warn, refuse in (
        ("memory_{}", guard.memory_warn, guard.memory_refuse),
        ("kv_{}", guard.kv_warn, guard.kv_refuse),
        ("queue_{}_s", guard.queue_warn_s, guard.queue_refuse_s),
        ("lag_{}_s", guard.lag_warn_s, guard.lag_refuse_s),
    ):
        if warn >= refuse:
            first, second = name.format("warn"), name.format("refuse")
            raise ConfigurationError(
                f"`guard.{first}` is {warn:g} and must be below `guard.{second}`, which is {refuse:g}; lower the first."
            )
