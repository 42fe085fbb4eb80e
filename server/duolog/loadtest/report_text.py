"""A load test's report as a table for the terminal. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from duolog.loadtest.histogram import Quantiles, milliseconds
from duolog.loadtest.load_figures import LoadFigures
from duolog.loadtest.load_session import LoadReport, Search
from duolog.loadtest.server_figures import ServerFigures

HEAD = ("", "turns", "answered", "missed", "turns/s", "p50", "p95", "p99", "p99.9", "worst")


def report_table(report: LoadReport) -> str:
    """Milliseconds from the scheduled end of what was said; `miss` where the percentile falls among missed turns."""
    named = [
        (window.name if window.counts else f"({window.name})", found) for window, found in report.result.by_window()
    ]
    rows = [_row(name, figures) for name, figures in named] if report.search is None else []
    if report.search is not None:
        rows = [
            _row(f"{step.calls} calls{'' if step.held else ' ✗'}", step.figures) for step in report.search.by_calls()
        ]
    if len(rows) != 1 and report.search is None:
        rows.append(_row("all that counts", report.figures))
    lines = [*aligned([HEAD, *rows]), "", *_notes(report)]
    return "\n".join(lines)


def reasons(counts: Mapping[str, float]) -> str:
    return ", ".join(f"{count:,.0f} × {reason}" for reason, count in counts.items())


def aligned(rows: Iterable[Sequence[str]]) -> list[str]:
    table = list(rows)
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    return [
        "  ".join(cell.ljust(width) if not column else cell.rjust(width) for column, (cell, width) in enumerate(pairs))
        for pairs in ([*zip(row, widths, strict=True)] for row in table)
    ]


def _row(name: str, figures: LoadFigures) -> tuple[str, ...]:
    latency: Quantiles = figures.latency_ms
    values = (latency.p50, latency.p95, latency.p99, latency.p999, latency.worst)
    return (
        name,
        str(figures.turns),
        str(figures.answered),
        str(sum(figures.missed.values())),
        f"{figures.turns_per_s:.2f}",
        *(milliseconds(value, latency.count) for value in values),
    )


def _notes(report: LoadReport) -> list[str]:
    figures = report.figures
    notes = [f"error rate {figures.error_rate:.1%} of {figures.turns} turns; {figures.calls} calls"]
    for what, counts in (("missed", figures.missed), ("refused", figures.refused), ("failed", figures.failed)):
        if counts:
            notes.append(f"{what}: {reasons(counts)}")
    if figures.told_ms.count:
        notes.append(f"refused callers were told after {milliseconds(figures.told_ms.p99, 1)} ms (p99)")
    if figures.barge_ins.during_an_answer:
        barge_ins = figures.barge_ins
        stop = milliseconds(barge_ins.stop_ms.p50, barge_ins.stop_ms.count)
        notes.append(
            f"barge-ins: {barge_ins.stopped} of {barge_ins.during_an_answer} silenced the answer, p50 {stop} ms"
        )
    if figures.quiet or figures.phantoms:
        notes.append(f"silence and noise: {figures.quiet} not answered, {figures.phantoms} answered (phantoms)")
    if figures.cut_off:
        notes.append(f"{figures.cut_off} turns were answered before they had ended; they have no latency")
    if figures.stalled_turns:
        notes.append(f"{figures.stalled_turns} answers stood still for more than 50 ms")
    notes += _caller_note(figures) + _search_note(report.search) + _server_notes(report.server)
    return [*notes, *report.notes]


def _caller_note(figures: LoadFigures) -> list[str]:
    late_ms = figures.caller_late_ms.p99
    if late_ms is None or late_ms <= 20:
        return []
    return [f"the callers themselves were {late_ms:,.0f} ms late (p99): this machine is too small for so many callers"]


def _search_note(search: Search | None) -> list[str]:
    if search is None:
        return []
    if search.holds is None:
        return [f"{search.goal} held at no level"]
    bound = "" if search.bounded else "; the profile's bounds ended the search, the limit may be higher"
    return [f"most calls at once with {search.goal}: {search.holds}{bound}"]


def _server_notes(server: ServerFigures | None) -> list[str]:
    if server is None:
        return ["the server shows no /metrics: its own figures are missing"]
    notes = []
    if server.speculations:
        notes.append(f"server: speculations {reasons(server.speculations)}")
    if server.cached_share is not None:
        notes.append(f"server: {server.cached_share:.0%} of the prompt tokens came from the cache")
    if server.drops:
        notes.append(f"server: dropped {reasons(server.drops)}")
    if server.loop_lag_p99_ms is not None:
        notes.append(f"server: loop lag p99 {server.loop_lag_p99_ms:,.1f} ms")
    if server.memory_mib is not None:
        notes.append(f"server: memory {server.memory_mib[0]:,.0f} → {server.memory_mib[1]:,.0f} MiB")
    if server.worst_guard_level is not None:
        notes.append(f"server: highest guard level {server.worst_guard_level:,.0f}")
    return notes
