"""One load test from its first look at the server to its last: the phases of a profile, or the search for a limit."""

from __future__ import annotations

from dataclasses import dataclass, replace

import anyio

from duolog.loadtest.call_plan import Playwright
from duolog.loadtest.failures import CallRefused
from duolog.loadtest.limit_search import Goal, LimitSearch
from duolog.loadtest.load_figures import LoadFigures, Window
from duolog.loadtest.load_run import LoadResult, Stage, run_load
from duolog.loadtest.outcomes import CallRecord
from duolog.loadtest.profile import LoadProfile, Phase
from duolog.loadtest.server_figures import ServerFigures, server_figures

KEY_CODES = {"invalid_api_key", "origin_not_allowed", "http_401", "http_403", "beta_api_shape_disabled"}
"""Refusals that every further call would get, too."""
WARM_UP_CALLS = 1.25
"""Length of a warm-up, in mean calls: after it the longer calls, too, begin to end as fast as new ones arrive."""
REST_S = 3.0
"""Between two levels of a search."""


@dataclass(frozen=True, slots=True)
class SearchStep:
    calls: int
    held: bool
    figures: LoadFigures
    window: Window
    """When it was measured."""


@dataclass(frozen=True, slots=True)
class Search:
    goal: Goal
    steps: tuple[SearchStep, ...]
    holds: int | None
    """The most calls at once for which the goal held."""
    bounded: bool
    """The next level was seen to break it; False: the profile's bounds ended the search."""

    @property
    def shown(self) -> SearchStep | None:
        """The step that the report is about: the most calls that held, else the first."""
        best = [step for step in self.steps if step.held and step.calls == self.holds]
        return next(iter(best or self.steps), None)

    def by_calls(self) -> list[SearchStep]:
        return sorted(self.steps, key=lambda step: step.calls)


@dataclass(frozen=True, slots=True)
class LoadReport:
    """Everything a load test has found."""

    profile: LoadProfile
    result: LoadResult
    figures: LoadFigures
    """Of what counts; of a search: at the level that held, or at the first where none did."""
    search: Search | None
    server: ServerFigures | None
    mean_call_s: float
    notes: tuple[str, ...]

    @property
    def windows(self) -> list[Window]:
        """The stretches that `figures` are of."""
        if self.search is not None:
            return [] if self.search.shown is None else [self.search.shown.window]
        return [window for window in self.result.windows if window.counts]

    @property
    def measured(self) -> bool:
        """Some turn was answered, and a search has found a level that holds."""
        return self.figures.answered > 0 and (self.search is None or self.search.holds is not None)


async def check_line(stage: Stage, persona: str) -> str:
    """One call that says nothing; returns a note, or an empty text. Raises CallFailed where no call can be placed."""
    try:
        async with stage.dial(lambda _message: None) as line:
            met = line.log.persona
    except CallRefused as refusal:
        if refusal.code in KEY_CODES:
            raise
        return f"The server refused a first call ({refusal.code}); the test goes on and counts refusals."
    if met and met != persona:
        return f"There is no persona {persona} here; {met} answers instead."
    return ""


async def run_profile(stage: Stage, playwright: Playwright, profile: LoadProfile) -> LoadReport:
    """The profile's phases, once."""
    before = await stage.look()
    plans = playwright.calls(profile.load, first_index=0, most=profile.bounds.most_calls)
    notes = _bound_note(len(plans), profile)
    result = await run_load(stage, profile.load, plans)
    server = server_figures(before, await stage.look(), result.samples)
    return LoadReport(profile, result, result.figures(), None, server, playwright.mean_call_s, notes)


async def search_limit(stage: Stage, playwright: Playwright, profile: LoadProfile, goal: Goal) -> LoadReport:
    """The most calls at once for which the goal holds, within the profile's bounds."""
    before = await stage.look()
    search, bounds = LimitSearch(profile.search), profile.bounds
    steps: list[SearchStep] = []
    whole = LoadResult(())
    while (level := search.next_level) is not None and not stage.stop.is_set():
        phases = level_phases(level, playwright.mean_call_s, profile.search.step_s)
        needed_s = sum(phase.seconds for phase in phases)
        plans = playwright.calls(phases, first_index=len(whole.calls), most=bounds.most_calls - len(whole.calls))
        if whole.ran_s + needed_s > bounds.most_s or not plans:
            stage.say(f"  bounds.most_s or bounds.most_calls ends the search before {level} calls")
            break
        stage.say(f"  {level} calls at once, {needed_s:.0f} s")
        result = await run_load(stage, phases, plans)
        _append(whole, result)
        if result.stopped:
            break
        figures = result.figures()
        held = goal.holds(figures, profile.search.refused_share)
        steps.append(SearchStep(level, held, figures, whole.windows[-1]))
        search.record(level, held=held)
        stage.say(f"  {level} calls: {goal} {'holds' if held else 'does not hold'} ({_seen(goal, figures)})")
        await _rest(stage)
    found = Search(goal, tuple(steps), search.holds, search.bounded)
    server = server_figures(before, await stage.look(), whole.samples)
    figures = whole.figures() if found.shown is None else found.shown.figures
    return LoadReport(profile, whole, figures, found, server, playwright.mean_call_s, ())


def level_phases(level: float, mean_call_s: float, step_s: float) -> tuple[Phase, ...]:
    """A warm-up until as many are on the line, then the stretch that counts."""
    return (
        Phase(f"to {level:g}", max(1.0, WARM_UP_CALLS * mean_call_s), level, counts=False),
        Phase(f"{level:g} calls", step_s, level),
    )


def _append(whole: LoadResult, result: LoadResult) -> None:
    """Set the run behind what went before, as one timeline."""
    by_s = whole.ran_s + (REST_S if whole.calls else 0.0)
    windows = [replace(one, starts_s=one.starts_s + by_s, ends_s=one.ends_s + by_s) for one in result.windows]
    whole.windows = (*whole.windows, *windows)
    whole.calls += [_moved(call, by_s) for call in result.calls]
    whole.samples += [replace(sample, at_s=round(sample.at_s + by_s, 1)) for sample in result.samples]
    whole.ran_s, whole.stopped = by_s + result.ran_s, result.stopped


def _moved(call: CallRecord, by_s: float) -> CallRecord:
    turns = [replace(turn, end_s=turn.end_s + by_s, deadline_s=turn.deadline_s + by_s) for turn in call.turns]
    ended_s = None if call.ended_s is None else call.ended_s + by_s
    return replace(call, arrived_s=call.arrived_s + by_s, ended_s=ended_s, turns=turns)


async def _rest(stage: Stage) -> None:
    with anyio.move_on_after(REST_S):
        await stage.stop.wait()


def _seen(goal: Goal, figures: LoadFigures) -> str:
    seen_ms = goal.seen(figures.latency_ms)
    latency = "misses" if seen_ms is None else f"{seen_ms:,.0f} ms"
    refused = f", {figures.refused_share:.0%} of the calls refused" if figures.refused else ""
    return f"{goal.quantile} {latency} of {figures.latency_ms.count} turns{refused}"


def _bound_note(placed: int, profile: LoadProfile) -> tuple[str, ...]:
    if placed < profile.bounds.most_calls:
        return ()
    return (f"bounds.most_calls ended the arrivals after {placed} calls.",)
