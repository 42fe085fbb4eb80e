"""A loudspeaker without a sound card: plays what arrives in real time, from the moment the first samples are there.
Pure; it is told the time, in seconds."""

from __future__ import annotations


class VirtualPlayer:
    """Plays one generation of speech. Without a jitter buffer: what arrives late is heard late, and counted."""

    def __init__(self, rate_hz: int) -> None:
        self.rate_hz = rate_hz
        self.received_samples = 0
        self.stalled_ms = 0.0
        """How long the speaker stood still in the middle because the next samples were not there yet."""
        self._ends_s = 0.0
        """When everything received will have been played."""
        self._stopped_at: int | None = None

    def receive(self, samples: int, now_s: float) -> float:
        """Queue samples behind what is there; returns when the first of them is heard. Nothing once stopped."""
        if self._stopped_at is not None:
            return now_s
        starts_s = max(now_s, self._ends_s)
        if self.received_samples:
            self.stalled_ms += (starts_s - self._ends_s) * 1000
        self.received_samples += samples
        self._ends_s = starts_s + samples / self.rate_hz
        return starts_s

    def played_samples(self, now_s: float) -> int:
        """Samples rendered so far."""
        if self._stopped_at is not None:
            return self._stopped_at
        ahead = max(0.0, self._ends_s - now_s) * self.rate_hz
        return self.received_samples - min(self.received_samples, round(ahead))

    def is_idle(self, now_s: float) -> bool:
        """Everything that came has been played, or the player was stopped."""
        return self._stopped_at is not None or now_s >= self._ends_s

    def stop(self, now_s: float) -> int:
        """Obey a flush: drop what is queued; returns the samples that were played. Idempotent."""
        self._stopped_at = self.played_samples(now_s)
        return self._stopped_at

    @property
    def stopped(self) -> bool:
        return self._stopped_at is not None
