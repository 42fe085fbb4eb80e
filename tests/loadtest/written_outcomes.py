"""Outcomes of calls and turns, written by hand."""

from __future__ import annotations

from collections.abc import Sequence

from duolog.loadtest.call_plan import TurnKind
from duolog.loadtest.load_figures import LoadFigures, Window, load_figures
from duolog.loadtest.outcomes import CallEnding, CallRecord, Miss, TurnEnding, TurnOutcome

ALL = Window("soak", 0.0, 100.0)


def answered(number: int, latency_ms: float, *, end_s: float = 10.0, kind: TurnKind = TurnKind.TALK) -> TurnOutcome:
    marks = {"endpoint": latency_ms / 2, "heard": latency_ms}
    ending = TurnEnding.ANSWERED
    return TurnOutcome(0, number, kind, end_s, end_s + 5, ending, latency_ms=latency_ms, marks_ms=marks)


def missed(number: int, miss: Miss = Miss.NO_ANSWER, *, end_s: float = 10.0) -> TurnOutcome:
    return TurnOutcome(0, number, TurnKind.TALK, end_s, end_s + 5, TurnEnding.MISSED, miss=miss)


def quiet(number: int, ending: TurnEnding) -> TurnOutcome:
    return TurnOutcome(0, number, TurnKind.NOISE, 10.0, 10.0, ending)


def call(index: int, *turns: TurnOutcome, arrived_s: float = 5.0) -> CallRecord:
    record = CallRecord(index, arrived_s, CallEnding.COMPLETED, connected_ms=20.0, ended_s=60.0)
    record.turns += turns
    return record


def refused(index: int, code: str, told_ms: float = 12.0) -> CallRecord:
    return CallRecord(index, 6.0, CallEnding.REFUSED, code, told_ms=told_ms, ended_s=6.1)


def figures_of(calls: Sequence[CallRecord]) -> LoadFigures:
    return load_figures(calls, [ALL])
