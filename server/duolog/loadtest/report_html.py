"""A load test's report as one page that needs nothing else: no script, no file beside it, no network. Pure."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

from duolog.loadtest.histogram import Quantiles, milliseconds
from duolog.loadtest.load_figures import STAGES, LoadFigures, latency_histogram
from duolog.loadtest.load_session import LoadReport, Search
from duolog.loadtest.plots import NARROW, WIDE, calls_plot, search_plot, server_plot, tail_plot, waits_plot
from duolog.loadtest.profile import Mode
from duolog.loadtest.server_figures import ServerFigures
from duolog.loadtest.waterfall import LABELS

ENOUGH_TURNS = 100
"""From here on there is one turn in a hundred to speak of."""


@dataclass(frozen=True, slots=True)
class Tile:
    """One figure of the page's head."""

    name: str
    value: str
    unit: str = ""
    alarming: bool = False


@dataclass(frozen=True, slots=True)
class StageBar:
    """A stage's median and 95th percentile, on a scale of 0 to 100."""

    name: str
    p50: str
    p95: str
    left: float
    width: float


def report_html(report: LoadReport, about: Mapping[str, object]) -> str:
    """The whole page."""
    return _template().render(
        about=about,
        report=report,
        profile=report.profile,
        figures=report.figures,
        headline=headline(report),
        lead=_lead(report),
        tiles=tiles(report.figures),
        plots=_plots(report),
        rows=_rows(report),
        stages=_stage_bars(report.figures),
        kinds=[(kind.replace("_", " "), found) for kind, found in report.figures.latency_by_kind_ms.items()],
        server=[] if report.server is None else _server_rows(report.server),
        ms=milliseconds,
    )


def headline(report: LoadReport) -> str:
    """The one thing the test has found."""
    search: Search | None = report.search
    if search is not None:
        if search.holds is None:
            return f"{search.goal} holds at no level"
        more = "" if search.bounded else " or more"
        return f"{search.holds}{more} calls at once with {search.goal}"
    latency = report.figures.latency_ms
    if latency.p99 is not None and latency.count < ENOUGH_TURNS:
        return f"The slowest of {latency.count} turns waited {latency.worst:,.0f} ms"
    if latency.p99 is not None:
        return f"99 of 100 turns waited no longer than {latency.p99:,.0f} ms"
    return "More than one turn in a hundred was missed" if report.figures.answered else "No turn was answered"


def tiles(figures: LoadFigures) -> list[Tile]:
    latency = figures.latency_ms
    named = (("p50", latency.p50), ("p95", latency.p95), ("p99", latency.p99), ("p99.9", latency.p999))
    found = [
        Tile(name, milliseconds(value, latency.count), "ms" if value is not None else "", value is None)
        for name, value in named
    ]
    return [
        *found,
        Tile("turns answered", f"{figures.turns_per_s:.2f}", "a second"),
        Tile("errors", f"{figures.error_rate:.1%}", f"of {figures.turns:,} turns", figures.error_rate > 0.01),
        Tile("calls", f"{figures.calls:,}", f"{sum(figures.refused.values())} refused" if figures.refused else ""),
    ]


def _lead(report: LoadReport) -> str:
    what = "the first words of the written answer" if report.profile.mode is Mode.TEXT else "the first audible sample"
    begin = "the message was due" if report.profile.mode is Mode.TEXT else "the caller was due to fall silent"
    return (
        f"Waiting time runs from the moment {begin} to {what}. Callers keep a schedule fixed beforehand, whatever the "
        "server does, and a missed turn counts as an endless wait."
    )


def _plots(report: LoadReport) -> dict[str, Markup]:
    turns = [turn for call in report.result.calls for turn in call.turns]
    inside = [turn for turn in turns if any(window.holds(turn.end_s) for window in report.windows)]
    drawn = {
        "waits": waits_plot(report.result, WIDE),
        "waits_narrow": waits_plot(report.result, NARROW),
        "calls": calls_plot(report.result, WIDE),
        "calls_narrow": calls_plot(report.result, NARROW),
        "tail": tail_plot(latency_histogram(inside)),
        "search": search_plot(report.search) if report.search is not None and report.search.steps else "",
        "memory": server_plot(report.result.samples, lambda sample: sample.memory_mib, "memory, MiB"),
        "tasks": server_plot(report.result.samples, lambda sample: sample.tasks, "tasks"),
        "queue": server_plot(report.result.samples, lambda sample: sample.queue, "requests waiting for the model"),
        "guard": server_plot(report.result.samples, lambda sample: sample.guard_level, "guard level"),
    }
    return {name: Markup(drawing) for name, drawing in drawn.items()}


def _rows(report: LoadReport) -> list[tuple[str, bool, LoadFigures]]:
    """Name, whether it counts or held, figures."""
    if report.search is not None:
        return [(f"{step.calls} calls", step.held, step.figures) for step in report.search.by_calls()]
    return [(window.name, window.counts, figures) for window, figures in report.result.by_window()]


def _stage_bars(figures: LoadFigures) -> list[StageBar]:
    found: list[tuple[str, Quantiles]] = [
        (stage, figures.stages_ms[stage]) for stage in STAGES if stage in figures.stages_ms
    ]
    highest = max((quantiles.p95 or 0.0 for _, quantiles in found), default=0.0) or 1.0
    bars = []
    for stage, quantiles in found:
        left = 100 * (quantiles.p50 or 0.0) / highest
        width = 100 * (quantiles.p95 or 0.0) / highest - left
        p50, p95 = (milliseconds(value, quantiles.count) for value in (quantiles.p50, quantiles.p95))
        bars.append(StageBar(LABELS[stage], p50, p95, round(left, 1), round(max(0.4, width), 1)))
    return bars


def _server_rows(server: ServerFigures) -> list[tuple[str, str]]:
    rows = [(f"speculations {outcome}", f"{count:,.0f}") for outcome, count in server.speculations.items()]
    if server.cached_share is not None:
        rows.append(("prompt tokens from the cache", f"{server.cached_share:.0%}"))
    if server.loop_lag_p99_ms is not None:
        rows.append(("event loop late, p99", f"{server.loop_lag_p99_ms:,.1f} ms"))
    if server.memory_mib is not None:
        rows.append(("memory before → after", f"{server.memory_mib[0]:,.0f} → {server.memory_mib[1]:,.0f} MiB"))
    if server.tasks is not None:
        rows.append(("tasks before → after", f"{server.tasks[0]:,.0f} → {server.tasks[1]:,.0f}"))
    if server.worst_queue is not None:
        rows.append(("most requests waiting for the model", f"{server.worst_queue:,.0f}"))
    if server.worst_guard_level is not None:
        rows.append(("highest guard level", f"{server.worst_guard_level:,.0f}"))
    rows += [(f"dropped: {what}", f"{count:,.0f}") for what, count in server.drops.items()]
    return [*rows, *((f"calls refused: {why}", f"{count:,.0f}") for why, count in server.refused.items())]


@functools.cache
def _template() -> Template:
    folder = Path(__file__).parent
    environment = Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html.jinja")
