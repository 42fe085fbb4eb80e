"""`duolog loadtest`: callers who keep their own schedule, and what that did to their waiting times.

Exit status: 0 measured; 1 no turn was answered, or `--search` found no level that holds; 2 the test could not begin
(wrong profile, no server, wrong key, no recordings); 130 stopped by Ctrl-C, with the report of what was measured.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated

import anyio
import typer

from duolog.loadtest.call_plan import Playwright
from duolog.loadtest.limit_search import Goal, parse_goal
from duolog.loadtest.load_run import Stage
from duolog.loadtest.load_session import LoadReport, check_line, level_phases, run_profile, search_limit
from duolog.loadtest.profile import LoadProfile, Mode, Phase, load_profile
from duolog.loadtest.repertoire import Sound, recorded_sounds, spoken_sounds
from duolog.loadtest.report_html import report_html
from duolog.loadtest.report_json import report_fields
from duolog.loadtest.report_text import report_table
from duolog.loadtest.results import machine_facts
from duolog.loadtest.server_figures import scrape
from duolog.loadtest.wire_client import Call, CallOptions, Observer, place_call
from duolog.ports.errors import ConfigurationError

EXIT_NOTHING_MEASURED = 1
EXIT_INTERRUPTED = 130
DEFAULT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Order:
    """What was asked for, read and checked before the first call."""

    profile: LoadProfile
    options: CallOptions
    goal: Goal | None
    recordings: Path | None
    calls: float | None
    """At once, in place of the profile's load."""
    seconds: float | None


def loadtest(  # noqa: PLR0913, PLR0917 - the command's own arguments, one each
    profile: Annotated[
        Path | None, typer.Argument(help="What to do, e.g. configs/loadtest/talk.yaml; built in if left out.")
    ] = None,
    url: Annotated[str, typer.Option(help="Address of the server.")] = "ws://127.0.0.1:8000",
    calls: Annotated[float | None, typer.Option(help="Calls at once, instead of the profile's load.", min=0.1)] = None,
    seconds: Annotated[float | None, typer.Option(help="For how long, instead of the profile's load.", min=1)] = None,
    search: Annotated[
        str | None, typer.Option(help="Find the most calls at once with e.g. p99=1500 (ms); p50, p95, p99, p99.9.")
    ] = None,
    text: Annotated[bool, typer.Option("--text", help="Typed messages: load the model's stage alone.")] = False,
    wavs: Annotated[Path | None, typer.Option(help="Folder of recordings to say; else espeak-ng speaks.")] = None,
    persona: Annotated[str | None, typer.Option(help="Whom to call, instead of the profile's.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of all chance: arrivals, turns, pauses.")] = None,
    api_key: Annotated[str | None, typer.Option(envvar="DUOLOG_API_KEY", help="Key, where the server asks.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for report.json and report.html.")] = Path("loadtest-report"),
) -> None:
    """Place calls as chance would, keep every caller's schedule whatever the server does, and report the waiting."""
    chosen = _adjusted(load_profile(profile), Mode.TEXT if text else None, persona, seed)
    goal = None if search is None else parse_goal(search)
    options = call_options(chosen, url, api_key)
    order = Order(chosen, options, goal, wavs, calls, seconds)
    report = anyio.run(run_order, order, typer.echo, backend_options={"use_uvloop": True})
    typer.echo(f"\n{report_table(report)}\n\n{write_report(report, url, out)}")
    if report.result.stopped:
        raise typer.Exit(EXIT_INTERRUPTED)
    if not report.measured:
        raise typer.Exit(EXIT_NOTHING_MEASURED)


def call_options(profile: LoadProfile, url: str, api_key: str | None) -> CallOptions:
    if profile.mode is Mode.VOICE:
        return CallOptions(url, profile.persona, api_key=api_key)
    written = {"output_modalities": ["text"]}
    return CallOptions(url, profile.persona, api_key=api_key, session=written, microphone=False, loudspeaker=False)


async def run_order(order: Order, say: Callable[[str], None]) -> LoadReport:
    """Run it, until its end or Ctrl-C. Raises CallFailed, ConfigurationError, AudioUnreadable where it cannot begin."""
    playwright = Playwright(order.profile, sounds_for(order))
    profile = _with_load(order, playwright.mean_call_s)
    stage = Stage(partial(_dial, order.options), partial(scrape, order.options.url), say, anyio.Event())
    note = await check_line(stage, order.options.persona)
    if note:
        say(note)
    say(_introduction(order, profile, playwright))
    async with anyio.create_task_group() as tasks:
        await tasks.start(_stop_on_signal, stage)
        if order.goal is None:
            report = await run_profile(stage, playwright, profile)
        else:
            report = await search_limit(stage, playwright, profile, order.goal)
        tasks.cancel_scope.cancel()
    return replace(report, notes=(*report.notes, note)) if note else report


def sounds_for(order: Order) -> list[Sound]:
    if order.profile.mode is Mode.TEXT:
        return []
    return spoken_sounds(order.profile.says) if order.recordings is None else recorded_sounds(order.recordings)


def write_report(report: LoadReport, url: str, folder: Path) -> str:
    """Write report.json and report.html; returns a line that says where. Raises ConfigurationError."""
    about: dict[str, object] = {
        "name": report.profile.name,
        "url": url,
        "at": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": machine_facts(),
    }
    fields = report_fields(report, about)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "report.json").write_text(json.dumps(fields, ensure_ascii=False) + "\n", encoding="utf-8")
        (folder / "report.html").write_text(report_html(report, about), encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"The report could not be written to {folder}: {error}; give --out.") from error
    return f"{folder / 'report.html'}\n{folder / 'report.json'}"


def _dial(options: CallOptions, observer: Observer) -> AbstractAsyncContextManager[Call]:
    return place_call(options, observer)


async def _stop_on_signal(stage: Stage, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
    """The first Ctrl-C ends the test; the report follows."""
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        async for _ in signals:
            print("Stopping: the calls hang up, the report follows.", file=sys.stderr)
            stage.stop.set()
            return


def _adjusted(profile: LoadProfile, mode: Mode | None, persona: str | None, seed: int | None) -> LoadProfile:
    return replace(
        profile,
        mode=mode or profile.mode,
        persona=persona or profile.persona,
        seed=profile.seed if seed is None else seed,
    )


def _with_load(order: Order, mean_call_s: float) -> LoadProfile:
    """The given load in place of the profile's. Raises ConfigurationError where the test would be too long."""
    profile = order.profile
    if order.calls is not None or order.seconds is not None:
        level = profile.load[-1].calls if order.calls is None else order.calls
        profile = replace(profile, load=level_phases(level, mean_call_s, order.seconds or DEFAULT_SECONDS))
    wanted_s = sum(phase.seconds for phase in profile.load)
    if wanted_s > profile.bounds.most_s:
        raise ConfigurationError(
            f"The load lasts {wanted_s:,.0f} s and bounds.most_s of the profile is {profile.bounds.most_s:,.0f}; "
            "shorten the one or raise the other."
        )
    return profile


def _introduction(order: Order, profile: LoadProfile, playwright: Playwright) -> str:
    what = f"search {order.goal}" if order.goal else ", ".join(_phase_text(phase) for phase in profile.load)
    return f"{profile.name} at {order.options.url}: {what}; a call is {playwright.mean_call_s:.0f} s long on average"


def _phase_text(phase: Phase) -> str:
    ramp = "" if phase.from_calls is None else f"{phase.from_calls:g} → "
    return f"{phase.name} ({ramp}{phase.calls:g} at once, {phase.seconds:.0f} s)"
