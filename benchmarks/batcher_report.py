"""What `make bench-batcher` found, as figures, tables and the drawing of throughput against the tail. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.mixed_load import Outcome, finals
from duolog.loadtest.svg import Frame, dot, nice_ticks, number, path, plot, x_axis, y_axis

TAIL_MS = 500.0
"""Finals' p99 to the first token that a call can bear."""
BASELINE, EMBEDDED = "pipeline direct", "transformers target_size"
DIRECT, WINDOW, SLO = "vllm direct", "vllm token_window", "vllm slo"
COLOURS = ("#8a8f98", "#b4803a", "#c9a13b", "#a2639c", "#c0524d", "#7a8f3d", "#4b7bb5", "#1f9d78")
WIDTH, HEIGHT = 760.0, 420.0
STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#444;stroke:none}.grid{stroke:#e4e4e4}.base{stroke:#999}.unit{fill:#777}"
    ".line{fill:none;stroke-width:2}.limit{stroke:#c0524d;stroke-dasharray:5 4;fill:none}"
)

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Played:
    """One load that was sent through one batcher."""

    system: str
    """Engine and policy."""
    outcomes: Sequence[Outcome]

    @property
    def lasted_s(self) -> float:
        """From the load's begin to the end of the last final."""
        return max((one.arrival.at_s + one.ended_s for one in finals(list(self.outcomes))), default=0.0)


def figures(played: Sequence[Played], calls: int | None = None) -> dict[str, Any]:
    """Of the same load, once or several times. Only answers that were delivered whole count as throughput."""
    asked = [outcome for one in played for outcome in finals(list(one.outcomes))]
    delivered = [outcome for outcome in asked if outcome.finished]
    lasted_s = sum(one.lasted_s for one in played)
    offered_s = sum(_span_s(one.outcomes) for one in played)
    waits = sorted(_first_token_ms(one) for one in asked)
    prefills = [outcome for one in played for outcome in one.outcomes if outcome.arrival.max_tokens == 1]
    return {
        "system": played[0].system,
        **({} if calls is None else {"calls": calls}),
        "finals": len(asked),
        "delivered": len(delivered),
        "offered_per_s": round(len(asked) / offered_s, 3) if offered_s else None,
        "answers_per_s": round(len(delivered) / lasted_s, 3),
        "tokens_per_s": round(sum(one.usage.completion_tokens for one in delivered) / lasted_s, 1),
        "first_token_p50_ms": _quantile(waits, 0.5),
        "first_token_p90_ms": _quantile(waits, 0.9),
        "first_token_p99_ms": _quantile(waits, 0.99),
        "waited_p99_ms": _quantile(sorted(1000 * (one.waited_s or 0.0) for one in asked), 0.99),
        "cached_share": _share(delivered),
        "prefills": len(prefills),
        "prefills_done": sum(one.finished for one in prefills),
    }


def verdicts(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What was hoped for beside what was seen, as far as it was measured."""
    answers = {row["system"]: row["answers_per_s"] for row in found.get("answers", [])}
    rows = []
    if BASELINE in answers:
        for system, wanted in ((EMBEDDED, 2.0), (SLO, 2.85)):
            if system in answers:
                rows.append(_at_least(f"{system}: times the answers of {BASELINE}", answers[system], answers, wanted))
    rows += [verdict for level in levels(found) for verdict in _tail_verdicts(found, level)]
    if (alone := found.get("alone")) is not None:
        added = alone["added_p99_ms"]
        rows.append({"what": "added to a lone call, p99", "seen": f"{added} ms", "wanted": "≤ 1 ms", "ok": added <= 1})
    return rows


def levels(found: Mapping[str, Any]) -> list[int]:
    return sorted({row["calls"] for row in found.get("calls", [])})


def tables(found: Mapping[str, Any]) -> list[tuple[str, list[Row]]]:
    """Title and rows of each part that was measured."""
    titles = {
        "answers": "Cold questions, faster than they can be answered",
        "calls": "Conversations and long histories: finals' first token in ms",
        "kv": "What a warm cache is worth, seen and by R = N / (N − P·S)",
    }
    parts = [(title, found[name]) for name, title in titles.items() if found.get(name)]
    if found.get("alone"):
        parts.append(("A lone call, ms", [found["alone"]]))
    if found.get("prompt_cache"):
        parts.append(("Questions that are asked again", [found["prompt_cache"]]))
    return [*parts, ("Hoped for and seen", verdicts(found))]


def markdown(found: Mapping[str, Any]) -> str:
    machine = found["machine"]
    parts = [f"## {title}\n\n{_markdown_table(rows)}" for title, rows in tables(found) if rows]
    foot = f"{machine['cpu']}, {machine['cores']} cores, {machine['date']}. Figures: batcher.json; curve: batcher.svg."
    return "# The batcher's policies and engines\n\n" + "\n\n".join(parts) + f"\n\n{foot}\n"


def drawing(found: Mapping[str, Any]) -> str:
    """Answers delivered a second against the p99 of finals' first tokens: one line for each engine and policy."""
    rows = [row for row in found.get("calls", []) if row["first_token_p99_ms"] is not None]
    highest = max([TAIL_MS, *(row["first_token_p99_ms"] for row in rows)])
    ticks = nice_ticks(min(highest, 10 * TAIL_MS) * 1.06)
    rates = nice_ticks(max([row["answers_per_s"] for row in rows], default=1.0) * 1.1)
    frame = Frame(WIDTH, HEIGHT, 0.0, rates[-1], ticks[-1], left=60, right=190, top=28)
    marks = [f"<style>{STYLE}</style>", y_axis(frame, ticks, "p99, ms")]
    marks.append(x_axis(frame, [(rate, number(rate)) for rate in rates]))
    marks.append(f'<text class="unit" x="{frame.left:g}" y="{HEIGHT - 2:g}">answers delivered a second</text>')
    limit = frame.y(TAIL_MS)
    marks.append(path([(frame.left, limit), (WIDTH - frame.right, limit)], "limit"))
    systems = list(dict.fromkeys(row["system"] for row in rows))
    for place, system in enumerate(systems):
        marks.append(_curve(frame, [row for row in rows if row["system"] == system], system, place))
    title = "Answers a second against the p99 of the first token"
    return plot(frame, title, marks).replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1) + "\n"


