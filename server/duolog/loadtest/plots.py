"""The pictures of a load test's report. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from duolog.loadtest.histogram import LatencyHistogram
from duolog.loadtest.limit_search import QUANTILES
from duolog.loadtest.load_figures import Window
from duolog.loadtest.load_run import LoadResult
from duolog.loadtest.load_session import Search
from duolog.loadtest.outcomes import CallEnding, TurnEnding, TurnOutcome
from duolog.loadtest.server_figures import ServerSample
from duolog.loadtest.svg import (
    Frame,
    Point,
    Tick,
    cross,
    dot,
    nice_ticks,
    number,
    path,
    plot,
    seconds,
    stairs,
    x_axis,
    y_axis,
)

WIDE, NARROW = 960.0, 400.0
HALF = 470.0
"""Width of a plot of which two stand side by side."""
MOST_DOTS = 4_000
HEADROOM = 1.06


def waits_plot(result: LoadResult, width: float) -> str:
    """Every turn's latency at the time it was due; misses in a band of their own above."""
    turns = [turn for call in result.calls for turn in call.turns][-MOST_DOTS:]
    answered = [turn for turn in turns if turn.latency_ms is not None]
    ticks = nice_ticks(max((turn.latency_ms or 0.0 for turn in answered), default=1_000.0) * HEADROOM)
    frame = Frame(width, 300, 0.0, _ends_s(result), ticks[-1], top=44)
    marks = [_shade(frame, result.windows), y_axis(frame, ticks, "ms"), x_axis(frame, _time_ticks(frame))]
    marks += [dot(frame.x(turn.end_s), frame.y(turn.latency_ms or 0.0), "wait", _hint(turn)) for turn in answered]
    marks += [cross(frame.x(turn.end_s), 34, _hint(turn)) for turn in turns if turn.ending is TurnEnding.MISSED]
    return plot(frame, "Waiting time of every turn, over the time of the test", marks)


def calls_plot(result: LoadResult, width: float) -> str:
    """Calls on the line, with the refused ones as ticks along the floor."""
    changes = _calls_on_the_line(result)
    ticks = nice_ticks(max((value for _, value in changes), default=1.0) * HEADROOM, most=3)
    frame = Frame(width, 130, 0.0, _ends_s(result), ticks[-1])
    line = stairs(frame, changes)
    area = [(frame.x(0.0), frame.floor), *line, (line[-1][0] if line else frame.left, frame.floor)]
    refused = [call for call in result.calls if call.ending in (CallEnding.REFUSED, CallEnding.FAILED)]
    marks = [_shade(frame, result.windows, labels=False), y_axis(frame, ticks, "calls")]
    marks += [path(area, "calls-area"), path(line, "calls-line"), x_axis(frame, _time_ticks(frame))]
    marks += [cross(frame.x(call.arrived_s), frame.floor - 6, f"{call.ending}: {call.reason}") for call in refused]
    return plot(frame, "Calls on the line over the time of the test", marks)


def tail_plot(histogram: LatencyHistogram) -> str:
    """Latency by the share of turns that waited no longer, the tail drawn out."""
    total = histogram.recorded + histogram.missed
    nines = [(share, text) for share, text in _SHARES if share == 0.5 or (1 - share) * total >= 0.5]
    curve = histogram.curve(nines[-1][0])
    ticks = nice_ticks(max((value for _, value in curve), default=1_000.0) * HEADROOM)
    frame = Frame(HALF, 260, 0.0, _depth(nines[-1][0]) + 0.6, ticks[-1])
    points = [(frame.x(_depth(share)), frame.y(value)) for share, value in curve]
    marks = [y_axis(frame, ticks, "ms"), x_axis(frame, [(_depth(share), text) for share, text in nines])]
    marks += [path(points, "tail-line")]
    for share, text in nines:
        value = histogram.quantile(share)
        if value is not None:
            marks.append(dot(frame.x(_depth(share)), frame.y(value), "mark", f"{text}: {number(value)} ms", 4))
    return plot(frame, "Waiting time by share of turns", marks)


