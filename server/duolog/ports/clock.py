"""The wall clock, as a port so that tests own it. Monotonic time inside the loop is `anyio.current_time()`."""

from __future__ import annotations

from typing import Protocol


class WallClock(Protocol):
    def unix_time(self) -> float:
        """Seconds since 1970, UTC."""
        ...
