"""Asks the chat model, in the middle of a pause, whether the sentence may end here: its chances of the next token.

    the words so far, without the punctuation that ends them ──▶ a prompt of their own, open at its end
    P(full stop, question mark, … or the end of the message) ──▶ turns/endpointing.py

The request is a prefill of a few tokens: no final waits for it, and what it costs decides whether it is made at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import aclosing
from dataclasses import dataclass
from enum import StrEnum
from itertools import count
from statistics import median

import anyio
import structlog

from duolog.ports.errors import EngineError, Overloaded
from duolog.ports.llm import ChatMessage, GenerationEnd, GenerationRequest, PromptEnd, Role, Sampling, TokenChance
from duolog.serving.batcher import Batcher, BatcherRequest
from duolog.serving.policies import RequestClass
from duolog.telemetry import metrics

log = structlog.get_logger(__name__)

LIKELIEST_TOKENS = 20
"""vLLM's default limit; what else might end a sentence is less probable than matters."""
SAMPLING = Sampling(temperature=0.0, max_tokens=1)
MEASURED_WITH = ("Could you tell me what the", "I would like to know how it works", "What is the weather like in Paris")
"""Of different beginnings, so that none finds the words of another in the engine's cache."""
_ENDING = re.compile(r"[\s.,?!…;:。，？！、；：\-–—]+$")
_ENDS = re.compile(r"\s*[.?!。？！]")


class SentenceEnd(StrEnum):
    """Whether the chat model is asked."""

    AUTO = "auto"
    """Where it answers an idle machine within `AskOptions.affordable_s`."""
    ON = "on"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class AskOptions:
    mode: SentenceEnd = SentenceEnd.AUTO
    affordable_s: float = 0.06
    """The median of a few requests, measured when the engine has warmed up. It computes on what the answer needs."""
    patience_s: float = 0.15
    """A later answer is of no use: the pause is decided without it."""
    max_waiting: int = 4
    """Requests that may wait or run at once, of all calls; one more is not begun."""


class SentenceJudge:
    """Shared by all calls; never fails. Without an answer the endpointing goes by what else is known."""

    def __init__(self, batcher: Batcher, options: AskOptions | None = None) -> None:
        self._batcher = batcher
        self._options = options or AskOptions()
        self._waiting = 0
        self._numbers = count(1)
        self.asks = self._options.mode is SentenceEnd.ON
        """False: `judge` is of no use."""

    async def judge(self, text: str) -> float | None:
        """Probability 0 to 1 that a sentence that began so ends here; None where nobody can say in time."""
        if self._waiting >= self._options.max_waiting:
            metrics.DROPS.labels("sentence_end", "busy").inc()
            return None
        self._waiting += 1
        try:
            with anyio.move_on_after(self._options.patience_s):
                return await self._ask(text)
            metrics.DROPS.labels("sentence_end", "late").inc()
        except (EngineError, Overloaded) as error:
            metrics.DROPS.labels("sentence_end", "failed").inc()
            log.info("the chat model was not asked for the sentence's end", error=str(error))
        finally:
            self._waiting -= 1
        return None

    async def measure(self) -> None:
        """Find out what the question costs, and decide whether it is asked. Called when the engine has warmed up."""
        if self._options.mode is not SentenceEnd.AUTO:
            return
        costs = [await self._cost_s(text) for text in MEASURED_WITH]
        known = [cost for cost in costs if cost is not None]
        self.asks = len(known) == len(costs) and median(known) <= self._options.affordable_s
        took_ms = [round(cost * 1000) for cost in known]
        log.info("cost of asking for the sentence's end", took_ms=took_ms, asks=self.asks)

    async def _cost_s(self, text: str) -> float | None:
        """None where there was no answer."""
        began = anyio.current_time()
        try:
            with anyio.move_on_after(1.0):
                if await self._ask(text) is not None:
                    return anyio.current_time() - began
        except (EngineError, Overloaded):
            return None
        return None

    async def _ask(self, text: str) -> float | None:
        messages = (ChatMessage(Role.USER, bare_words(text)),)
        ids = self._batcher.prompt_ids(messages, PromptEnd.OPEN) if messages[0].content else ()
        if not ids:
            return None
        generation = GenerationRequest(
            request_id=f"sentence_{next(self._numbers)}",
            messages=messages,
            sampling=SAMPLING,
            prompt_ids=ids,
            prefill=True,
            likeliest=LIKELIEST_TOKENS,
        )
        deadline = anyio.current_time() + self._options.patience_s
        async with aclosing(
            self._batcher.generate(BatcherRequest(generation, RequestClass.PARTIAL, deadline))
        ) as stream:
            async for part in stream:
                if isinstance(part, GenerationEnd):
                    return chance_of_end(part.likely)
        return None


def bare_words(text: str) -> str:
    """Without what the recogniser ended it with: it hears the end of a sentence where there is none."""
    return _ENDING.sub("", text)


def chance_of_end(likely: Iterable[TokenChance]) -> float | None:
    """The chances of what ends a sentence, together; None where there are none."""
    chances = list(likely)
    if not chances:
        return None
    return min(1.0, sum(one.probability for one in chances if not one.text or _ENDS.match(one.text)))