def search_plot(search: Search) -> str:
    """What the goal looks at, at each level that was tried, and the line it must stay below."""
    seen = [(step, search.goal.seen(step.figures.latency_ms)) for step in search.by_calls()]
    highest = max([search.goal.limit_ms, *(value for _, value in seen if value is not None)])
    ticks = nice_ticks(min(highest, 3 * search.goal.limit_ms) * HEADROOM)
    calls = nice_ticks(max(step.calls for step in search.steps) * HEADROOM) if search.steps else [0.0, 1.0]
    frame = Frame(HALF, 260, 0.0, calls[-1], ticks[-1])
    limit_y = frame.y(search.goal.limit_ms)
    line = path([(frame.x(step.calls), frame.y(value)) for step, value in seen if value is not None], "tail-line thin")
    marks = [y_axis(frame, ticks, "ms"), x_axis(frame, [(value, number(value)) for value in calls], "calls at once")]
    marks += [path([(frame.left, limit_y), (frame.width - frame.right, limit_y)], "limit"), line]
    for step, value in seen:
        hint = f"{step.calls} calls: {search.goal.quantile} {'among the misses' if value is None else number(value)}"
        if value is None:
            marks.append(cross(frame.x(step.calls), frame.top, hint, 5))
        else:
            marks.append(dot(frame.x(step.calls), frame.y(value), "mark" if step.held else "broke", hint, 5))
    return plot(frame, f"{QUANTILES[search.goal.quantile]} by calls at once, limit {search.goal.limit_ms} ms", marks)


def server_plot(samples: Sequence[ServerSample], value: Callable[[ServerSample], float | None], label: str) -> str:
    """One of the server's figures over time; empty where it does not say."""
    points = [(sample.at_s, found) for sample in samples if (found := value(sample)) is not None]
    if len(points) < 2:
        return ""
    ticks = nice_ticks(max(found for _, found in points) * HEADROOM, most=3)
    frame = Frame(HALF, 130, points[0][0], points[-1][0], ticks[-1])
    line = [(frame.x(at), frame.y(found)) for at, found in points]
    marks = [y_axis(frame, ticks, ""), path(line, "server-line"), x_axis(frame, _time_ticks(frame, most=5), label)]
    return plot(frame, f"{label} over the time of the test", marks)


_SHARES: tuple[tuple[float, str], ...] = (
    (0.5, "p50"),
    (0.9, "p90"),
    (0.99, "p99"),
    (0.999, "p99.9"),
    (0.9999, "p99.99"),
)


def _depth(share: float) -> float:
    """How far into the tail: 1 for each further nine."""
    return math.log10(1 / max(1e-9, 1 - share))


def _ends_s(result: LoadResult) -> float:
    return max([1.0, *(window.ends_s for window in result.windows if window.starts_s < result.ran_s)])


def _time_ticks(frame: Frame, most: int = 8) -> list[Tick]:
    wanted = most if frame.width > NARROW else 4
    steps = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 14_400)
    step = next((step for step in steps if (frame.x_to - frame.x_from) / step <= wanted), 28_800)
    first = math.ceil(frame.x_from / step)
    return [(at * step, seconds(at * step)) for at in range(first, int(frame.x_to // step) + 1)]


def _shade(frame: Frame, windows: Sequence[Window], *, labels: bool = True) -> str:
    """Stretches that do not count are shaded; each is named where there is room."""
    parts = []
    for window in windows:
        left, right = frame.x(window.starts_s), frame.x(min(window.ends_s, frame.x_to))
        if right <= left:
            continue
        css = "stretch" if window.counts else "stretch apart"
        parts.append(f'<rect class="{css}" x="{left}" y="20" width="{right - left:g}" height="{frame.floor - 20:g}"/>')
        if labels and right - left > 7 * len(window.name):
            parts.append(f'<text class="stretch-name" x="{left + 4:g}" y="14">{_safe(window.name)}</text>')
    return "".join(parts)


def _safe(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")


def _calls_on_the_line(result: LoadResult) -> list[Point]:
    """(time, calls) at each change."""
    held = [call for call in result.calls if call.ending in (CallEnding.COMPLETED, CallEnding.ON_THE_LINE)]
    events = [(call.arrived_s, 1) for call in held]
    events += [(call.ended_s if call.ended_s is not None else result.ran_s, -1) for call in held]
    changes, on_the_line = [(0.0, 0.0)], 0
    for at_s, change in sorted(events):
        on_the_line += change
        changes.append((min(at_s, _ends_s(result)), float(on_the_line)))
    return changes


def _hint(turn: TurnOutcome) -> str:
    what = f"{turn.latency_ms:,.0f} ms" if turn.latency_ms is not None else str(turn.miss or turn.ending)
    return f"{seconds(turn.end_s)} call {turn.call}, {turn.kind.replace('_', ' ')}: {what}"
