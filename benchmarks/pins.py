"""`make bench-pins`: what keeping sessions warm is worth where twice as many call as fit; what a dead replica costs.

Writes benchmarks/results/pins.json, one part for each run, so that they may be run one after another:

    python -m benchmarks.pins lru      the cache alone, which evicts what was used longest ago
    python -m benchmarks.pins kept     with KV pins: half of the cache for kept sessions
    python -m benchmarks.pins kill     two replicas, one is killed

Callers take turns with gaps from a log-normal distribution; the turns are played in that order, each when the one
before has ended and touches that were due are done. The share counts cached tokens over the prompts of all returning
turns, and what touches had to compute is added to what was asked for.
"""

from __future__ import annotations

import json
import math
import os
import random
import signal
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import anyio
import httpx
import typer
from anyio.abc import Process

from benchmarks.stack import ROOT, free_ports
from duolog.adapters.kv_events import KvEventsOptions, ZmqKvEvents
from duolog.adapters.openai_llm import Dialect, OpenAILanguageModel, OpenAIOptions
from duolog.adapters.replicated_llm import ReplicatedLanguageModel
from duolog.adapters.vllm_monitor import VllmMonitor
from duolog.building import replica_id
from duolog.loadtest.failures import CallFailed
from duolog.loadtest.results import machine_facts
from duolog.models.manifest import load_manifest
from duolog.models.store import ModelStore
from duolog.ports.llm import (
    ChatMessage,
    GenerationEnd,
    GenerationRequest,
    LanguageModel,
    PromptEnd,
    Sampling,
    TextDelta,
    TokenUsage,
)
from duolog.processes import children
from duolog.serving.batcher import Batcher, BatcherOptions, BatcherRequest, RequestClass
from duolog.serving.pins.keep_warm import KeepWarmOptions
from duolog.serving.pins.keeper import PinKeeper, PinSources
from duolog.serving.pins.observed_engine import ObservedEngine
from duolog.serving.pins.placement import TOUCH_ID, PinnedPlacement, PinOptions
from duolog.serving.policies import DirectPolicy
from duolog.settings import LlmSettings, Profile, Settings, kv_event_endpoints

RESULT = ROOT / "benchmarks" / "results" / "pins.json"
LOGS = ROOT / ".duolog" / "logs"
BLOCK_TOKENS = 32
HISTORY_TOKENS = 320
TURN_TOKENS = 16
PATIENCE_S = 60.0
READY_S = 240.0
NEVER_S = 1e9
"""Turns are played slower than callers would take them, so that no session may count as silent."""
KILL_SESSIONS = 8


@dataclass
class Counted:
    """The engine, with the usage of turns and touches kept apart."""

    engine: LanguageModel
    touches: int = 0
    touch_computed_tokens: int = 0

    @property
    def context_tokens(self) -> int:
        return self.engine.context_tokens

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[TextDelta | GenerationEnd, None]:
        async with aclosing(self.engine.generate(request)) as stream:
            async for value in stream:
                if isinstance(value, GenerationEnd) and request.request_id.startswith(TOUCH_ID):
                    self.touches += 1
                    self.touch_computed_tokens += value.usage.prompt_tokens - value.usage.cached_tokens
                yield value

    def prompt_ids(self, messages: tuple[ChatMessage, ...], end: PromptEnd) -> tuple[int, ...]:
        return self.engine.prompt_ids(messages, end)

    async def warm_up(self) -> None:
        await self.engine.warm_up()

    async def aclose(self) -> None:
        await self.engine.aclose()


