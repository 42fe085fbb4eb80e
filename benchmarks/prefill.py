"""`make bench-prefill`: what prefilling while the user speaks is worth, against a real vLLM with the tiny model.

Writes benchmarks/results/prefill.json and prints three tables: time to the first token by length of history, cached
share of the prompt turn by turn, and a final beside other calls whose cold histories are being prefilled. Each
conversation has words of its own at its beginning, so that nothing is cached from the one before.
"""

from __future__ import annotations

import json
import statistics
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated

import anyio
import typer

from benchmarks.stack import ROOT, free_ports, running
from duolog.adapters.openai_llm import OpenAILanguageModel, OpenAIOptions
from duolog.loadtest.results import machine_facts
from duolog.models.manifest import load_manifest
from duolog.models.store import ModelStore
from duolog.ports.llm import (
    ChatMessage,
    GenerationEnd,
    GenerationRequest,
    PromptEnd,
    Role,
    Sampling,
    TextDelta,
    TokenUsage,
)
from duolog.processes import children
from duolog.serving.batcher import Batcher, BatcherOptions, BatcherRequest
from duolog.serving.policies import RequestClass
from duolog.serving.policies.slo import SloPolicy
from duolog.session.prefilling import Prefilling
from duolog.settings import LlmSettings, Profile, Settings

RESULT = ROOT / "benchmarks" / "results" / "prefill.json"
LOG = ROOT / ".duolog" / "logs" / "bench-prefill.log"
HISTORY_TOKENS = "200,600,1500"
TURNS = 6
ANSWER_TOKENS = 40
OTHER_CALLS = 2
PATIENCE_S = 60.0
"""Nothing is given up before: a busy machine gives bad figures, not none."""
PROSE = "One day a small fox went out of the wood to see the wide blue sea, and nobody knew when it would come home. "
SAID = "Well that is a nice story about the fox and now I would like to hear what it saw at the sea in the end please"
WORDS_PER_S = 2.5


@dataclass(frozen=True, slots=True)
class Final:
    first_token_ms: float
    usage: TokenUsage
    text: str = ""

    @property
    def cached_share(self) -> float:
        return self.usage.cached_tokens / max(1, self.usage.prompt_tokens)


@dataclass
class Talk:
    """One call as the engine sees it."""

    batcher: Batcher
    history: tuple[ChatMessage, ...]
    session_id: str = field(default_factory=lambda: f"call-{uuid.uuid4().hex[:8]}")

    def __post_init__(self) -> None:
        self.prefilling = Prefilling(self.batcher, self.session_id, self.open_prompt)

    def open_prompt(self, said: str) -> tuple[ChatMessage, ...]:
        return (*self.history, ChatMessage(Role.USER, said))

    async def prefill_history(self) -> float:
        """Milliseconds until the history is in the cache."""
        started = time.perf_counter()
        self.prefilling.history_changed()
        await self.prefilling.idle.wait()
        return (time.perf_counter() - started) * 1000

    async def speak(self, text: str) -> None:
        """Captions as they become stable, at speaking pace."""
        words = text.split()
        for count in range(1, len(words)):
            await anyio.sleep(1 / WORDS_PER_S)
            self.prefilling.caption(" ".join(words[:count]))

    async def final(self, said: str, max_tokens: int = 2) -> Final:
        messages = self.open_prompt(said)
        started = time.perf_counter()
        ids = self.batcher.prompt_ids(messages, PromptEnd.ANSWER)
        self.prefilling.final(ids)
        sampling = Sampling(temperature=0.0, max_tokens=max_tokens)
        generation = GenerationRequest(f"final-{uuid.uuid4().hex}", messages, sampling, self.session_id, 0, ids)
        first, text = 0.0, ""
        request = BatcherRequest(generation, RequestClass.FINAL, anyio.current_time())
        async with aclosing(self.batcher.generate(request)) as stream:
            async for part in stream:
                if isinstance(part, TextDelta):
                    first = first or (time.perf_counter() - started) * 1000
                    text += part.text
                elif isinstance(part, GenerationEnd):
                    return Final(first, part.usage, text)
        raise RuntimeError("an answer without an end")


