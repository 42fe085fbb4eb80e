"""What the machine under the server says of itself: memory and GPUs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class MachineMemory(Protocol):
    """Memory this process and its neighbours share."""

    async def used_share(self) -> float | None:
        """0 to 1 of what there is, caches that can be given back not counted; None where it cannot be found out."""
        ...


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One look at one GPU."""

    gpu: str
    """Its number."""
    used_bytes: int
    """By anybody."""
    allocated_bytes: int
    """By compute programs."""
    total_bytes: int
    utilization: float
    """Share of the last moments in which something was computed, 0 to 1."""

    @property
    def used_share(self) -> float:
        return self.used_bytes / self.total_bytes if self.total_bytes else 0.0


class GpuMonitor(Protocol):
    """Asks the driver how the GPUs are."""

    async def read(self) -> tuple[GpuReading, ...]:
        """Empty where there is no GPU, or none that can be asked."""
        ...

    async def aclose(self) -> None:
        """Idempotent."""
        ...
