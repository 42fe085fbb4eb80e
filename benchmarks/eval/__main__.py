"""`make eval`: the corpus and the scenarios through the real stack, and one table of how the calls went.

Writes benchmarks/results/eval.json and eval.md. `--parts` chooses; `--limit` shortens each part. Each part keeps the
time of its own run, so that parts run one at a time make one table.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import anyio
import httpx
import typer
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.endpointing import clips_of
from benchmarks.eval import conversation
from benchmarks.eval.perform import perform
from benchmarks.eval.recordings import listen_to_noise, pause_and_think, recognise
from benchmarks.eval.report import (
    PARTS,
    markdown,
    noise_summary,
    pauses_summary,
    recognition_summary,
    scenarios_summary,
    without_details,
)
from benchmarks.eval.scenario import Engines, read_scenarios
from benchmarks.eval.sounds import Sounds
from benchmarks.eval.verdict import LostWords, Verdict, judge, lost_words
from benchmarks.stack import ROOT, duolog_stack
from benchmarks.utterances import CORPUS, load_utterances
from duolog.loadtest.results import machine_facts
from duolog.ports.errors import DuologError

RESULT = ROOT / "benchmarks" / "results" / "eval.json"
SCENARIOS = ROOT / "tests" / "scenarios"
LOG = ROOT / ".duolog" / "logs" / "eval.log"
TURNS_PER_CALL = 5
PAUSE_CLIPS = {"medium": 42, "high": 12, "low": 12}
"""Clips of the pause set at each eagerness: the goal's point whole, the curve's other two sampled."""


def main(  # noqa: PLR0913, PLR0917 - rejected: the command's own options
    url: Annotated[str | None, typer.Option(help="A server that runs already, with the benchmark personas.")] = None,
    profile: Annotated[str, typer.Option(help="Models of the stack that is started.")] = "tiny",
    parts: Annotated[str, typer.Option(help=f"Of {', '.join(PARTS)}.")] = ",".join(PARTS),
    limit: Annotated[int | None, typer.Option(help="Only so many clips of each part.")] = None,
    eagerness: Annotated[str, typer.Option(help="Points of the pauses' curve.")] = "medium,high,low",
    repeat: Annotated[int, typer.Option(min=1, help="How often each scenario is played.")] = 1,
    corpus: Annotated[Path, typer.Option(help="Folder of the recorded speech.")] = CORPUS,
    out: Annotated[Path, typer.Option(help="JSON file to write; parts not run keep what it says of them.")] = RESULT,
) -> None:
    wanted = [part for part in parts.split(",") if part]
    unknown = [part for part in wanted if part not in PARTS]
    if unknown:
        typer.echo(f"There is no part {unknown[0]!r}; choose of {', '.join(PARTS)}.", err=True)
        raise typer.Exit(2)
    evaluation = Evaluation(corpus, limit, eagerness.split(","), repeat, profile)
    try:
        found = anyio.run(evaluation.run, url, wanted)
    except DuologError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from error
    known = json.loads(out.read_text(encoding="utf-8")) if out.is_file() else {}
    result = known | found | {"machine": machine_facts()}
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    table = markdown(result)
    out.with_suffix(".md").write_text(table, encoding="utf-8")
    typer.echo(f"\n{table}\n{out}")


class Evaluation:
    def __init__(self, corpus: Path, limit: int | None, eagerness: Sequence[str], repeat: int, profile: str) -> None:
        self._corpus = corpus
        self._limit = limit
        self._eagerness = eagerness
        self._repeat = repeat
        self._profile = profile

    async def run(self, url: str | None, parts: Sequence[str]) -> dict[str, object]:
        if url is not None:
            return await self._run_at(url, parts)
        typer.echo(f"Starting the {self._profile} stack; its output goes to {LOG.relative_to(ROOT)}")
        async with duolog_stack(self._profile, log=LOG) as stack:
            return await self._run_at(stack.url, parts)

    async def _run_at(self, url: str, parts: Sequence[str]) -> dict[str, object]:
        work: dict[str, Callable[[str], Awaitable[dict[str, object]]]] = {
            "recognition": self._recognition,
            "noise": self._noise,
            "pauses": self._pauses,
            "scenarios": self._scenarios,
            "conversation": self._conversation,
        }
        found: dict[str, object] = {}
        for part in parts:
            typer.echo(f"{part} …")
            found[part] = {"run_at": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"} | await work[part](url)
            typer.echo(json.dumps({part: without_details(found[part])}, ensure_ascii=False))
        return found

    async def _recognition(self, url: str) -> dict[str, object]:
        return recognition_summary(await recognise(url, self._corpus, self._limit))

    async def _noise(self, url: str) -> dict[str, object]:
        rows = [json.loads(line) for line in (self._corpus / "corpus.jsonl").read_text(encoding="utf-8").splitlines()]
        kinds = {str(row["file"]): row["kind"] for row in rows}
        return noise_summary(await listen_to_noise(url, self._corpus, kinds, self._limit))

    async def _pauses(self, url: str) -> dict[str, object]:
        # Every other one: the numbers of the policy were chosen on the rest.
        plain = [clip for clip in clips_of(self._corpus, None) if clip.gaps]
        clips = plain[1::2] + plain[::2]
        found: dict[str, object] = {}
        for point in self._eagerness:
            chosen = clips[: self._limit or PAUSE_CLIPS.get(point, min(PAUSE_CLIPS.values()))]
            found[point] = pauses_summary(await pause_and_think(url, chosen, point)) | {"of_clips": len(clips)}
        return found

    async def _scenarios(self, url: str) -> dict[str, object]:
        sounds, verdicts, lost = Sounds(self._corpus), list[Verdict](), list[LostWords]()
        for scenario in read_scenarios(SCENARIOS):
            if scenario.engines is Engines.SCRIPTED:
                continue
            for _ in range(self._repeat):
                performance = await perform(scenario, url, sounds)
                verdicts.append(judge(scenario, performance, Engines.REAL))
                lost.append(lost_words(scenario, performance))
                for problem in verdicts[-1].problems:
                    typer.echo(f"  {scenario.name}: {problem}")
        await sounds.aclose()
        return scenarios_summary(verdicts, lost)

    async def _conversation(self, url: str) -> dict[str, object]:
        utterances = load_utterances(corpus=self._corpus)
        calls = [utterances[start:] + utterances[:start] for start in (0, 3, 6)]
        before = await _speculations(url)
        seen = await conversation.converse(url, [call[:TURNS_PER_CALL] for call in calls])
        after = await _speculations(url)
        counted = {outcome: after.get(outcome, 0) - before.get(outcome, 0) for outcome in after}
        return conversation.summary(seen) | {"speculations": counted}


async def _speculations(url: str) -> dict[str, float]:
    """The server's own count, by outcome."""
    async with httpx.AsyncClient(trust_env=False) as client:
        text = (await client.get(f"{url.replace('ws', 'http', 1)}/metrics")).text
    families = {family.name: family for family in text_string_to_metric_families(text)}
    samples = families["duolog_speculations"].samples if "duolog_speculations" in families else []
    return {sample.labels["outcome"]: sample.value for sample in samples if sample.name.endswith("_total")}


if __name__ == "__main__":
    typer.run(main)
