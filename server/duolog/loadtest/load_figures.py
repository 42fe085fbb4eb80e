"""From what became of turns and calls to the figures of a stretch of the test. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from duolog.loadtest.call_plan import TurnKind
from duolog.loadtest.histogram import LatencyHistogram, Quantiles
from duolog.loadtest.outcomes import CallEnding, CallRecord, TurnEnding, TurnOutcome

STAGES = (
    "endpoint",
    "transcript",
    "admitted",
    "first_token",
    "first_phrase",
    "first_audio",
    "first_audio_sent",
    "heard",
)


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of the test, in seconds after the run began."""

    name: str
    starts_s: float
    ends_s: float
    counts: bool = True

    def holds(self, at_s: float) -> bool:
        return self.starts_s <= at_s < self.ends_s


@dataclass(frozen=True, slots=True)
class BargeIns:
    during_an_answer: int
    stopped: int
    stop_ms: Quantiles


@dataclass(frozen=True, slots=True)
class LoadFigures:
    seconds: float
    turns: int
    """That wanted an answer and were not cut off: answered and missed."""
    answered: int
    missed: Mapping[str, int]
    """By reason."""
    cut_off: int
    quiet: int
    phantoms: int
    calls: int
    """That arrived in it."""
    refused: Mapping[str, int]
    """By code."""
    failed: Mapping[str, int]
    """By sentence."""
    latency_ms: Quantiles
    told_ms: Quantiles
    """How long refused callers waited to be told."""
    connect_ms: Quantiles
    barge_ins: BargeIns
    stages_ms: Mapping[str, Quantiles]
    latency_by_kind_ms: Mapping[str, Quantiles]
    stalled_turns: int
    """Whose answer stood still for more than 50 ms."""
    caller_late_ms: Quantiles
    """How late the callers themselves were: above some 20 ms the tool's machine is too small for this load."""

    @property
    def turns_per_s(self) -> float:
        """Turns answered a second: the effective rate."""
        return self.answered / self.seconds if self.seconds else 0.0

    @property
    def error_rate(self) -> float:
        """Of the turns that wanted an answer, those that got none in time."""
        return sum(self.missed.values()) / self.turns if self.turns else 0.0

    @property
    def refused_share(self) -> float:
        """Of the calls that arrived."""
        return sum(self.refused.values()) / self.calls if self.calls else 0.0


STALL_MS = 50.0


def latency_histogram(turns: Iterable[TurnOutcome]) -> LatencyHistogram:
    """Of the turns that wanted an answer; misses are in it."""
    histogram = LatencyHistogram()
    for turn in turns:
        if turn.latency_ms is not None:
            histogram.record(turn.latency_ms)
        elif turn.ending is TurnEnding.MISSED:
            histogram.missed += 1
    return histogram


def load_figures(calls: Sequence[CallRecord], windows: Sequence[Window]) -> LoadFigures:
    """Of the turns that were to end, and the calls that arrived, within these stretches."""
    turns = [turn for call in calls for turn in call.turns if _within(turn.end_s, windows)]
    arrived = [call for call in calls if _within(call.arrived_s, windows)]
    endings = Counter(turn.ending for turn in turns)
    missed = Counter(turn.miss.value for turn in turns if turn.miss is not None)
    answered = [turn for turn in turns if turn.ending is TurnEnding.ANSWERED]
    kinds = [kind for kind in TurnKind if kind.expects_answer and any(turn.kind is kind for turn in turns)]
    return LoadFigures(
        seconds=sum(window.ends_s - window.starts_s for window in windows),
        turns=len(answered) + missed.total(),
        answered=len(answered),
        missed=dict(sorted(missed.items())),
        cut_off=endings[TurnEnding.CUT_OFF],
        quiet=endings[TurnEnding.QUIET],
        phantoms=endings[TurnEnding.PHANTOM],
        calls=len(arrived),
        refused=_reasons(arrived, CallEnding.REFUSED),
        failed=_reasons(arrived, CallEnding.FAILED),
        latency_ms=latency_histogram(turns).quantiles(),
        told_ms=_quantiles(call.told_ms for call in arrived),
        connect_ms=_quantiles(call.connected_ms for call in arrived),
        barge_ins=_barge_ins(turns),
        stages_ms={stage: found for stage in STAGES if (found := _stage(answered, stage)).count},
        latency_by_kind_ms={
            kind.value: latency_histogram(turn for turn in turns if turn.kind is kind).quantiles() for kind in kinds
        },
        stalled_turns=sum(1 for turn in answered if turn.stalled_ms > STALL_MS),
        caller_late_ms=_quantiles(turn.late_ms for turn in turns if turn.miss is None),
    )


def _within(at_s: float, windows: Sequence[Window]) -> bool:
    return any(window.holds(at_s) for window in windows)


def _reasons(calls: Iterable[CallRecord], ending: CallEnding) -> dict[str, int]:
    return dict(sorted(Counter(call.reason for call in calls if call.ending is ending).items()))


def _barge_ins(turns: Iterable[TurnOutcome]) -> BargeIns:
    during = [turn for turn in turns if turn.kind is TurnKind.BARGE_IN and turn.interrupted]
    stops = [turn.barge_in_stop_ms for turn in during if turn.barge_in_stop_ms is not None]
    return BargeIns(len(during), len(stops), _quantiles(stops))


def _stage(turns: Iterable[TurnOutcome], stage: str) -> Quantiles:
    return _quantiles(turn.marks_ms.get(stage) for turn in turns)


def _quantiles(values_ms: Iterable[float | None]) -> Quantiles:
    return LatencyHistogram(value for value in values_ms if value is not None).quantiles()
