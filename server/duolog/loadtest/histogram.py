"""Latencies in a high-dynamic-range histogram, misses among them. Pure.

Latencies count from a schedule that nobody can delay, so none is omitted and none need be made up afterwards. A missed
turn waited for ever: it stands behind every latency, and a percentile that falls among the misses has no value.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hdrh.histogram import HdrHistogram

UNITS_PER_MS = 1_000
HIGHEST_MS = 600_000
SIGNIFICANT_DIGITS = 3


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Milliseconds; None where the quantile falls among the misses, or where nothing was measured."""

    count: int
    """Misses included."""
    missed: int
    p50: float | None
    p95: float | None
    p99: float | None
    p999: float | None
    worst: float | None
    """Of what was not missed."""


class LatencyHistogram:
    def __init__(self, latencies_ms: Iterable[float] = (), missed: int = 0) -> None:
        self._histogram = HdrHistogram(1, HIGHEST_MS * UNITS_PER_MS, SIGNIFICANT_DIGITS)
        self._worst_ms: float | None = None
        self.missed = missed
        for latency_ms in latencies_ms:
            self.record(latency_ms)

    def record(self, latency_ms: float) -> None:
        bounded_ms = min(max(latency_ms, 0.0), float(HIGHEST_MS))
        self._histogram.record_value(max(1, round(bounded_ms * UNITS_PER_MS)))
        self._worst_ms = max(bounded_ms, self._worst_ms or 0.0)

    @property
    def recorded(self) -> int:
        return int(self._histogram.get_total_count())

    def quantile(self, share: float) -> float | None:
        """The latency that this share of all turns did not exceed; None where it falls among the misses."""
        wanted = share * (self.recorded + self.missed)
        if not self.recorded or wanted > self.recorded + 1e-9:
            return None
        value = float(self._histogram.get_value_at_percentile(min(100.0, 100 * wanted / self.recorded)))
        return round(min(value / UNITS_PER_MS, self._worst_ms or 0.0), 1)

    def quantiles(self) -> Quantiles:
        p50, p95, p99, p999 = (self.quantile(share) for share in (0.5, 0.95, 0.99, 0.999))
        worst = None if self._worst_ms is None else round(self._worst_ms, 1)
        return Quantiles(self.recorded + self.missed, self.missed, p50, p95, p99, p999, worst)

    def curve(self, until: float, steps_per_halving: int = 6) -> list[tuple[float, float]]:
        """(share of turns, latency in ms) from the median to the share `until`, closer together towards 1."""
        shares = [0.5]
        while shares[-1] < until:
            shares.append(min(until, 1 - 0.5 ** (1 + len(shares) / steps_per_halving)))
        values = [(share, self.quantile(share)) for share in shares]
        return [(share, value) for share, value in values if value is not None]

    def encoded(self) -> str:
        """The histogram in HdrHistogram's own format (V2, base64), in microseconds, without the misses."""
        return bytes(self._histogram.encode()).decode("ascii")


def milliseconds(value: float | None, count: int) -> str:
    """`–` where nothing was measured, `miss` where the figure is among the misses."""
    if value is not None:
        return f"{value:,.0f}"
    return "miss" if count else "–"
