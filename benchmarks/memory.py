"""`make bench-memory`: what the server holds with all speech models, for each idle call, and after many calls.

The speech engines are real, the chat model is scripted, so vLLM's memory is not in the figures. Writes
benchmarks/results/memory.json; bounded to about eight minutes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import anyio
import httpx
import psutil
import typer

from benchmarks.stack import ROOT, duolog_stack
from benchmarks.utterances import load_utterances
from duolog.loadtest.campaign import Utterance
from duolog.loadtest.failures import CallFailed
from duolog.loadtest.results import machine_facts
from duolog.loadtest.wire_client import CallOptions, place_call
from duolog.loadtest.wire_text import Message, text_field
from duolog.ports.errors import DuologError

SETTINGS = {"DUOLOG__LLM__ENGINE": "scripted", "DUOLOG__SERVER__MAX_CALLS": "64"}
WARM_UP_CYCLES = 16
"""Until allocators, thread pools and caches have their size."""
AT_ONCE = 4
PARTS = 4
"""The calls are made in parts, with a look after each: a leak grows with every part, an allocator stops."""
SETTLE_S = 6.0
IDLE_S = 15.0
HEAR_S = 0.3
"""Of each answer, before the caller hangs up in the middle of it."""
PATIENCE_S = 20.0
MIB = 1024 * 1024
RESULTS = ROOT / "benchmarks" / "results" / "memory.json"
LOG = ROOT / ".duolog" / "logs" / "bench-memory.log"


@dataclass(frozen=True, slots=True)
class Footprint:
    """The server's process at one moment."""

    when: str
    rss_mib: float
    threads: int
    tasks: int
    files: int


class Meter:
    """Looks at one server process."""

    def __init__(self, url: str) -> None:
        self._metrics_url = url.replace("ws://", "http://") + "/metrics"
        self._process = _server_process()
        self.seen: list[Footprint] = []

    async def cpu_share(self, seconds: float) -> float:
        """Of one core, over the next seconds."""
        before = self._process.cpu_times()
        await anyio.sleep(seconds)
        after = self._process.cpu_times()
        return (after.user - before.user + after.system - before.system) / seconds

    async def look(self, when: str) -> Footprint:
        """Once the process has come to rest."""
        await anyio.sleep(SETTLE_S)
        async with httpx.AsyncClient(trust_env=False) as client:
            lines = (await client.get(self._metrics_url)).text.splitlines()
        tasks = next(int(float(line.split()[1])) for line in lines if line.startswith("duolog_tasks "))
        process = self._process
        found = Footprint(
            when, round(process.memory_info().rss / MIB, 1), process.num_threads(), tasks, process.num_fds()
        )
        self.seen.append(found)
        typer.echo(
            f"  {when:<24} {found.rss_mib:8.1f} MiB {found.threads:4} threads {tasks:4} tasks {found.files:4} files"
        )
        return found


def main(
    idle_calls: Annotated[int, typer.Option(min=1)] = 20,
    cycles: Annotated[int, typer.Option(min=1, help="Calls that connect, talk and hang up.")] = 500,
    minutes: Annotated[float, typer.Option(help="Stop the cycles after this long.")] = 6.0,
    out: Annotated[Path, typer.Option(help="JSON file to write.")] = RESULTS,
) -> None:
    os.environ.update(SETTINGS)
    try:
        fields = anyio.run(_measure, idle_calls, cycles, minutes)
    except DuologError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from error
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(fields, indent=2) + "\n", encoding="utf-8")
    typer.echo(json.dumps(fields["figures"], indent=2))
    typer.echo(out)


async def _measure(idle_calls: int, cycles: int, minutes: float) -> dict[str, object]:
    words = min(load_utterances(), key=lambda utterance: len(utterance.samples))
    async with duolog_stack("tiny", log=LOG) as stack:
        meter = Meter(stack.url)
        await meter.look("ready")
        await _talk_in_turn(stack.url, words, WARM_UP_CYCLES, 60.0)
        warm = await meter.look("warm")
        async with AsyncExitStack() as calls:
            for _ in range(idle_calls):
                await calls.enter_async_context(place_call(CallOptions(stack.url, "bench")))
            cpu_share = await meter.cpu_share(IDLE_S)
            idle = await meter.look(f"{idle_calls} idle calls")
        rested = await meter.look("idle calls closed")
        done, after = 0, rested
        for _ in range(PARTS):
            done += await _talk_in_turn(stack.url, words, cycles // PARTS, minutes * 60 / PARTS)
            before, after = after, await meter.look(f"after {done} calls")
    figures = {
        "warm_mib": warm.rss_mib,
        "per_idle_call_mib": round((idle.rss_mib - warm.rss_mib) / idle_calls, 2),
        "core_percent_per_idle_call": round(100 * cpu_share / idle_calls, 2),
        "calls_made": done,
        "grown_after_calls_mib": round(after.rss_mib - rested.rss_mib, 1),
        "grown_in_last_part_mib": round(after.rss_mib - before.rss_mib, 1),
        "threads_grown": after.threads - warm.threads,
        "tasks_grown": after.tasks - warm.tasks,
        "files_grown": after.files - warm.files,
    }
    return {
        "machine": machine_facts(("duolog", "faster-whisper", "ctranslate2", "coqui-tts", "onnxruntime", "torch")),
        "figures": figures,
        "seen": [asdict(found) for found in meter.seen],
    }


async def _talk_in_turn(url: str, words: Utterance, cycles: int, limit_s: float) -> int:
    """Several callers, each calling again and again; returns how many calls were made before the limit."""
    numbers, done = iter(range(cycles)), 0

    async def call_again(numbers: Iterator[int]) -> None:
        nonlocal done
        for _ in numbers:
            await _call_and_hang_up(url, words)
            done += 1

    with anyio.move_on_after(limit_s):
        async with anyio.create_task_group() as tasks:
            for _ in range(AT_ONCE):
                tasks.start_soon(call_again, numbers)
    return done


async def _call_and_hang_up(url: str, words: Utterance) -> None:
    speaks = anyio.Event()

    def observe(message: Message) -> None:
        if text_field(message, "type") == "duolog.speech.started":
            speaks.set()

    async with place_call(CallOptions(url, "bench"), observe) as call:
        await call.pause(0.2)
        with anyio.move_on_after(0):
            await call.say(words.samples, words.name)
        with anyio.move_on_after(PATIENCE_S) as patience:
            await speaks.wait()
        if patience.cancelled_caught:
            raise CallFailed(f"no answer came within {PATIENCE_S:.0f} s; the server's output is in {LOG}")
        await call.pause(HEAR_S)


def _server_process() -> psutil.Process:
    """The server among this process's own descendants: what holds it on a leash has its words in the command, too."""
    serving = [process for process in psutil.Process().children(recursive=True) if "serve" in process.cmdline()]
    if not serving:
        raise CallFailed("the stack runs no `duolog serve`")
    return max(serving, key=lambda process: process.memory_info().rss)


if __name__ == "__main__":
    typer.run(main)
