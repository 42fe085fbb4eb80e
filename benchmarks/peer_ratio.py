"""Two systems side by side: Duolog's latency over that of the peer's best configuration. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from duolog.loadtest.results import Run
from duolog.loadtest.timeline import Percentiles, percentiles


@dataclass(frozen=True, slots=True)
class Ratio:
    calls: int
    duolog: str
    """Which of our systems."""
    duolog_p50_ms: float
    duolog_p90_ms: float
    peer: str
    """The peer's best configuration at this number of calls, by p50."""
    peer_p50_ms: float
    peer_p90_ms: float
    p50_ratio: float
    p90_ratio: float


def ratios(runs: Sequence[Run], *, peer_prefix: str) -> list[Ratio]:
    """One for each of our systems and each number of calls at which both were measured."""
    found = []
    for run in runs:
        ours = _heard(run)
        peers = [
            (heard.p50, heard.p90, other.system)
            for other in runs
            if other.calls == run.calls and other.system.startswith(peer_prefix) and (heard := _heard(other))
        ]
        if run.system.startswith(peer_prefix) or ours is None or not peers:
            continue
        p50, p90, best = min(peers)
        found.append(
            Ratio(
                run.calls, run.system, ours.p50, ours.p90, best, p50, p90, _share(ours.p50, p50), _share(ours.p90, p90)
            )
        )
    return found


def ratio_table(found: Sequence[Ratio]) -> str:
    head = "| calls | Duolog p50 / p90 ms | peer's best p50 / p90 ms | p50 ratio | p90 ratio |\n|---|---|---|---|---|\n"
    rows = (
        f"| {ratio.calls} | {ratio.duolog}: {ratio.duolog_p50_ms:,.0f} / {ratio.duolog_p90_ms:,.0f} "
        f"| {ratio.peer}: {ratio.peer_p50_ms:,.0f} / {ratio.peer_p90_ms:,.0f} "
        f"| {ratio.p50_ratio:.2f} | {ratio.p90_ratio:.2f} |\n"
        for ratio in found
    )
    return head + "".join(rows)


def ratio_fields(found: Sequence[Ratio]) -> list[dict[str, object]]:
    return [asdict(ratio) for ratio in found]


def _heard(run: Run) -> Percentiles | None:
    return percentiles(timeline.heard_ms for timeline in run.timelines)


def _share(ours: float, theirs: float) -> float:
    return round(ours / theirs, 3)
