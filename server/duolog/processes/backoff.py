"""How long to wait before a crashed child is started again. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Backoff:
    """Doubles with each crash; a child that ran for `max_s` starts from the beginning."""

    first_s: float
    max_s: float
    limit: int
    crashes: int = 0

    def after_crash(self, alive_s: float) -> float | None:
        """Seconds to wait after a run of `alive_s`; None: it has crashed too often."""
        if alive_s >= self.max_s:
            self.crashes = 0
        self.crashes += 1
        if self.crashes > self.limit:
            return None
        return min(self.max_s, self.first_s * 2.0 ** (self.crashes - 1))
