"""GPU readings, with a stand-in for NVML."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

from duolog.adapters.nvidia_monitor import NvidiaMonitor
from duolog.ports.machine import GpuReading

pytestmark = pytest.mark.real


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class NVMLError(Exception):
    pass


class Driver:
    """What the stand-in knows, and how often it was asked."""

    def __init__(self, *, there: bool = True) -> None:
        self.there = there
        self.lost = False
        self.started = 0
        self.stopped = 0

    def init(self) -> None:
        if not self.there:
            raise NVMLError("no driver")
        self.started += 1

    def shutdown(self) -> None:
        self.stopped += 1

    def memory(self, _device: int) -> SimpleNamespace:
        if self.lost:
            raise NVMLError("the GPU has fallen off the bus")
        return SimpleNamespace(used=10, total=80)


def nvml(driver: Driver) -> ModuleType:
    module = ModuleType("pynvml")
    programs = [SimpleNamespace(usedGpuMemory=3), SimpleNamespace(usedGpuMemory=None)]
    for name, value in {
        "NVMLError": NVMLError,
        "nvmlInit": driver.init,
        "nvmlShutdown": driver.shutdown,
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetMemoryInfo": driver.memory,
        "nvmlDeviceGetComputeRunningProcesses": lambda _device: programs,
        "nvmlDeviceGetUtilizationRates": lambda device: SimpleNamespace(gpu=50 * device, memory=0),
    }.items():
        setattr(module, name, value)
    return module


async def test_every_gpu_is_read_and_the_library_started_once(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver()
    monkeypatch.setitem(sys.modules, "pynvml", nvml(driver))
    monitor = NvidiaMonitor()
    assert await monitor.read() == (GpuReading("0", 10, 3, 80, 0.0), GpuReading("1", 10, 3, 80, 0.5))
    assert (await monitor.read())[0].used_share == 0.125
    await monitor.aclose()
    await monitor.aclose()
    assert (driver.started, driver.stopped) == (1, 1)


@pytest.mark.parametrize("module", [None, nvml(Driver(there=False))], ids=["package", "driver"])
async def test_without_a_gpu_there_is_nothing_to_read(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType | None
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", module)
    monitor = NvidiaMonitor()
    assert await monitor.read() == ()
    await monitor.aclose()


async def test_a_gpu_that_is_lost_is_left_out_until_it_answers_again(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver()
    monkeypatch.setitem(sys.modules, "pynvml", nvml(driver))
    monitor = NvidiaMonitor()
    driver.lost = True
    assert await monitor.read() == ()
    driver.lost = False
    assert len(await monitor.read()) == 2
    await monitor.aclose()
