"""GPU memory as three gauges, read when somebody scrapes. Without an NVIDIA GPU they have no values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector


class GpuMemoryCollector(Collector):
    """Reads NVML (package `nvidia-ml-py`) where it is installed."""

    def collect(self) -> Iterable[GaugeMetricFamily]:
        used = GaugeMetricFamily("gpu_memory_used_bytes", "Memory in use on the GPU, by anybody.", labels=["gpu"])
        allocated = GaugeMetricFamily(
            "gpu_memory_allocated_bytes", "Memory held by compute programs on the GPU.", labels=["gpu"]
        )
        total = GaugeMetricFamily("gpu_memory_total_bytes", "Memory of the GPU.", labels=["gpu"])
        with _nvml() as nvml:
            for index in range(nvml.nvmlDeviceGetCount() if nvml else 0):
                device = nvml.nvmlDeviceGetHandleByIndex(index)
                memory = nvml.nvmlDeviceGetMemoryInfo(device)
                programs = nvml.nvmlDeviceGetComputeRunningProcesses(device)
                used.add_metric([str(index)], memory.used)
                allocated.add_metric([str(index)], sum(program.usedGpuMemory or 0 for program in programs))
                total.add_metric([str(index)], memory.total)
        return used, allocated, total


@contextmanager
def _nvml() -> Iterator[Any]:
    """The NVML module, started; None where there is no driver or no package."""
    try:
        pynvml = import_module("pynvml")
    except ImportError:
        yield None
        return
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        yield None
        return
    try:
        with suppress(pynvml.NVMLError):
            yield pynvml
    finally:
        pynvml.nvmlShutdown()
