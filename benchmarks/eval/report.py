"""What the parts of the evaluation found, as figures and as one table. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict

import numpy as np

from benchmarks.eval.recordings import NoiseHeard, PausesHeard, Recognition
from benchmarks.eval.verdict import Verdict

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


def scenarios_summary(verdicts: Sequence[Verdict]) -> dict[str, object]:
    names = list(dict.fromkeys(verdict.scenario for verdict in verdicts))
    measured: dict[str, list[float]] = {}
    for verdict in verdicts:
        for name, value in verdict.measured_ms.items():
            measured.setdefault(name, []).append(value)
    return {
        "played": len(verdicts),
        "passed": sum(verdict.passed for verdict in verdicts),
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


def markdown(result: dict[str, object]) -> str:
    """One table over everything that was measured."""
    rows = [row for part in PARTS if part in result for row in _rows(part, "", result[part])]
    lines = [
        "| part | figure | value |",
        "|---|---|---|",
        *(f"| {part} | {name} | {value} |" for part, name, value in rows),
    ]
    return "\n".join(lines) + "\n"


LEFT_TO_JSON = frozenset({"each", "problems"})


def _rows(part: str, path: str, value: object) -> list[tuple[str, str, object]]:
    if isinstance(value, dict) and value.keys() >= {"played", "passed", "problems"}:
        return [(part, path, f"{value['passed']} of {value['played']}")]
    if isinstance(value, dict) and value.keys() == {"count", "p50", "p95"}:
        return [(part, path.replace("_", " "), f"p50 {value['p50']}, p95 {value['p95']} ({value['count']})")]
    if isinstance(value, dict):
        return [
            row
            for key, inner in value.items()
            if key not in LEFT_TO_JSON
            for row in _rows(part, f"{path} · {key}" if path else str(key), inner)
        ]
    return [(part, path.replace("_", " "), value)]


def without_details(value: object) -> object:
    if isinstance(value, dict):
        return {key: without_details(inner) for key, inner in value.items() if key != "each"}
    return value
