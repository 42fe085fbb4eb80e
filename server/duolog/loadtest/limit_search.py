"""The most calls at once that a goal holds for: doubling until it breaks, then halving the gap. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from duolog.loadtest.histogram import Quantiles
from duolog.loadtest.load_figures import LoadFigures
from duolog.loadtest.profile import SearchPlan
from duolog.ports.errors import ConfigurationError

QUANTILES = {"p50": "p50", "p95": "p95", "p99": "p99", "p99.9": "p999"}
RESOLUTION = 0.1
"""The search ends when the gap between what holds and what breaks is this share of the level, or one call."""


@dataclass(frozen=True, slots=True)
class Goal:
    """Such as `p99=1500`: that quantile of the latency at or below so many milliseconds."""

    quantile: str
    limit_ms: float

    def __str__(self) -> str:
        return f"{self.quantile} ≤ {self.limit_ms:,.0f} ms"

    def seen(self, latency_ms: Quantiles) -> float | None:
        """What the goal looks at; None where it falls among the misses."""
        value = getattr(latency_ms, QUANTILES[self.quantile])
        return None if value is None else float(value)

    def holds(self, figures: LoadFigures, refused_share: float) -> bool:
        """Misses are in the quantile; a server that holds it by refusing callers does not hold it."""
        seen_ms = self.seen(figures.latency_ms)
        return seen_ms is not None and seen_ms <= self.limit_ms and figures.refused_share <= refused_share


def parse_goal(text: str) -> Goal:
    """Raises ConfigurationError."""
    found = re.fullmatch(r"\s*(p50|p95|p99\.9|p99)\s*=\s*(\d+(?:\.\d+)?)\s*(?:ms)?\s*", text)
    if found is None or float(found[2]) <= 0:
        known = ", ".join(QUANTILES)
        raise ConfigurationError(f"--search {text!r} is no goal; write one of {known} and milliseconds: p99=1500.")
    return Goal(found[1], float(found[2]))


class LimitSearch:
    """Fed with what held at each level; says which level comes next."""

    def __init__(self, plan: SearchPlan) -> None:
        self._plan = plan
        self._next: int | None = plan.first_calls
        self._steps = 0
        self.holds: int | None = None
        """The most calls for which the goal held, None while it held for none."""
        self.breaks: int | None = None
        """The fewest for which it did not."""

    @property
    def next_level(self) -> int | None:
        """None: the search is over."""
        return self._next if self._steps < self._plan.most_steps else None

    @property
    def bounded(self) -> bool:
        """The search ended because the goal broke, not because of `most_calls` or `most_steps`."""
        return self.breaks is not None and self._next is None

    def record(self, level: int, *, held: bool) -> None:
        self._steps += 1
        if held:
            self.holds = max(level, self.holds or 0)
        else:
            self.breaks = level if self.breaks is None else min(level, self.breaks)
        self._next = self._after()

    def _after(self) -> int | None:
        below, above = self.holds or 0, self.breaks
        if above is None:
            doubled = min(below * 2, self._plan.most_calls)
            return doubled if doubled > below else None
        if above - below <= max(1, int(below * RESOLUTION)):
            return None
        return (below + above) // 2
