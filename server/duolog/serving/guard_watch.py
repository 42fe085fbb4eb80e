"""Watches the load of this process and its machine, and sets what may begin.

every 0.1 s  loop lag, queue ages ─┐
every 1 s    memory, GPUs ─────────┼─ every 0.4 s ─▶ Ladder ─▶ LoadLimits, captions, metrics, a log line for each step
             KV cache (as known) ──┘
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import anyio
import structlog

from duolog.ports.machine import GpuMonitor, GpuReading, MachineMemory
from duolog.serving.guard import Ladder, Reading, Transition
from duolog.serving.load_limits import LoadLimits
from duolog.telemetry import metrics

log = structlog.get_logger(__name__)

SAMPLE_EVERY_S = 0.1
SAMPLES_A_LOOK = 4
"""Of the lag their mean counts, for one slow step is no load; of the queues the longest wait."""
MACHINE_EVERY_S = 1.0
AWAITED = ("final", "transcript", "phrase")
"""Queues in which a caller waits for an answer; in the others work waits that gives way by design."""


@dataclass(frozen=True, slots=True)
class GuardSources:
    """Where the readings come from."""

    memory: MachineMemory
    gpus: GpuMonitor
    kv_usage: Callable[[], float | None]
    """The fullest KV cache, 0 to 1; None where nobody says."""
    queue_ages: Callable[[], Mapping[str, float]]
    """Of each queue, how long the oldest waits, in seconds."""


class GuardWatch:
    """`run` must be running."""

    def __init__(
        self,
        ladder: Ladder,
        limits: LoadLimits,
        sources: GuardSources,
        stretch_captions: Callable[[float], None],
    ) -> None:
        self._ladder = ladder
        self._limits = limits
        self._sources = sources
        self._stretch_captions = stretch_captions
        self._lags: list[float] = []
        self._waits: list[float] = []
        self._machine: dict[Reading, float] = {}
        self._cause = ""

    @property
    def detail(self) -> str:
        """One sentence on what is given up, and why."""
        level = self._ladder.level
        return f"{level.name.lower()}: {self._cause}" if level else "normal"

    async def run(self) -> None:
        """Until cancelled."""
        metrics.GUARD_LEVEL.set(self._ladder.level)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._read_machine)
            while True:
                self._lags, self._waits = [], []
                for _ in range(SAMPLES_A_LOOK):
                    await self._sample()
                self._look()

    async def _sample(self) -> None:
        due = anyio.current_time() + SAMPLE_EVERY_S
        await anyio.sleep_until(due)
        self._lags.append(max(0.0, anyio.current_time() - due))
        ages = self._sources.queue_ages()
        for name, age_s in ages.items():
            metrics.GUARD_QUEUE_AGE.labels(name).set(age_s)
        self._waits.append(max(ages.get(name, 0.0) for name in AWAITED))

    async def _read_machine(self) -> None:
        while True:
            used = await self._sources.memory.used_share()
            if used is not None:
                self._machine[Reading.MEMORY] = used
            gpus = await self._sources.gpus.read()
            _show(gpus)
            if gpus:
                self._machine[Reading.GPU_MEMORY] = max(gpu.used_share for gpu in gpus)
            await anyio.sleep(MACHINE_EVERY_S)

    def _readings(self) -> dict[Reading, float]:
        readings = {
            **self._machine,
            Reading.QUEUE_AGE: max(self._waits),
            Reading.LOOP_LAG: sum(self._lags) / len(self._lags),
        }
        kv_usage = self._sources.kv_usage()
        if kv_usage is not None:
            readings[Reading.KV_CACHE] = kv_usage
        return readings

    def _look(self) -> None:
        readings = self._readings()
        for name, value in readings.items():
            metrics.GUARD_READING.labels(name.value).set(value)
        transition = self._ladder.observe(readings, anyio.current_time())
        if transition is not None:
            self._step(transition)

    def _step(self, transition: Transition) -> None:
        reading = transition.reading.value if transition.reading is not None else "none"
        if transition.after > transition.before:
            self._cause = f"{reading} was {transition.value:.2f}"
        self._limits.level = transition.after
        self._stretch_captions(self._limits.caption_stretch)
        metrics.GUARD_LEVEL.set(transition.after)
        metrics.GUARD_TRANSITIONS.labels(transition.after.name.lower(), reading).inc()
        tell = log.warning if transition.after > transition.before else log.info
        tell(
            "load guard",
            level=transition.after.name.lower(),
            before=transition.before.name.lower(),
            reading=reading,
            value=round(transition.value, 3),
        )


def _show(gpus: Sequence[GpuReading]) -> None:
    """A GPU that does not answer any more has no values."""
    gauges = (metrics.GPU_MEMORY_USED, metrics.GPU_MEMORY_ALLOCATED, metrics.GPU_MEMORY_TOTAL, metrics.GPU_UTILIZATION)
    for gauge in gauges:
        gauge.clear()
    for one in gpus:
        values = (one.used_bytes, one.allocated_bytes, one.total_bytes, one.utilization)
        for gauge, value in zip(gauges, values, strict=True):
            gauge.labels(one.gpu).set(value)
