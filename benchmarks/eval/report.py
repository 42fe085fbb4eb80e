"""What the parts of the evaluation found, as figures and as one table. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TypeGuard

import numpy as np

from benchmarks.eval.recordings import NoiseHeard, PausesHeard, Recognition
from benchmarks.eval.verdict import LostWords, Verdict

AT_MOST: dict[tuple[str, str], float] = {
    ("noise", "phantom_turns"): 0,
    ("pauses", "medium · cut_percent"): 5,
    ("pauses", "medium · delay_median_ms"): 350,
    ("scenarios", "false_interruptions"): 0,
    ("scenarios", "measured_ms · interruption_to_duck"): 250,
    ("scenarios", "measured_ms · interruption_to_stop"): 900,
    ("scenarios", "measured_ms · interruption_to_stop_again"): 900,
    ("scenarios", "measured_ms · objection_to_stop"): 900,
    ("scenarios", "measured_ms · one_word_to_stop"): 900,
}
"""Goals by part and figure; of times the 95th percentile is held against it."""
AT_LEAST: dict[tuple[str, str], float] = {("conversation", "cached_share_from_turn_2"): 0.9}
MUST_SURVIVE = frozenset({"backchannel", "cough", "hum"})
"""Scenarios whose sound over the answer is no interruption."""
PARTS = ("recognition", "noise", "pauses", "scenarios", "conversation")


def recognition_summary(results: Sequence[Recognition]) -> dict[str, object]:
    summary: dict[str, object] = {}
    for language, name in (("en", "word_error_percent_english"), ("zh", "character_error_percent_chinese")):
        chosen = [result for result in results if result.language == language]
        total = sum(result.total for result in chosen)
        summary[name] = round(100 * sum(result.wrong for result in chosen) / total, 2) if total else None
        summary[f"clips_{language}"] = len(chosen)
    return summary


def noise_summary(results: Sequence[NoiseHeard]) -> dict[str, object]:
    """Babble is people speaking: named, and counted apart."""
    noise = [result for result in results if not result.babble]
    return {
        "clips": len(noise),
        "phantom_turns": sum(len(result.transcripts) for result in noise),
        "answers": sum(result.answers for result in noise),
        "phantoms": {result.file: list(result.transcripts) for result in noise if result.transcripts},
        "babble": {result.file: list(result.transcripts) for result in results if result.babble},
    }


def pauses_summary(results: Sequence[PausesHeard]) -> dict[str, object]:
    gaps = sum(result.gaps for result in results)
    delays = [result.delay_ms for result in results if result.delay_ms is not None]
    return {
        "clips": len(results),
        "pauses": gaps,
        "cut_percent": round(100 * sum(result.cuts for result in results) / gaps, 1) if gaps else None,
        "turn_ends": len(delays),
        "delay_median_ms": round(statistics.median(delays)) if delays else None,
        "delay_p90_ms": round(float(np.percentile(delays, 90))) if delays else None,
        "each": [asdict(result) for result in results],
    }


def scenarios_summary(verdicts: Sequence[Verdict], lost: Sequence[LostWords] = ()) -> dict[str, object]:
    names = list(dict.fromkeys(verdict.scenario for verdict in verdicts))
    measured: dict[str, list[float]] = {}
    for verdict in verdicts:
        for name, value in verdict.measured_ms.items():
            measured.setdefault(name, []).append(value)
    return {
        "played": len(verdicts),
        "passed": sum(verdict.passed for verdict in verdicts),
        "false_interruptions": sum(verdict.interrupted for verdict in verdicts if verdict.scenario in MUST_SURVIVE),
        "interruptions_words": sum(one.said for one in lost),
        "interruptions_lost_words": sum(len(one.lost) for one in lost),
        "lost": [word for one in lost for word in one.lost],
        "by_scenario": {
            name: {
                "played": sum(verdict.scenario == name for verdict in verdicts),
                "passed": sum(verdict.scenario == name and verdict.passed for verdict in verdicts),
                "problems": sorted({p for verdict in verdicts if verdict.scenario == name for p in verdict.problems}),
            }
            for name in names
        },
        "measured_ms": {
            name: {
                "count": len(values),
                "p50": round(statistics.median(values)),
                "p95": round(float(np.percentile(values, 95))),
            }
            for name, values in sorted(measured.items())
        },
    }


def markdown(result: Mapping[str, object]) -> str:
    """One table over everything that was measured, each figure beside its goal where it has one."""
    rows = [row for part in PARTS if part in result for row in _rows(part, "", result[part])]
    lines = ["| part | figure | value | goal | reached |", "|---|---|---|---|---|"]
    for part, path, value in rows:
        goal, reached = _goal(part, path, value)
        lines.append(f"| {part} | {path.replace('_', ' ')} | {_shown(value)} | {goal} | {reached} |")
    return "\n".join(lines) + "\n"


LEFT_TO_JSON = frozenset({"each", "problems", "lost"})


def _goal(part: str, path: str, value: object) -> tuple[str, str]:
    """The goal of a figure and whether it is reached, both empty where it has none."""
    if _is_tally(value):
        return "all", _yes(value["passed"] == value["played"])
    figure = value["p95"] if _is_times(value) else value
    most, least = AT_MOST.get((part, path)), AT_LEAST.get((part, path))
    goal = f"≤ {most:g}" if most is not None else f"≥ {least:g}" if least is not None else ""
    if not goal or not isinstance(figure, int | float):
        return goal, goal and "not measured"
    return goal, _yes((most is None or figure <= most) and (least is None or figure >= least))


def _yes(reached: bool) -> str:
    return "yes" if reached else "no"


def _rows(part: str, path: str, value: object) -> list[tuple[str, str, object]]:
    if _is_tally(value) or _is_times(value) or not isinstance(value, dict):
        return [(part, path, value)]
    return [
        row
        for key, inner in value.items()
        if key not in LEFT_TO_JSON
        for row in _rows(part, f"{path} · {key}" if path else str(key), inner)
    ]


def _is_tally(value: object) -> TypeGuard[dict[str, int]]:
    return isinstance(value, dict) and value.keys() >= {"played", "passed", "problems"}


def _is_times(value: object) -> TypeGuard[dict[str, float]]:
    return isinstance(value, dict) and value.keys() == {"count", "p50", "p95"}


def _shown(value: object) -> object:
    if _is_tally(value):
        return f"{value['passed']} of {value['played']}"
    if _is_times(value):
        return f"p50 {value['p50']}, p95 {value['p95']} ({value['count']})"
    return value


def without_details(value: object) -> object:
    if isinstance(value, dict):
        return {key: without_details(inner) for key, inner in value.items() if key != "each"}
    return value
