"""How much the server gives up under load: readings in, one level out. Pure: it is told the time.

    NORMAL ─▶ NO_EXTRAS ─▶ FEWER_CAPTIONS ─▶ SHORT_ANSWERS ─▶ REFUSE_LOW ─▶ REFUSE_NORMAL
           ◀─            ◀─                ◀─               ◀─            ◀─

One step at a time, up after `raise_s` of pressure, down after `lower_s` of its absence. Each level does what the levels
below it do, too. Between the two watermarks of a reading the first three levels lie evenly, at the second the fourth,
and as far beyond it again the fifth. The worst reading decides. To go down it must fall below the step by a margin.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum

STEPS_BETWEEN = 3
"""Levels from the first watermark to the second, the second not counted."""
MARGIN = 0.4
"""Of the distance between the watermarks, or of the first where that is less: between 0.80 and 0.85 it is 0.02."""


CLOCK_SLACK_S = 0.001
"""Sums of times are not exact."""


class GuardLevel(IntEnum):
    """Running turns are never touched, whatever the level."""

    NORMAL = 0
    NO_EXTRAS = 1
    """Turns begin when they have ended, and no idle session is kept warm."""
    FEWER_CAPTIONS = 2
    SHORT_ANSWERS = 3
    REFUSE_LOW = 4
    """No new calls of personas of low priority."""
    REFUSE_NORMAL = 5
    """New calls only of personas of high priority."""


class Reading(StrEnum):
    """What the guard looks at."""

    MEMORY = "memory"
    KV_CACHE = "kv_cache"
    GPU_MEMORY = "gpu_memory"
    QUEUE_AGE = "queue_age"
    LOOP_LAG = "loop_lag"


@dataclass(frozen=True, slots=True)
class Watermarks:
    """Of one reading, in its own unit."""

    warn: float
    """From here on the server gives something up."""
    refuse: float
    """From here on new calls are refused; greater than `warn`."""

    def level(self, value: float) -> GuardLevel:
        """What a value calls for. Never lower for a higher value."""
        if value < self.warn:
            return GuardLevel.NORMAL
        band = self.refuse - self.warn
        if value >= self.refuse + band:
            return GuardLevel.REFUSE_NORMAL
        if value >= self.refuse:
            return GuardLevel.REFUSE_LOW
        return GuardLevel(min(STEPS_BETWEEN, 1 + int(STEPS_BETWEEN * (value - self.warn) / band)))

    def holds(self, value: float) -> GuardLevel:
        """The highest level that a value keeps where it is reached."""
        return self.level(value + MARGIN * min(self.warn, self.refuse - self.warn))


@dataclass(frozen=True, slots=True)
class GuardOptions:
    marks: Mapping[Reading, Watermarks] = field(
        default_factory=lambda: {
            Reading.MEMORY: Watermarks(0.80, 0.85),
            Reading.KV_CACHE: Watermarks(0.80, 0.85),
            Reading.QUEUE_AGE: Watermarks(0.5, 1.5),
            Reading.LOOP_LAG: Watermarks(0.05, 0.2),
        }
    )
    """A reading that is not named here is shown and decides nothing."""
    raise_s: float = 0.8
    """Pressure that lasts so long is answered by one level more."""
    lower_s: float = 1.2
    """Relief that lasts so long takes one level back: all five within 10 s, the age of the readings included."""


@dataclass(frozen=True, slots=True)
class Transition:
    before: GuardLevel
    after: GuardLevel
    reading: Reading | None
    """The worst one; None where all are low."""
    value: float


class Ladder:
    """The level of one server process."""

    def __init__(self, options: GuardOptions | None = None) -> None:
        self._options = options or GuardOptions()
        self._above_since: float | None = None
        self._below_since: float | None = None
        self.level = GuardLevel.NORMAL

    def observe(self, readings: Mapping[Reading, float], now: float) -> Transition | None:
        """Look at the readings of this moment; `now` never goes back. A transition where the level changed."""
        marks = self._options.marks
        wanted = {name: marks[name].level(value) for name, value in readings.items() if name in marks}
        held = max((marks[name].holds(value) for name, value in readings.items() if name in marks), default=0)
        worst = max(wanted, key=lambda name: wanted[name], default=None)
        want = wanted[worst] if worst is not None else GuardLevel.NORMAL
        self._above_since = _since(self._above_since, now, holds=want > self.level)
        self._below_since = _since(self._below_since, now, holds=held < self.level)
        if self._above_since is not None and now - self._above_since > self._options.raise_s - CLOCK_SLACK_S:
            return self._step(1, worst, readings, now)
        if self._below_since is not None and now - self._below_since > self._options.lower_s - CLOCK_SLACK_S:
            return self._step(-1, worst if want else None, readings, now)
        return None

    def _step(self, by: int, worst: Reading | None, readings: Mapping[Reading, float], now: float) -> Transition:
        before, self.level = self.level, GuardLevel(self.level + by)
        self._above_since = now if by > 0 else None
        self._below_since = now if by < 0 else None
        return Transition(before, self.level, worst, readings[worst] if worst is not None else 0.0)


def _since(before: float | None, now: float, *, holds: bool) -> float | None:
    """Since when something holds without a break; None: it does not."""
    if not holds:
        return None
    return now if before is None else before