@dataclass
class House:
    """One server's way to the model."""

    engine: Counted
    pins: PinnedPlacement
    batcher: Batcher
    processes: list[Process]
    random: random.Random = field(default_factory=lambda: random.Random(7))

    async def turn(self, session: int) -> tuple[TokenUsage, float]:
        """The same history with something new said. Usage, and seconds to the first token."""
        said = tuple(self.random.randrange(1_000, 40_000) for _ in range(TURN_TOKENS))
        request = GenerationRequest(
            f"turn-{session}-{time.monotonic_ns()}",
            (),
            Sampling(temperature=0.0, max_tokens=2),
            f"s{session}",
            prompt_ids=(*history(session), *said),
        )
        started, first = time.perf_counter(), math.nan
        async with aclosing(self.batcher.generate(BatcherRequest(request, RequestClass.FINAL, 0.0))) as stream:
            async for value in stream:
                if isinstance(value, TextDelta) and math.isnan(first):
                    first = time.perf_counter() - started
                if isinstance(value, GenerationEnd):
                    return value.usage, time.perf_counter() - started if math.isnan(first) else first
        raise CallFailed("An answer had no end.")

    async def settle(self) -> None:
        """The silence between two turns: until nothing is due, at most a second."""
        await anyio.sleep(0.02)
        with anyio.move_on_after(1):
            while any(replica.kept.due() for replica in self.pins.replicas.values()):  # noqa: ASYNC110 - no event for it
                await anyio.sleep(0.02)


def history(session: int) -> tuple[int, ...]:
    words = random.Random(session)
    return tuple(words.randrange(1_000, 40_000) for _ in range(HISTORY_TOKENS))


def turn_order(sessions: int, returns: int, gap_cv: float, seed: int = 1) -> list[int]:
    """Who speaks, in order: the first turn of each, then all that fall into the time of `returns` mean gaps."""
    source, sigma = random.Random(seed), math.sqrt(math.log(1 + gap_cv**2))
    due: list[tuple[float, int]] = []
    for session in range(sessions):
        at = source.random()
        while at < 1 + returns:
            due.append((at, session))
            at += source.lognormvariate(-(sigma**2) / 2, sigma)
    return [session for _, session in sorted(due)]


@asynccontextmanager
async def house(replicas: int, cache_blocks: int, budget_share: float) -> AsyncIterator[House]:
    flags = (f"--num-gpu-blocks-override={cache_blocks}",)
    llm = LlmSettings(port=free_ports(1)[0], replicas=replicas, extra_flags=flags, max_model_len=1_024)
    settings = Settings(profile=Profile.TINY, llm=llm)
    store = ModelStore(settings.models_dir.absolute(), load_manifest())
    folder = store.path(store.manifest.profile("tiny").llm)
    async with AsyncExitStack() as stack:
        processes = [await stack.enter_async_context(vllm(settings, str(folder), number)) for number in range(replicas)]
        addresses = {replica_id(url): url for url in settings.llm_urls}
        for url in addresses.values():
            await until_ready(url)
        engine = Counted(ReplicatedLanguageModel({name: model(settings, url) for name, url in addresses.items()}))
        stack.push_async_callback(engine.aclose)
        pins = PinnedPlacement(
            tuple(addresses), PinOptions(BLOCK_TOKENS, keep_warm=KeepWarmOptions(budget_share, NEVER_S))
        )
        batcher = Batcher(
            ObservedEngine(engine, pins), DirectPolicy(), BatcherOptions(PATIENCE_S, PATIENCE_S, PATIENCE_S), pins
        )
        events = {
            name: ZmqKvEvents(KvEventsOptions(*kv_event_endpoints(settings, port)))
            for name, port in zip(addresses, settings.llm_ports, strict=True)
        }
        monitor = VllmMonitor(addresses)
        stack.push_async_callback(monitor.aclose)
        tasks = await stack.enter_async_context(anyio.create_task_group())
        await engine.warm_up()
        if isinstance(engine.engine, ReplicatedLanguageModel):
            engine.engine.listen(pins.set_alive)
            tasks.start_soon(engine.engine.watch)
        tasks.start_soon(PinKeeper(pins, batcher, PinSources(events, monitor)).run)
        await anyio.sleep(3)  # until the size of the caches is known
        yield House(engine, pins, batcher, processes)
        tasks.cancel_scope.cancel()


def model(settings: Settings, url: str) -> OpenAILanguageModel:
    return OpenAILanguageModel(
        OpenAIOptions(url, settings.llm_model, Dialect.VLLM, send_priority=True, first_token_timeout_s=PATIENCE_S)
    )


@asynccontextmanager
async def vllm(settings: Settings, folder: str, replica: int) -> AsyncIterator[Process]:
    spec = children.vllm(settings, folder, replica)
    LOGS.mkdir(parents=True, exist_ok=True)
    with (LOGS / f"bench-pins-{replica}.log").open("wb") as output:
        process = await anyio.open_process(
            spec.command,
            stdin=None,
            stdout=output,
            stderr=output,
            env={**os.environ, **spec.environment},
            start_new_session=True,
        )
    try:
        yield process
    finally:
        kill(process)
        with anyio.CancelScope(shield=True):
            await process.wait()


