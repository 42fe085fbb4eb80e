"""`make bench-warmup`: the first turn of a fresh server beside the first turns of later calls, with real engines.

For each shipped persona a call is opened and a message typed at once: time until the end of an answer of one token. A
spoken turn gives the engine its seconds of speech to prefill in; here nothing hides a cold prompt. Once with personas
warmed up, once without (`personas.warm_up: false`). Writes benchmarks/results/warmup.json.
"""

from __future__ import annotations

import json
import statistics
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import anyio
import httpx
import typer
from websockets.asyncio.client import ClientConnection, connect

from benchmarks.stack import ROOT, duolog_stack
from duolog.loadtest.failures import CallFailed
from duolog.loadtest.results import machine_facts

RESULT = ROOT / "benchmarks" / "results" / "warmup.json"
LOG = ROOT / ".duolog" / "logs" / "bench-warmup.log"
FOLDER = ROOT / "configs" / "personas"
LATER_CALLS = 2
WARM_WITHIN_S = 120.0
SETTLE_S = 1.5
"""Between two calls: history prefilled by the one before is no longer in the engine."""


@dataclass(frozen=True, slots=True)
class FirstTurn:
    persona: str
    call: int
    """1: the persona's first since the server started."""
    first_token_ms: float
    prompt_tokens: int
    cached_tokens: int


async def first_turn(url: str, persona: str, call: int) -> FirstTurn:
    """A message typed the moment the call is open."""
    async with connect(f"{url}/v1/realtime?model={quote(persona)}", max_size=None, proxy=None) as wire:
        await until(wire, "session.created")
        said = {"type": "input_text", "text": f"Good morning, this is call {call}."}
        item = {"type": "message", "role": "user", "content": [said]}
        began_at = time.perf_counter()
        await wire.send(json.dumps({"type": "conversation.item.create", "item": item}))
        response = {"output_modalities": ["text"], "max_output_tokens": 1}
        await wire.send(json.dumps({"type": "response.create", "response": response}))
        usage = (await until(wire, "response.done"))["response"]["usage"]
        ms = (time.perf_counter() - began_at) * 1000
    cached = usage["input_token_details"]["cached_tokens"]
    return FirstTurn(persona, call, round(ms, 1), usage["input_tokens"], cached)


async def until(wire: ClientConnection, kind: str) -> dict[str, Any]:
    with anyio.fail_after(30):
        while True:
            event: dict[str, Any] = json.loads(await wire.recv())
            if event["type"] == "error":
                raise CallFailed(f"The server said: {event['error']['message']}")
            if event["type"] == kind:
                return event


async def measure(profile: str, *, warm_up: bool) -> list[FirstTurn]:
    personas = sorted(file.stem for file in FOLDER.glob("*.yaml"))
    more = {
        "DUOLOG__PERSONAS__FOLDER": str(FOLDER),
        "DUOLOG__PERSONAS__DEFAULT": "ava",
        "DUOLOG__PERSONAS__WARM_UP": str(warm_up).lower(),
    }
    turns = []
    async with duolog_stack(profile, log=LOG, more=more) as stack:
        if warm_up:
            await warmed(stack.url, len(personas))
        for call in range(1, LATER_CALLS + 2):
            for persona in personas:
                await anyio.sleep(SETTLE_S)
                turns.append(await first_turn(stack.url, persona, call))
    return turns


async def warmed(url: str, personas: int) -> None:
    """Wait until all personas are. Raises CallFailed."""
    address = url.replace("ws://", "http://") + "/metrics"
    async with httpx.AsyncClient(trust_env=False) as client:
        with anyio.move_on_after(WARM_WITHIN_S):
            while True:
                lines = (await client.get(address)).text.splitlines()
                done = [line for line in lines if line.startswith('duolog_warm_ups_total{outcome="done"')]
                if sum(float(line.split()[-1]) for line in done) >= personas:
                    return
                await anyio.sleep(0.5)
    raise CallFailed(f"The {personas} personas were not warm within {WARM_WITHIN_S:.0f} s; the log is {LOG}.")


def summary(turns: list[FirstTurn]) -> dict[str, float]:
    """Medians over the personas."""
    first = [turn.first_token_ms for turn in turns if turn.call == 1]
    later = [turn.first_token_ms for turn in turns if turn.call > 1]
    cached = [turn.cached_tokens / turn.prompt_tokens for turn in turns if turn.call == 1 and turn.prompt_tokens]
    return {
        "first_call_ms": round(statistics.median(first), 1),
        "worst_first_call_ms": max(first),
        "later_calls_ms": round(statistics.median(later), 1),
        "cached_share_of_first": round(statistics.median(cached), 3) if cached else 0.0,
    }


async def both(profile: str) -> dict[str, object]:
    runs = {name: await measure(profile, warm_up=warm_up) for name, warm_up in (("warm", True), ("cold", False))}
    return {
        "machine": machine_facts(),
        "profile": profile,
        **{
            name: {"summary": summary(turns), "turns": [asdict(turn) for turn in turns]} for name, turns in runs.items()
        },
    }


def main(
    profile: Annotated[str, typer.Option(help="tiny or small.")] = "tiny",
    out: Annotated[Path, typer.Option(help="JSON file to write.")] = RESULT,
) -> None:
    found = anyio.run(both, profile)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    for name in ("warm", "cold"):
        run = found[name]
        if isinstance(run, dict):
            typer.echo(f"{name}: {run['summary']}")


if __name__ == "__main__":
    typer.run(main)
