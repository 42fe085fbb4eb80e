"""How often captions may be decoded, so that those of all calls together leave the core to the answers. Pure.

One partial needs `cost` seconds of the engine. With `n` calls that speak, each may have one every `n × cost / share`
seconds of new audio, and never more than the share of the last ten seconds is spent, whatever the estimate says.
"""

from __future__ import annotations

from collections import deque

MIN_NEW_AUDIO_S = 0.5
WINDOW_S = 10.0
ACTIVE_S = 1.5
"""A call that has not asked for so long is not speaking."""
SMOOTHING = 0.3
"""Weight of the newest cost in its running mean."""


class PartialCadence:
    """Counts engine time spent on partials. Every method is given the loop time in seconds."""

    def __init__(self, core_share: float) -> None:
        """`core_share`: of one core, above 0, at most 1."""
        self._share = core_share
        self.stretch = 1.0
        """Partials are this many times as far apart as the share would let them; 1 or more."""
        self._cost_s = 0.0
        self._spent: deque[tuple[float, float]] = deque()
        self._asked_at: dict[str, float] = {}

    def interval_s(self, now: float) -> float:
        """New audio a call must have before its next partial."""
        self._forget(now)
        return self.stretch * max(MIN_NEW_AUDIO_S, max(1, len(self._asked_at)) * self._cost_s / self._share)

    def may_start(self, session_id: str, new_audio_s: float, now: float) -> bool:
        """Asked while the call's user speaks: is it this call's turn for a partial?"""
        self._asked_at[session_id] = now
        return new_audio_s >= self.interval_s(now) and self.spent_s(now) + self._cost_s <= self._share * WINDOW_S

    def record(self, engine_s: float, now: float) -> None:
        """A partial has taken `engine_s` of the engine, up to now."""
        self._spent.append((now, engine_s))
        self._cost_s += (engine_s - self._cost_s) * (SMOOTHING if self._cost_s else 1.0)

    def spent_s(self, now: float) -> float:
        """Engine time of partials in the last ten seconds."""
        self._forget(now)
        return sum(engine_s for _, engine_s in self._spent)

    def _forget(self, now: float) -> None:
        while self._spent and self._spent[0][0] <= now - WINDOW_S:
            self._spent.popleft()
        for session_id in [known for known, at in self._asked_at.items() if at <= now - ACTIVE_S]:
            del self._asked_at[session_id]