def kill(process: Process) -> None:
    """With everything it started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


async def until_ready(url: str) -> None:
    async with httpx.AsyncClient(timeout=2, trust_env=False) as client:
        with anyio.move_on_after(READY_S):
            while True:
                try:
                    if (await client.get(f"{url.removesuffix('/v1')}/health")).is_success:
                        return
                except httpx.TransportError:
                    pass
                await anyio.sleep(0.5)
    raise CallFailed(f"vLLM at {url} was not ready within {READY_S:.0f} s; its output is in {LOGS}.")


async def measure_share(sessions: int, returns: int, gap_cv: float, budget_share: float) -> dict[str, object]:
    """The cached share of returning turns, over a cache that holds half of the sessions."""
    blocks = math.ceil(sessions / 2 * (HISTORY_TOKENS + TURN_TOKENS) / BLOCK_TOKENS)
    async with house(1, blocks, budget_share) as ours:
        seen: set[int] = set()
        prompt = cached = turns = 0
        waits: list[float] = []
        for session in turn_order(sessions, returns, gap_cv):
            usage, first_token_s = await ours.turn(session)
            if session in seen:
                prompt, cached, turns = prompt + usage.prompt_tokens, cached + usage.cached_tokens, turns + 1
                waits.append(first_token_s)
            seen.add(session)
            await ours.settle()
        waits.sort()
        touched = ours.engine.touch_computed_tokens
        return {
            "sessions": sessions,
            "cache_blocks": blocks,
            "gap_cv": gap_cv,
            "returning_turns": turns,
            "prompt_tokens": prompt,
            "cached_tokens": cached,
            "touches": ours.engine.touches,
            "touch_computed_tokens": touched,
            "cached_share": round(cached / (prompt + touched), 4),
            "first_token_ms": {"p50": round(1000 * waits[len(waits) // 2]), "mean": round(1000 * sum(waits) / turns)},
        }


async def measure_kill() -> dict[str, object]:
    """Seconds to the first token of each session's next turn, after its replica was killed."""
    async with house(2, 400, 0.5) as ours:
        for session in range(KILL_SESSIONS):
            await ours.turn(session)
        await anyio.sleep(1)
        first = next(iter(ours.pins.replicas))
        lost = [number for number in range(KILL_SESSIONS) if ours.pins.sessions[f"s{number}"].replica == first]
        kill(ours.processes[0])
        answered = [(await ours.turn(session))[1] for session in lost]
        return {
            "sessions": KILL_SESSIONS,
            "of_the_dead_replica": len(lost),
            "answered": len(answered),
            "first_token_s": [round(one, 3) for one in answered],
            "worst_s": round(max(answered), 3),
        }


def main(
    what: Annotated[str, typer.Argument(help="lru, kept or kill.")],
    sessions: Annotated[int, typer.Option(help="Twice as many as the cache holds.")] = 200,
    returns: Annotated[int, typer.Option(help="Returning turns of each, in the mean.")] = 2,
    gap_cv: Annotated[float, typer.Option(help="How uneven the gaps between a caller's turns are.")] = 0.5,
    out: Annotated[Path, typer.Option(help="JSON file to write.")] = RESULT,
) -> None:
    if what == "kill":
        found = anyio.run(measure_kill)
    elif what in ("lru", "kept"):
        found = anyio.run(measure_share, sessions, returns, gap_cv, 0.5 if what == "kept" else 0.0)
    else:
        raise typer.BadParameter("lru, kept or kill")
    results = json.loads(out.read_text(encoding="utf-8")) if out.exists() else {}
    results |= {"machine": machine_facts(), what: found}
    if {"lru", "kept"} <= results.keys():
        results["gain"] = round(results["kept"]["cached_share"] / max(1e-6, results["lru"]["cached_share"]) - 1, 3)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    typer.echo(json.dumps({what: found, "gain": results.get("gain")}, indent=2))


if __name__ == "__main__":
    typer.run(main)
