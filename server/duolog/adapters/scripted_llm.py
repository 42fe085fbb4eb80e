"""A chat model without a model: answers from a script, for tests, load and demonstrations. Deterministic.

It has a prefix cache as vLLM has one: whole blocks of prompt tokens, kept also when the request is aborted.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

import anyio

from duolog.ports.errors import EngineRejected, EngineTimeout, EngineUnavailable
from duolog.ports.llm import (
    ChatMessage,
    FinishReason,
    GenerationEnd,
    GenerationRequest,
    PromptEnd,
    Role,
    TextDelta,
    TokenChance,
    TokenUsage,
)


class Fault(StrEnum):
    """How an answer goes wrong."""

    NONE = "none"
    REFUSE = "refuse"
    """EngineRejected at once."""
    UNREACHABLE = "unreachable"
    """EngineUnavailable at once."""
    STALL = "stall"
    """Never a token."""
    STALL_MIDWAY = "stall_midway"
    """Half of the answer, then nothing more."""
    DIE_MIDWAY = "die_midway"
    """Half of the answer, then EngineUnavailable."""
    TIME_OUT = "time_out"
    """EngineTimeout after the time to the first token."""


@dataclass(frozen=True, slots=True)
class Line:
    """One answer."""

    text: str
    fault: Fault = Fault.NONE


@dataclass(frozen=True, slots=True)
class ScriptedOptions:
    lines: Mapping[str, Line] = field(default_factory=dict)
    """Answer by what the user said last (case and punctuation do not matter); `*` answers everything else. Without
    a line the engine says what it heard."""
    ends: Mapping[str, float] = field(default_factory=dict)
    """How probable the end of the message is after these words, keyed as `lines`; `*` for all others. Without: 0.9."""
    first_token_s: float = 0.03
    token_s: float = 0.015
    prefill_token_s: float = 0.0
    """For each prompt token that is not cached; the prompts of all requests take turns, a step at a time."""
    context_tokens: int = 2048
    remembers: bool = True
    """Keep what was asked, for tests to look at."""


BLOCK_TOKENS = 32
CACHED_BLOCKS = 65_536
LIKELY_END = 0.9
"""That a message ends where no script says how probable it is."""
STEP_TOKENS = 256
"""Prompt tokens computed between two looks at what else is to be done, as vLLM's step budget."""

_TOKEN = re.compile(
    r"\s*(?:[\u3400-\u9fff]|[^\s\u3400-\u9fff]{1,8})\s*$|\s*(?:[\u3400-\u9fff]|[^\s\u3400-\u9fff]{1,8})"
)
_NOT_A_WORD = re.compile(r"[\W_]+")


