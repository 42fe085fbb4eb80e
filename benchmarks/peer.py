"""`make bench-peer`: Duolog and Pipecat 1.14.0 side by side: same utterances, prompt, models, LLM server and clock.

Both run at once and are called in turn, round by round; neither does anything while the other is measured. The peer has
its own virtual environment, `.venv-peer`, made from benchmarks/peer/requirements.txt on the first run. Writes
benchmarks/results/peer.json and .md.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated

import anyio
import typer
import yaml

from benchmarks.peer_caller import PeerCaller
from benchmarks.peer_ratio import ratio_fields, ratio_table, ratios
from benchmarks.schedule import Budget, Part, measure
from benchmarks.stack import PERSONAS, ROOT, duolog_stack, free_ports, running
from benchmarks.utterances import load_utterances
from duolog.loadtest.campaign import Caller, DuologCaller
from duolog.loadtest.results import Run, machine_facts, markdown_table, run_summary
from duolog.loadtest.wire_client import CallOptions
from duolog.ports.errors import DuologError
from duolog.settings import Profile, Settings

ENVIRONMENT = ROOT / ".venv-peer"
REQUIREMENTS = ROOT / "benchmarks" / "peer" / "requirements.txt"
LOGS = ROOT / ".duolog" / "logs"
RESULTS = ROOT / "benchmarks" / "results" / "peer.json"
PEER = "pipecat-"
LLM_NAME = "duolog"


def main(
    rounds: Annotated[int, typer.Option(min=1)] = 2,
    minutes: Annotated[float, typer.Option(help="Stop measuring after this long.")] = 13.0,
    calls: Annotated[str, typer.Option(help="Calls at once.")] = "1,4",
    configurations: Annotated[str, typer.Option(help="Of the peer; A (defaults) is measured alone, once.")] = "A,C,D",
    personas: Annotated[str, typer.Option(help="Ours: bench (500 ms of silence), bench200 (200 ms).")] = "bench",
    out: Annotated[Path, typer.Option(help="JSON file to write.")] = RESULTS,
) -> None:
    counts = [int(count) for count in calls.split(",")]
    parts = plan(counts, personas.split(","), configurations.split(","))
    try:
        python = prepare_environment()
        runs = anyio.run(_run, python, parts, Budget(rounds, minutes * 60))
    except (DuologError, subprocess.CalledProcessError) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from error
    _write(runs, out)


def plan(counts: Sequence[int], personas: Sequence[str], configurations: Sequence[str]) -> list[Part]:
    """What is measured each round: ours and theirs in turn, alone and together."""
    parts = []
    for count in counts:
        per_round = 4 if count == 1 else 3
        parts += [Part(f"duolog-{persona}", count, Profile.TINY, per_round) for persona in personas]
        for letter in configurations:
            if letter == "A" and count > 1:
                continue
            parts.append(Part(PEER + letter, count, Profile.TINY, per_round, rounds=1 if letter == "A" else None))
    return parts


def prepare_environment() -> Path:
    """The peer's interpreter; its environment is made on the first call. Raises CalledProcessError."""
    python = ENVIRONMENT / "bin" / "python"
    marker = ENVIRONMENT / "requirements.txt"
    wanted = REQUIREMENTS.read_text(encoding="utf-8")
    if not marker.is_file() or marker.read_text(encoding="utf-8") != wanted:
        typer.echo("Making the peer's environment (once, some minutes)")
        subprocess.run([sys.executable, "-m", "venv", str(ENVIRONMENT)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--no-deps", "-r", str(REQUIREMENTS)], check=True)
        marker.write_text(wanted, encoding="utf-8")
    return python


async def _run(python: Path, parts: Sequence[Part], budget: Budget) -> list[Run]:
    async with AsyncExitStack() as stack:
        typer.echo("Starting Duolog (tiny) and the peer")
        ours = await stack.enter_async_context(duolog_stack(Profile.TINY, log=LOGS / "bench-peer-duolog.log"))
        port = free_ports(1)[0]
        peer = running(
            peer_command(python, port, ours.llm_url), {}, f"http://127.0.0.1:{port}/ready", LOGS / "peer.log"
        )
        await stack.enter_async_context(peer)
        callers = {part.system: _caller(part.system, ours.url, port) for part in parts}
        return await measure(parts, callers, load_utterances(), budget=budget, say=typer.echo)


def _caller(system: str, duolog_url: str, peer_port: int) -> Caller:
    if system.startswith(PEER):
        return PeerCaller(f"ws://127.0.0.1:{peer_port}/ws/{system.removeprefix(PEER)}")
    return DuologCaller(CallOptions(duolog_url, system.removeprefix("duolog-")))


def peer_command(python: Path, port: int, llm_url: str) -> list[str]:
    """The peer's own program with the prompt and limits of our benchmark persona."""
    persona = yaml.safe_load((PERSONAS / "bench.yaml").read_text(encoding="utf-8"))
    store = (ROOT / Settings().models_dir).resolve()
    voice = next((store / "joe-piper").glob("*.onnx"))
    options = {
        "--port": str(port),
        "--llm-url": llm_url,
        "--llm-model": LLM_NAME,
        "--whisper": str(store / "whisper-base"),
        "--voice": str(voice),
        "--prompt": str(persona["instructions"]),
        "--max-tokens": str(persona["sampling"]["max_tokens"]),
    }
    program = str(ROOT / "benchmarks" / "peer" / "bot.py")
    return [str(python), program, *(word for option in options.items() for word in option)]


def _write(runs: Sequence[Run], target: Path) -> None:
    found = ratios(runs, peer_prefix=PEER)
    machine = machine_facts()
    summaries = [run_summary(run) for run in runs]
    target.parent.mkdir(parents=True, exist_ok=True)
    fields = {"machine": machine, "peer": "Pipecat 1.14.0", "ratios": ratio_fields(found), "runs": summaries}
    target.write_text(json.dumps(fields, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    table = f"{ratio_table(found)}\n{markdown_table(summaries, machine)}"
    target.with_suffix(".md").write_text(table, encoding="utf-8")
    typer.echo(f"\n{table}\n{target}")


if __name__ == "__main__":
    typer.run(main)
