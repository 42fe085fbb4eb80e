"""`make bench-load`: the most calls that a goal holds for, then twice as many, then whether the server comes back.

Three questions: do the calls that were taken keep their waiting time under twice the load, are the others told at once,
and is everything as before 10 s after the load has gone. Writes benchmarks/results/overload.json, and the load's own
report (page and JSON) beside the logs.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

import anyio
import typer

from benchmarks.stack import ROOT, duolog_stack
from duolog.loadtest.call_plan import Playwright
from duolog.loadtest.limit_search import Goal, parse_goal
from duolog.loadtest.load_command import call_options, write_report
from duolog.loadtest.load_figures import LoadFigures
from duolog.loadtest.load_run import LoadResult, Stage, run_load
from duolog.loadtest.load_session import LoadReport, level_phases, search_limit
from duolog.loadtest.profile import LoadProfile, Mode, Phase, load_profile
from duolog.loadtest.repertoire import spoken_sounds
from duolog.loadtest.report_json import figure_fields
from duolog.loadtest.report_text import report_table
from duolog.loadtest.results import machine_facts
from duolog.loadtest.server_figures import Scrape, ServerSample, sample_of, scrape, server_figures
from duolog.loadtest.wire_client import place_call
from duolog.ports.errors import DuologError

OVERLOAD = 2.0
"""Times the load that holds."""
KEPT = 1.5
"""Times their p99 at the limit that calls may wait under overload."""
TOLD_MS = 1_000.0
"""By when a refused caller knows, p99."""
RECOVERY_S = 10.0
AFTER_S = 30.0
"""Watched after the recovery, at half of what holds."""
GROWN_SHARE, GROWN_MIB = 0.05, 32.0
"""Memory may have grown by the larger of these since the middle of the overload: what leaks grows on and on."""
LOOK_EVERY_S = 0.5
RESULTS = ROOT / "benchmarks" / "results" / "overload.json"
PROFILE = ROOT / "configs" / "loadtest" / "overload.yaml"
LOG = ROOT / ".duolog" / "logs" / "bench-load.log"
REPORTS = ROOT / ".duolog" / "loadtest-report"


@dataclass(frozen=True, slots=True)
class Check:
    what: str
    holds: bool
    seen: str
    wanted: str


@dataclass(frozen=True, slots=True)
class Rest:
    """The server once everybody has hung up."""

    before: ServerSample
    after: ServerSample
    waited_s: float
    """Until no call was active and the tasks were those of before, at most `RECOVERY_S`."""


@dataclass(frozen=True, slots=True)
class Overload:
    """What the two runs and the looks between them have shown."""

    limit_calls: float
    limit: LoadFigures
    overload: LoadFigures
    after: LoadFigures
    memory_at_half_mib: float | None
    rest: Rest | None
    """None where the server shows no /metrics."""


@dataclass(frozen=True, slots=True)
class Question:
    profile: LoadProfile
    goal: Goal
    limit: float | None
    """Calls that hold, where it is known; else it is searched."""
    limit_s: float
    overload_s: float


def main(  # noqa: PLR0913, PLR0917 - the command's own options
    url: Annotated[str | None, typer.Option(help="Measure a server that runs already.")] = None,
    profile: Annotated[str, typer.Option(help="Models of the stack that is started.")] = "tiny",
    scripted: Annotated[bool, typer.Option("--scripted", help="Engines without delay: our own code's limit.")] = False,
    load: Annotated[Path, typer.Option(help="Load profile: who talks how.")] = PROFILE,
    goal: Annotated[str | None, typer.Option(help="What holds; p99=4000, scripted p99=1500.")] = None,
    limit: Annotated[float | None, typer.Option(help="Calls at once that hold, instead of the search.")] = None,
    limit_seconds: Annotated[float, typer.Option(help="Measured at the limit.", min=5)] = 90.0,
    seconds: Annotated[float, typer.Option(help="Of overload.", min=10)] = 300.0,
    out: Annotated[Path, typer.Option(help="JSON file to write.")] = RESULTS,
) -> None:
    try:
        wanted = parse_goal(goal or ("p99=1500" if scripted else "p99=4000"))
        question = Question(load_profile(load), wanted, limit, limit_seconds, seconds)
        work = partial(_ask, question, "scripted" if scripted else profile, out)
        anyio.run(partial(work, url) if url else partial(_start_and_ask, work, profile, scripted))
    except DuologError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from error


async def _start_and_ask(work: Callable[[str], Awaitable[None]], profile: str, scripted: bool) -> None:
    typer.echo(f"Starting the {'scripted' if scripted else profile} stack; its output goes to {LOG.relative_to(ROOT)}")
    async with duolog_stack(profile, scripted=scripted, log=LOG) as stack:
        await work(stack.url)


async def _ask(question: Question, label: str, out: Path, url: str) -> None:
    profile = question.profile
    stage = Stage(
        partial(place_call, call_options(profile, url, None)), partial(scrape, url), typer.echo, anyio.Event()
    )
    playwright = Playwright(profile, [] if profile.mode is Mode.TEXT else spoken_sounds(profile.says))
    searched = None if question.limit else await search_limit(stage, playwright, profile, question.goal)
    if searched is not None:
        typer.echo(f"\n{report_table(searched)}\n")
    limit = question.limit or (searched.search.holds if searched is not None and searched.search else None)
    if not limit:
        typer.echo(f"{question.goal} holds at no level: there is no load to double.", err=True)
        raise typer.Exit(1)
    report, found = await overload(stage, playwright, question, limit)
    typer.echo(f"\n{report_table(report)}\n\n{write_report(report, url, REPORTS)}\n")
    write_results(question, label, found, searched, out)


async def overload(
    stage: Stage, playwright: Playwright, question: Question, limit: float
) -> tuple[LoadReport, Overload]:
    """The limit, twice as much, and what comes after, with looks at the server in between."""
    idle = await stage.look()
    phases = (
        *level_phases(limit, playwright.mean_call_s, question.limit_s),
        Phase("overload", question.overload_s, OVERLOAD * limit),
    )
    lasts_s = sum(phase.seconds for phase in phases)
    stage.say(f"  {limit:g} calls for {question.limit_s:g} s, then {OVERLOAD * limit:g} for {question.overload_s:g} s")
    calls = playwright.calls(phases, first_index=0, most=question.profile.bounds.most_calls)
    result = await run_load(stage, phases, calls)
    after = await _afterwards(stage, playwright, limit, result.ran_s - lasts_s, first_index=len(calls))
    rest = None if idle is None else await _rest(stage, idle)
    report = _report(question, result, playwright, idle, await stage.look())
    named = {window.name: figures for window, figures in result.by_window()}
    return report, Overload(
        limit_calls=limit,
        limit=named[phases[1].name],
        overload=named["overload"],
        after=after.figures(),
        memory_at_half_mib=memory_at(result.samples, lasts_s - question.overload_s / 2),
        rest=rest,
    )


async def _afterwards(
    stage: Stage, playwright: Playwright, limit: float, drained_s: float, first_index: int
) -> LoadResult:
    """Half of what holds: the first 10 s since the load was taken away do not count."""
    half = max(1.0, limit / 2)
    phases = (
        Phase("recovery", max(1.0, RECOVERY_S - drained_s), half, counts=False),
        Phase("after", AFTER_S + playwright.mean_call_s, half),
    )
    stage.say(f"  {half:g} calls at once: is the server back?")
    return await run_load(stage, phases, playwright.calls(phases, first_index=first_index, most=1_000))


async def _rest(stage: Stage, idle: Scrape) -> Rest | None:
    """Wait until the server is as idle as before, at most `RECOVERY_S`."""
    before, began_s = sample_of(idle, 0.0), anyio.current_time()
    while True:
        seen = await stage.look()
        waited_s = anyio.current_time() - began_s
        if seen is None:
            return None
        now = sample_of(seen, waited_s)
        if waited_s >= RECOVERY_S or (now.calls == 0 and (now.tasks or 0) <= (before.tasks or 0)):
            return Rest(before, now, round(waited_s, 1))
        await anyio.sleep(LOOK_EVERY_S)


def _report(
    question: Question, result: LoadResult, playwright: Playwright, before: Scrape | None, after: Scrape | None
) -> LoadReport:
    server = server_figures(before, after, result.samples)
    profile = replace(question.profile, name="overload")
    return LoadReport(profile, result, result.figures(), None, server, playwright.mean_call_s, ())


def memory_at(samples: Sequence[ServerSample], at_s: float) -> float | None:
    """Of the look nearest to this time."""
    known = [sample for sample in samples if sample.memory_mib is not None]
    return min(known, key=lambda sample: abs(sample.at_s - at_s)).memory_mib if known else None


def checks(found: Overload, goal: Goal) -> list[Check]:
    """The figure that is promised, part by part."""
    limit_ms, overload_ms = found.limit.latency_ms.p99, found.overload.latency_ms.p99
    allowed_ms = None if limit_ms is None else KEPT * limit_ms
    kept = allowed_ms is not None and overload_ms is not None and overload_ms <= allowed_ms
    told_ms = found.overload.told_ms.p99
    told = told_ms is None or told_ms <= TOLD_MS
    after_ms = goal.seen(found.after.latency_ms)
    return [
        Check("calls that were taken keep their p99", kept, _ms(overload_ms), f"≤ {_ms(allowed_ms)}"),
        Check("refused callers are told, p99", told, _told(found), f"≤ {_ms(TOLD_MS)}"),
        Check("10 s later the goal holds again", goal.holds(found.after, 0.0), _ms(after_ms), str(goal)),
        *_rest_checks(found),
    ]


def _rest_checks(found: Overload) -> list[Check]:
    rest = found.rest
    if rest is None or found.memory_at_half_mib is None or rest.after.memory_mib is None:
        return [Check("nothing leaks", False, "the server does not say", "its memory and tasks")]
    tasks, before = rest.after.tasks or 0.0, rest.before.tasks or 0.0
    after_mib = rest.after.memory_mib
    allowed_mib = found.memory_at_half_mib + max(GROWN_MIB, GROWN_SHARE * found.memory_at_half_mib)
    return [
        Check("no call is left", rest.after.calls == 0, f"{rest.after.calls or 0:g}", "0"),
        Check("no task is left", tasks <= before, f"{tasks:g}", f"≤ {before:g}"),
        Check("memory stands still", after_mib <= allowed_mib, f"{after_mib:,.0f} MiB", f"≤ {allowed_mib:,.0f} MiB"),
    ]


def write_results(question: Question, label: str, found: Overload, searched: LoadReport | None, out: Path) -> None:
    seen = checks(found, question.goal)
    steps = [] if searched is None or searched.search is None else searched.search.by_calls()
    fields = {
        "machine": machine_facts(),
        "stack": label,
        "load": question.profile.name,
        "goal": str(question.goal),
        "limit_calls": found.limit_calls,
        "overload_calls": OVERLOAD * found.limit_calls,
        "overload_s": question.overload_s,
        "search": [{"calls": step.calls, "held": step.held, **_short(step.figures)} for step in steps],
        "limit": figure_fields(found.limit),
        "overload": figure_fields(found.overload),
        "after": figure_fields(found.after),
        "memory_at_half_mib": found.memory_at_half_mib,
        "rest": None if found.rest is None else asdict(found.rest),
        "checks": [asdict(check) for check in seen],
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(fields, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    for check in seen:
        typer.echo(f"  {'yes' if check.holds else 'NO ':<4} {check.what:<40} {check.seen:>16}   wanted {check.wanted}")
    typer.echo(out)


def _short(figures: LoadFigures) -> dict[str, object]:
    latency = figures.latency_ms
    return {"turns": figures.turns, "p50": latency.p50, "p99": latency.p99, "refused": sum(figures.refused.values())}


def _ms(value: float | None) -> str:
    return "misses" if value is None else f"{value:,.0f} ms"


def _told(found: Overload) -> str:
    return _ms(found.overload.told_ms.p99) if found.overload.told_ms.count else "none refused"


if __name__ == "__main__":
    typer.run(main)
