"""NVIDIA GPUs by NVML, where the package `nvidia-ml-py` and a driver are; else there are none.

The library is started once: that takes longer than all that is asked of it.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any

import anyio.to_thread
import structlog

from duolog.ports.machine import GpuReading

log = structlog.get_logger(__name__)


class NvidiaMonitor:
    """Implements `GpuMonitor`. NVML is asked in a thread: a sleeping GPU takes its time to answer."""

    def __init__(self) -> None:
        self._nvml: ModuleType | None = None
        self._looked = False
        self._failed = False

    async def read(self) -> tuple[GpuReading, ...]:
        return await anyio.to_thread.run_sync(self._read)

    async def aclose(self) -> None:
        nvml, self._nvml = self._nvml, None
        if nvml is not None:
            await anyio.to_thread.run_sync(nvml.nvmlShutdown)

    def _read(self) -> tuple[GpuReading, ...]:
        if not self._looked:
            self._looked, self._nvml = True, _started()
        if self._nvml is None:
            return ()
        try:
            readings = tuple(_look(self._nvml, index) for index in range(self._nvml.nvmlDeviceGetCount()))
        except self._nvml.NVMLError as error:
            if not self._failed:
                log.warning("a GPU does not say how it is", error=str(error))
            self._failed = True
            return ()
        self._failed = False
        return readings


def _started() -> ModuleType | None:
    try:
        nvml = import_module("pynvml")
    except ImportError:
        return None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:  # no driver
        return None
    return nvml


def _look(nvml: Any, index: int) -> GpuReading:
    device = nvml.nvmlDeviceGetHandleByIndex(index)
    memory = nvml.nvmlDeviceGetMemoryInfo(device)
    programs = nvml.nvmlDeviceGetComputeRunningProcesses(device)
    return GpuReading(
        gpu=str(index),
        used_bytes=memory.used,
        allocated_bytes=sum(program.usedGpuMemory or 0 for program in programs),
        total_bytes=memory.total,
        utilization=nvml.nvmlDeviceGetUtilizationRates(device).gpu / 100,
    )
