"""GPU memory gauges, with a stand-in for NVML."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

from duolog.telemetry.gpu import GpuMemoryCollector

pytestmark = pytest.mark.pure


class NVMLError(Exception):
    pass


def nvml(*, driver: bool = True, broken: bool = False) -> ModuleType:
    module = ModuleType("pynvml")

    def init() -> None:
        if not driver:
            raise NVMLError("no driver")

    def memory(_device: int) -> SimpleNamespace:
        if broken:
            raise NVMLError("gone")
        return SimpleNamespace(used=10, total=80)

    for name, value in {
        "NVMLError": NVMLError,
        "nvmlInit": init,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetMemoryInfo": memory,
        "nvmlDeviceGetComputeRunningProcesses": lambda _device: [
            SimpleNamespace(usedGpuMemory=3),
            SimpleNamespace(usedGpuMemory=None),
        ],
    }.items():
        setattr(module, name, value)
    return module


def read() -> dict[str, list[float]]:
    return {family.name: [sample.value for sample in family.samples] for family in GpuMemoryCollector().collect()}


def test_memory_of_every_gpu_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml())
    assert read() == {
        "gpu_memory_used_bytes": [10, 10],
        "gpu_memory_allocated_bytes": [3, 3],
        "gpu_memory_total_bytes": [80, 80],
    }


@pytest.mark.parametrize("module", [None, nvml(driver=False), nvml(broken=True)], ids=["package", "driver", "device"])
def test_without_a_gpu_the_gauges_are_there_and_empty(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType | None
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", module)
    assert read() == {"gpu_memory_used_bytes": [], "gpu_memory_allocated_bytes": [], "gpu_memory_total_bytes": []}
