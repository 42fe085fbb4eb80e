"""What of the bot's speech was heard: one ledger for each generation that is not yet played out.

Clients with extensions report samples; for the others the clock since the first audio left is taken, which is an
upper bound of what was heard, and marked approximate.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

import anyio

from duolog.session.control import PlayoutReport
from duolog.telemetry import metrics
from duolog.turns.playout import PlayoutLedger

REPORT_SLACK_S = 2.0
"""A client that reports is given this long after the audio's own length, then counted as having played it."""
MAX_HOLD_S = 20.0
"""A client that holds its playback (the user may be interrupting) and moves on within it has more time by that much."""
UNDERRUN_S = 0.05
"""Sound that comes so long after the end of all before leaves a gap; less is within what the reports are late."""
MAX_REMEMBERED = 16
"""Ledgers kept after playout, for truncations that come late."""


@dataclass(slots=True)
class Playback:
    """One generation on its way to the loudspeaker."""

    ledger: PlayoutLedger
    reports: bool
    ends_at: float | None = None
    """Loop time at which the client will have played all that was sent, as far as is known; None: nothing was."""
    reported: bool = False
    moved_at: float = 0.0
    """Loop time at which the reported position last grew."""
    cut: bool = False
    """Interrupted: its text was cut, and is cut again when the client says how far it really played."""

    over: anyio.Event = field(default_factory=anyio.Event)
    """Played out, or flushed."""

    @property
    def remaining_s(self) -> float:
        """Sound the client still has to play, by the clock; 0 before any was sent."""
        return 0.0 if self.ends_at is None else max(0.0, self.ends_at - anyio.current_time())

    def note_sent(self, samples: int) -> int:
        """Count samples that leave now; returns the position of the first of them."""
        now = anyio.current_time()
        if self.ends_at is not None and now > self.ends_at + UNDERRUN_S:
            metrics.PLAYOUT_UNDERRUNS.inc()
        self.ends_at = (now if self.ends_at is None else max(now, self.ends_at)) + samples / self.ledger.rate_hz
        return self.ledger.add_sent(samples)

    @property
    def position(self) -> int:
        """The sample that is being played, by the clock since the last report."""
        return self.ledger.sent_samples - round(self.remaining_s * self.ledger.rate_hz)

    def take_report(self, played_samples: int) -> None:
        """The client's word for how far it is, which may stand still for a while."""
        now = anyio.current_time()
        if self.ledger.report(played_samples) or not self.reported:
            self.moved_at = now
        self.reported = True
        if self.ends_at is not None and now < self.moved_at + MAX_HOLD_S:
            self.ends_at = now + (self.ledger.sent_samples - self.ledger.played_samples) / self.ledger.rate_hz

    def update_by_clock(self) -> None:
        """Estimate what was played, for clients that do not say."""
        if self.reported or self.ends_at is None:
            return
        self.ledger.approximate = True
        self.ledger.report(self.ledger.sent_samples - round(self.remaining_s * self.ledger.rate_hz))

    async def played_out(self) -> None:
        """Wait until everything has been heard, or the playback is over otherwise. Call when all was sent."""
        slack_s = REPORT_SLACK_S if self.reports else 0.0
        while (deadline := (self.ends_at or 0.0) + slack_s) > anyio.current_time():
            with anyio.CancelScope(deadline=deadline):
                await self.over.wait()
                return
        self.ledger.report(self.ledger.sent_samples)


class Playbacks:
    """The generations of one call."""

    def __init__(self, *, reports: bool) -> None:
        self._reports = reports
        self._by_generation: OrderedDict[int, Playback] = OrderedDict()
        self.generation = 0
        """The newest generation given out."""

    def begin(self, item_id: str, rate_hz: int) -> Playback:
        """A new generation for an answer that speaks."""
        self.generation += 1
        playback = Playback(PlayoutLedger(self.generation, item_id, rate_hz), self._reports)
        self._by_generation[self.generation] = playback
        while len(self._by_generation) > MAX_REMEMBERED:
            self._by_generation.popitem(last=False)
        return playback

    def report(self, report: PlayoutReport) -> Playback | None:
        """Take the client's word; None where the generation is unknown."""
        playback = self._by_generation.get(report.generation)
        if playback is None:
            return None
        playback.take_report(report.played_samples)
        if playback.ledger.finished or (report.ended and playback.ledger.complete):
            playback.over.set()
        return playback

    def unfinished(self) -> list[Playback]:
        """Those whose sound may still be in the air, oldest first."""
        return [playback for playback in self._by_generation.values() if not playback.over.is_set()]

    def said_around_now(self, before_s: float, after_s: float) -> str:
        """The words around what the client plays now."""
        said = [
            playback.ledger.said_between(
                playback.position - round(before_s * playback.ledger.rate_hz),
                playback.position + round(after_s * playback.ledger.rate_hz),
            )
            for playback in self.unfinished()
        ]
        return " ".join(said)

    def of_item(self, item_id: str) -> Playback | None:
        for playback in reversed(self._by_generation.values()):
            if playback.ledger.item_id == item_id:
                return playback
        return None