def history_of(batcher: Batcher, tokens: int) -> tuple[ChatMessage, ...]:
    """A system prompt and one exchange of about so many tokens, unlike any other from its first words on."""
    head = f"You are {uuid.uuid4().hex}, a friendly voice. Answer in one short sentence."
    story = ""
    while True:
        history = (
            ChatMessage(Role.SYSTEM, head),
            ChatMessage(Role.USER, "Tell me a long story."),
            ChatMessage(Role.ASSISTANT, story + PROSE),
        )
        if len(batcher.prompt_ids(history, PromptEnd.OPEN)) >= tokens:
            return history
        story += PROSE


@asynccontextmanager
async def prefilled(talk: Talk) -> AsyncIterator[None]:
    """The call's prefills run until the block ends."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(talk.prefilling.run)
        yield
        tasks.cancel_scope.cancel()


async def first_token(batcher: Batcher, tokens: int) -> dict[str, object]:
    cold = await Talk(batcher, history_of(batcher, tokens)).final(SAID)
    typer.echo(f"{tokens} tokens of history, cold: {cold.first_token_ms:.0f} ms")
    talk = Talk(batcher, history_of(batcher, tokens))
    async with prefilled(talk):
        prefill_ms = await talk.prefill_history()
        await talk.speak(SAID)
        warm = await talk.final(SAID)
    typer.echo(f"{tokens} tokens of history, prefilled: {warm.first_token_ms:.0f} ms")
    return {
        "history_tokens": tokens,
        "prompt_tokens": warm.usage.prompt_tokens,
        "cold_ms": cold.first_token_ms,
        "prefilled_ms": warm.first_token_ms,
        "cached_tokens": warm.usage.cached_tokens,
        "prefill_total_ms": prefill_ms,
    }


async def turns(batcher: Batcher, *, prefill: bool) -> list[dict[str, object]]:
    """A conversation that begins cold; the user speaks, the bot answers, and the history is warmed meanwhile."""
    talk = Talk(batcher, history_of(batcher, 330))
    rows: list[dict[str, object]] = []
    async with prefilled(talk):
        for number in range(1, TURNS + 1):
            said = f"This is turn {number} of ours. {SAID}"
            if prefill:
                await talk.prefill_history()
                await talk.speak(said)
            final = await talk.final(said, ANSWER_TOKENS)
            rows.append(
                {
                    "turn": number,
                    "prompt_tokens": final.usage.prompt_tokens,
                    "cached_tokens": final.usage.cached_tokens,
                    "cached_share": round(final.cached_share, 3),
                    "first_token_ms": round(final.first_token_ms, 1),
                }
            )
            answer = ChatMessage(Role.ASSISTANT, final.text)
            talk.history = (*talk.history, ChatMessage(Role.USER, said), answer)
    return rows


async def beside_others(batcher: Batcher, engine: OpenAILanguageModel) -> dict[str, float]:
    """A final with a short prompt: alone, beside cold histories through the batcher, beside the same past it."""
    alone = await Talk(batcher, history_of(batcher, 100)).final("Hello there.")
    others = [Talk(batcher, history_of(batcher, 1_500)) for _ in range(OTHER_CALLS)]
    async with anyio.create_task_group() as tasks:
        for other in others:
            tasks.start_soon(other.prefilling.run)
            other.prefilling.history_changed()
        await anyio.sleep(0.25)
        shared = await Talk(batcher, history_of(batcher, 100)).final("Hello there.")
        tasks.cancel_scope.cancel()
    async with anyio.create_task_group() as tasks:
        for other in [Talk(batcher, history_of(batcher, 1_500)) for _ in range(OTHER_CALLS)]:
            tasks.start_soon(_send_whole, engine, other)
        await anyio.sleep(0.25)
        crowded = await Talk(batcher, history_of(batcher, 100)).final("Hello there.")
        tasks.cancel_scope.cancel()
    return {
        "alone_ms": alone.first_token_ms,
        "beside_batched_ms": shared.first_token_ms,
        "beside_whole_ms": crowded.first_token_ms,
    }


async def _send_whole(engine: OpenAILanguageModel, talk: Talk) -> None:
    """A cold history as one request of low priority, past the batcher."""
    ids = engine.prompt_ids(talk.history, PromptEnd.OPEN)
    request = GenerationRequest(talk.session_id, (), Sampling(), talk.session_id, 10, ids, prefill=True)
    async with aclosing(engine.generate(request)) as stream:
        async for _ in stream:
            pass


async def repeated(measure: Callable[[], Awaitable[dict[str, object]]], rounds: int) -> dict[str, object]:
    """Medians, field by field; times in milliseconds, to a tenth."""
    rows = [await measure() for _ in range(rounds)]
    return {name: _median([row[name] for row in rows]) for name in rows[0]}


def _median(values: Sequence[object]) -> float:
    return round(statistics.median(value for value in values if isinstance(value, int | float)), 1)


async def measure(rounds: int, histories: Sequence[int]) -> dict[str, object]:
    port = free_ports(1)[0]
    settings = Settings(profile=Profile.TINY, llm=LlmSettings(port=port))
    store = ModelStore(settings.models_dir.absolute(), load_manifest())
    model = store.path(store.manifest.profile("tiny").llm)
    spec = children.vllm(settings, str(model))
    async with running(spec.command, spec.environment, f"http://127.0.0.1:{port}/health", LOG):
        engine = OpenAILanguageModel(
            OpenAIOptions(
                settings.llm_url,
                settings.llm_model,
                tokenizer_dir=model,
                send_priority=True,
                first_token_timeout_s=PATIENCE_S,
            )
        )
        try:
            await engine.warm_up()
            batcher = Batcher(engine, SloPolicy(), BatcherOptions(PATIENCE_S, PATIENCE_S, PATIENCE_S))
            await first_token(batcher, 200)  # the engine's first long prompt is slower

            async def others() -> dict[str, object]:
                return dict(await beside_others(batcher, engine))

            return {
                "machine": machine_facts(),
                "rounds": rounds,
                "first_token": [await repeated(partial(first_token, batcher, tokens), rounds) for tokens in histories],
                "turns": {
                    "prefilled": await turns(batcher, prefill=True),
                    "not_prefilled": await turns(batcher, prefill=False),
                },
                "final_beside_two_cold_histories": await repeated(others, rounds),
            }
        finally:
            await engine.aclose()


def table(rows: Sequence[dict[str, object]]) -> str:
    names = list(rows[0])
    lines = [names, ["---"] * len(names), *([str(row[name]) for name in names] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main(
    rounds: Annotated[int, typer.Option(min=1, help="Each figure is the median of so many.")] = 5,
    histories: Annotated[str, typer.Option(help="Lengths of history, in tokens.")] = HISTORY_TOKENS,
    out: Annotated[Path, typer.Option(help="JSON file to write.")] = RESULT,
) -> None:
    found = anyio.run(measure, rounds, [int(tokens) for tokens in histories.split(",")])
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    for title, rows in _tables(found):
        typer.echo(f"\n{title}\n{table(rows)}")
    typer.echo(f"\n{out}")


def _tables(found: dict[str, object]) -> list[tuple[str, list[dict[str, object]]]]:
    turns_found = found["turns"]
    first, beside = found["first_token"], found["final_beside_two_cold_histories"]
    if not isinstance(turns_found, dict) or not isinstance(first, list) or not isinstance(beside, dict):
        raise TypeError("measure gave something else")
    return [
        ("First token, ms", first),
        ("Turns with prefill", turns_found["prefilled"]),
        ("Turns without", turns_found["not_prefilled"]),
        ("A final beside two cold histories", [beside]),
    ]


if __name__ == "__main__":
    typer.run(main)
