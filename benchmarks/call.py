"""`make bench-call`: real utterances against a real running stack at speaking pace, with 1, 2 and 4 calls at once.

    duolog             a silence of 500 ms ends a turn
    duolog, semantic   what was said and how it sounds ends it; alone
    duolog, history    as the first, with 1,500 tokens of conversation before; alone

Writes benchmarks/results/call_latency.json and .md. `--scripted` measures the same path with engines that take no time:
what is left is the share of our own code.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import anyio
import typer

from benchmarks.schedule import Budget, Part, measure
from benchmarks.stack import ROOT, duolog_stack
from benchmarks.utterances import load_utterances
from duolog.loadtest.campaign import DuologCaller
from duolog.loadtest.measured_turn import MIN_FIRST_PHRASE_WORDS
from duolog.loadtest.results import Run, machine_facts, markdown_table, run_summary
from duolog.loadtest.wire_client import CallOptions, Said
from duolog.ports.errors import DuologError

UTTERANCES_ALONE = 3
UTTERANCES_TOGETHER = 2
"""Said by each caller in a round; with several callers fewer give as many turns."""
SEMANTIC, HISTORY = "duolog, semantic", "duolog, history"
HISTORY_TOKENS = 1_500
HISTORY_LEAD_S = 8.0
"""Before the first words of a call with a history, which a call that came to it by talking would have in the cache."""
TOKENS_PER_EXCHANGE = 50
PLACES = ("the sea", "a lake", "the mountains", "a big city", "a small village", "an island", "the desert", "a forest")
RESULTS = ROOT / "benchmarks" / "results"
LOG = ROOT / ".duolog" / "logs" / "bench-call.log"


def main(  # noqa: PLR0913, PLR0917 - the command's own options
    url: Annotated[str | None, typer.Option(help="Measure a server that runs already.")] = None,
    profile: Annotated[str, typer.Option(help="Models of the stack that is started.")] = "tiny",
    persona: Annotated[str, typer.Option(help="Whom to call.")] = "bench",
    calls: Annotated[str, typer.Option(help="Calls at once, each measured by itself.")] = "1,2,4",
    rounds: Annotated[int, typer.Option(min=1)] = 3,
    minutes: Annotated[float | None, typer.Option(help="Stop measuring after this long; 9, scripted 2.")] = None,
    scripted: Annotated[bool, typer.Option("--scripted", help="Engines without delay: our own share.")] = False,
    out: Annotated[Path | None, typer.Option(help="JSON file to write.")] = None,
) -> None:
    counts = [int(count) for count in calls.split(",")]
    label = "scripted" if scripted else profile
    parts = [Part("duolog", count, label, UTTERANCES_ALONE if count == 1 else UTTERANCES_TOGETHER) for count in counts]
    if 1 in counts and not scripted:
        parts += [Part(system, 1, label, UTTERANCES_ALONE) for system in (SEMANTIC, HISTORY)]
    target = out or RESULTS / ("own_share.json" if scripted else "call_latency.json")
    budget = Budget(rounds, (minutes or (2.0 if scripted else 9.0)) * 60)
    work = partial(_measure_at, url, persona, parts, budget) if url else partial(_measure_own, persona, parts, budget)
    try:
        runs = anyio.run(work)
    except DuologError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from error
    if not write_results(runs, target):
        typer.echo("No turn counts: see turns_left_out and failures in the results.", err=True)
        raise typer.Exit(1)


async def _measure_own(persona: str, parts: Sequence[Part], budget: Budget) -> list[Run]:
    """Start a stack for the measurement."""
    profile = parts[0].profile
    typer.echo(f"Starting the {profile} stack; its output goes to {LOG.relative_to(ROOT)}")
    scripted = profile == "scripted"
    async with duolog_stack("tiny" if scripted else profile, scripted=scripted, log=LOG) as stack:
        return await _measure_at(stack.url, persona, parts, budget)


async def _measure_at(url: str, persona: str, parts: Sequence[Part], budget: Budget) -> list[Run]:
    min_words = 1 if parts[0].profile == "scripted" else MIN_FIRST_PHRASE_WORDS
    callers = {
        "duolog": DuologCaller(CallOptions(url, persona), min_words),
        SEMANTIC: DuologCaller(CallOptions(url, "bench-semantic"), min_words),
        HISTORY: DuologCaller(CallOptions(url, persona, history=long_history()), min_words, HISTORY_LEAD_S),
    }
    return await measure(parts, callers, load_utterances(), budget=budget, say=typer.echo)


def long_history() -> tuple[Said, ...]:
    """Small talk of some HISTORY_TOKENS; no two exchanges are alike."""
    said = []
    for number in range(HISTORY_TOKENS // TOKENS_PER_EXCHANGE):
        place, other = PLACES[number % len(PLACES)], PLACES[(number + number // len(PLACES) + 1) % len(PLACES)]
        said.append(Said("user", f"Would you rather go to {place} or to {other} with friends for a weekend?"))
        said.append(Said("assistant", f"To {place}, I think: {other} is a long way to go for two days only."))
    return tuple(said)


def write_results(runs: Sequence[Run], target: Path) -> bool:
    """Write JSON and table beside it; False where no turn counts."""
    machine = machine_facts()
    summaries = [run_summary(run) for run in runs]
    target.parent.mkdir(parents=True, exist_ok=True)
    fields = {"machine": machine, "runs": summaries}
    target.write_text(json.dumps(fields, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    table = markdown_table(summaries, machine)
    target.with_suffix(".md").write_text(table, encoding="utf-8")
    typer.echo(f"\n{table}\n{target}")
    return any(run.timelines for run in runs)


if __name__ == "__main__":
    typer.run(main)