class ScriptedLanguageModel:
    """Re-entrant. `requests`, `prefills` and `running` let a test see what the engine saw."""

    def __init__(self, options: ScriptedOptions | None = None) -> None:
        self._options = options or ScriptedOptions()
        self._lines = {_normal(said): line for said, line in self._options.lines.items()}
        self._ends = {_normal(said): chance for said, chance in self._options.ends.items()}
        self._blocks: set[int] = set()
        self._step = anyio.Lock()
        self.requests: list[GenerationRequest] = []
        """To be answered."""
        self.prefills: list[GenerationRequest] = []
        self.running = 0
        """Requests being answered now."""

    @property
    def context_tokens(self) -> int:
        return self._options.context_tokens

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[TextDelta | GenerationEnd, None]:
        if self._options.remembers:
            (self.prefills if request.prefill else self.requests).append(request)
        self.running += 1
        try:
            line = Line("") if request.prefill else self._line(request.messages)
            await self._before_the_first_token(line.fault)
            ids = request.prompt_ids or self.prompt_ids(request.messages, PromptEnd.ANSWER)
            usage = TokenUsage(len(ids), await self._prefill(ids))
            pieces = tokens(line.text)
            allowed = pieces[: request.sampling.max_tokens]
            for index, piece in enumerate(allowed):
                await self._before_token(line.fault, index, len(pieces))
                usage = replace(usage, completion_tokens=index + 1)
                yield TextDelta(piece)
            reason = FinishReason.STOP if len(allowed) == len(pieces) else FinishReason.LENGTH
            yield GenerationEnd(reason, usage, self._likely(request))
        finally:
            self.running -= 1

    def prompt_ids(self, messages: tuple[ChatMessage, ...], end: PromptEnd) -> tuple[int, ...]:
        return prompt_ids(messages, end)

    def evict(self) -> None:
        """Forget the prefix cache."""
        self._blocks.clear()

    async def warm_up(self) -> None:
        """Always warm."""

    async def aclose(self) -> None:
        """Holds nothing."""

    async def _prefill(self, ids: tuple[int, ...]) -> int:
        """Compute what is not cached; returns the tokens that were. As in vLLM the last token is always computed."""
        chain = _chain(ids)
        known = 0
        while (known + 1) * BLOCK_TOKENS < len(ids) and chain[known] in self._blocks:
            known += 1
        for start in range(known * BLOCK_TOKENS, len(ids), STEP_TOKENS):
            end = min(start + STEP_TOKENS, len(ids))
            async with self._step:
                await anyio.sleep((end - start) * self._options.prefill_token_s)
            self._keep(chain[: end // BLOCK_TOKENS])
        return known * BLOCK_TOKENS

    def _keep(self, chain: list[int]) -> None:
        if len(self._blocks) > CACHED_BLOCKS:
            self.evict()
        self._blocks.update(chain)

    def _likely(self, request: GenerationRequest) -> tuple[TokenChance, ...]:
        """The end of the message, and a comma with what is left."""
        if not request.likeliest:
            return ()
        said = _last_said(request.messages)
        chance = self._ends.get(_normal(said), self._ends.get("*", LIKELY_END))
        return (TokenChance("", chance), TokenChance(",", 1 - chance))[: request.likeliest]

    def _line(self, messages: tuple[ChatMessage, ...]) -> Line:
        said = _last_said(messages)
        return self._lines.get(_normal(said)) or self._lines.get("*") or Line(_echo(said))

    async def _before_the_first_token(self, fault: Fault) -> None:
        if fault is Fault.REFUSE:
            raise EngineRejected("The scripted language model refuses this request.", engine="llm")
        if fault is Fault.UNREACHABLE:
            raise EngineUnavailable("The scripted language model is not there.", engine="llm")
        if fault is Fault.STALL:
            await anyio.sleep_forever()
        await anyio.sleep(self._options.first_token_s)
        if fault is Fault.TIME_OUT:
            raise EngineTimeout("The scripted language model took too long.", engine="llm")

    async def _before_token(self, fault: Fault, index: int, count: int) -> None:
        if index:
            await anyio.sleep(self._options.token_s)
        if index < count // 2:
            return
        if fault is Fault.STALL_MIDWAY:
            await anyio.sleep_forever()
        if fault is Fault.DIE_MIDWAY:
            raise EngineUnavailable("The scripted language model died in mid-sentence.", engine="llm")


def tokens(text: str) -> list[str]:
    """About as a model would cut it: word by word with the space before, long words in pieces, Chinese by character."""
    pieces, position = [], 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        end = match.end() if match else len(text)
        pieces.append(text[position:end])
        position = end
    return pieces


def prompt_ids(messages: tuple[ChatMessage, ...], end: PromptEnd) -> tuple[int, ...]:
    """Ids of a template with three tokens before each message's text and one after it."""
    ids: list[int] = []
    for message in messages:
        ids += map(_id, ("<start>", message.role.value, "<text>", *tokens(message.content), "<end>"))
    if end is PromptEnd.OPEN:
        return tuple(ids[:-1])
    return (*ids, *map(_id, ("<start>", Role.ASSISTANT.value, "<text>")))


def _chain(ids: tuple[int, ...]) -> list[int]:
    """One hash for each whole block, of it and all blocks before it."""
    chain = [0]
    for start in range(0, len(ids) - BLOCK_TOKENS + 1, BLOCK_TOKENS):
        chain.append(hash((chain[-1], ids[start : start + BLOCK_TOKENS])))
    return chain[1:]


def _id(token: str) -> int:
    return zlib.crc32(token.encode())


def _last_said(messages: tuple[ChatMessage, ...]) -> str:
    return next((message.content for message in reversed(messages) if message.role is Role.USER), "")


def _echo(said: str) -> str:
    return f"You said: {said.strip()} And I heard every word of it." if said.strip() else "I am listening."


def _normal(said: str) -> str:
    return "*" if said.strip() == "*" else _NOT_A_WORD.sub(" ", said).strip().lower()
