"""A load test's report as JSON: the figures, what they were made of, and how to repeat it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from duolog.loadtest.load_figures import LoadFigures, latency_histogram
from duolog.loadtest.load_session import LoadReport, Search
from duolog.loadtest.outcomes import CallRecord, TurnOutcome

FORMAT = 1
"""Of the JSON; a change that breaks readers raises it."""


def report_fields(report: LoadReport, about: Mapping[str, object]) -> dict[str, object]:
    """`about`: url, persona, seed, date, machine and the like."""
    turns = [turn for call in report.result.calls for turn in call.turns]
    counted = [turn for turn in turns if _counts(report, turn)]
    return {
        "format": FORMAT,
        **about,
        "stopped": report.result.stopped,
        "ran_s": round(report.result.ran_s, 1),
        "mean_call_s": round(report.mean_call_s, 1),
        "notes": list(report.notes),
        "figures": figure_fields(report.figures),
        "windows": [
            {**asdict(window), "figures": figure_fields(figures)} for window, figures in report.result.by_window()
        ],
        "search": None if report.search is None else _search_fields(report.search),
        "server": None
        if report.server is None
        else asdict(report.server) | {"cached_share": report.server.cached_share},
        "server_samples": [asdict(sample) for sample in report.result.samples],
        "histogram": {"format": "HdrHistogram V2, base64, µs", "latency": latency_histogram(counted).encoded()},
        "profile": asdict(report.profile),
        "calls": [_call_fields(call) for call in report.result.calls],
        "turns": [_turn_fields(turn) for turn in turns],
    }


def figure_fields(figures: LoadFigures) -> dict[str, object]:
    shares = {
        "turns_per_s": round(figures.turns_per_s, 3),
        "error_rate": round(figures.error_rate, 4),
        "refused_share": round(figures.refused_share, 4),
    }
    return asdict(figures) | shares


def _counts(report: LoadReport, turn: TurnOutcome) -> bool:
    return any(window.holds(turn.end_s) for window in report.windows)


def _search_fields(search: Search) -> dict[str, object]:
    return {
        "goal": str(search.goal),
        "holds_calls": search.holds,
        "bounded": search.bounded,
        "steps": [
            {"calls": step.calls, "held": step.held, "figures": figure_fields(step.figures)}
            for step in search.by_calls()
        ],
    }


def _call_fields(call: CallRecord) -> dict[str, object]:
    fields = {
        "index": call.index,
        "arrived_s": round(call.arrived_s, 3),
        "ended_s": _rounded(call.ended_s, 3),
        "ending": call.ending.value,
        "reason": call.reason,
        "connected_ms": _rounded(call.connected_ms),
        "told_ms": _rounded(call.told_ms),
        "worst_frame_ms": round(call.worst_frame_ms, 1),
    }
    return {name: value for name, value in fields.items() if value not in (None, "")}


def _turn_fields(turn: TurnOutcome) -> dict[str, object]:
    fields = {
        "call": turn.call,
        "number": turn.number,
        "kind": turn.kind.value,
        "end_s": round(turn.end_s, 3),
        "ending": turn.ending.value,
        "miss": None if turn.miss is None else turn.miss.value,
        "latency_ms": _rounded(turn.latency_ms),
        "late_ms": round(turn.late_ms, 1),
        "stalled_ms": round(turn.stalled_ms, 1),
        "barge_in_stop_ms": _rounded(turn.barge_in_stop_ms),
        "marks_ms": {name: round(mark, 1) for name, mark in turn.marks_ms.items()} or None,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _rounded(value: float | None, digits: int = 1) -> float | None:
    return None if value is None else round(value, digits)