def _curve(frame: Frame, rows: Sequence[Row], system: str, place: int) -> str:
    colour = COLOURS[place % len(COLOURS)]
    points = [(frame.x(row["answers_per_s"]), frame.y(row["first_token_p99_ms"]), row) for row in rows]
    marks = [path([(x, y) for x, y, _ in points], "line")]
    marks += [
        dot(x, y, "mark", f"{system}, {row['calls']} calls: {row['first_token_p99_ms']:.0f} ms", 4)
        for x, y, row in points
    ]
    left, top = frame.width - frame.right + 16, frame.top + 20 * place
    marks.append(f'<rect x="{left:g}" y="{top:g}" width="12" height="4" fill="{colour}"/>')
    marks.append(f'<text x="{left + 18:g}" y="{top + 7:g}">{system}</text>')
    return f'<g fill="{colour}" stroke="{colour}">{"".join(marks)}</g>'


def _tail_ms(row: Row) -> float:
    """Infinite where more than one answer in a hundred never came."""
    return math.inf if row["first_token_p99_ms"] is None else float(row["first_token_p99_ms"])


def _tail_verdicts(found: Mapping[str, Any], level: int) -> list[dict[str, Any]]:
    """Of one level where `direct` is too slow."""
    rows = {row["system"]: row for row in found["calls"] if row["calls"] == level}
    if not {DIRECT, WINDOW, SLO} <= rows.keys():
        return []
    slo, direct, window = (rows[name] for name in (SLO, DIRECT, WINDOW))
    tail, best, other = (_tail_ms(row) for row in (slo, direct, window))
    if best <= TAIL_MS or not math.isfinite(tail):
        return []
    at, best = f"{level} calls, slo:", min(best, other)
    kept = slo["answers_per_s"] / max(direct["answers_per_s"], window["answers_per_s"])
    return [
        {"what": f"{at} p99", "seen": f"{tail:.0f} ms", "wanted": f"< {TAIL_MS:.0f} ms", "ok": tail < TAIL_MS},
        {
            "what": f"{at} p99 beside the better of direct and token_window",
            "seen": f"{tail / best:.2f}",
            "wanted": "≤ 0.5",
            "ok": tail <= 0.5 * best,
        },
        {"what": f"{at} answers beside theirs", "seen": f"{kept:.2f}", "wanted": "≥ 0.95", "ok": kept >= 0.95},
    ]


def _at_least(what: str, seen: float, answers: Mapping[str, float], wanted: float) -> dict[str, Any]:
    times = seen / answers[BASELINE]
    return {"what": what, "seen": f"{times:.2f}", "wanted": f"≥ {wanted}", "ok": times >= wanted}


def _markdown_table(rows: Sequence[Row]) -> str:
    names = list(rows[0])
    lines = [f"| {' | '.join(name.replace('_', ' ') for name in names)} |", "|---" * len(names) + "|"]
    lines += [f"| {' | '.join(_cell(row.get(name)) for name in names)} |" for row in rows]
    return "\n".join(lines)


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "–" if value is None else str(value)


def _first_token_ms(outcome: Outcome) -> float:
    """An answer without a word is there when it ends; one that never came counts as endless."""
    if outcome.first_token_s is not None:
        return 1000 * outcome.first_token_s
    return 1000 * outcome.ended_s if outcome.finished else math.inf


def _span_s(outcomes: Sequence[Outcome]) -> float:
    return max(outcome.arrival.at_s for outcome in outcomes) if outcomes else 0.0


def _share(outcomes: Sequence[Outcome]) -> float:
    prompt = sum(one.usage.prompt_tokens for one in outcomes)
    return round(sum(one.usage.cached_tokens for one in outcomes) / prompt, 3) if prompt else 0.0


def _quantile(ordered: Sequence[float], share: float) -> float | None:
    """The value that this share does not exceed; of fewer than 100 the largest is the p99. None: it never came."""
    value = ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else math.inf
    return None if value == math.inf else round(value, 1)
