"""A chat model without a model: answers from a script, for tests, load and demonstrations. Deterministic."""

from __future__ import annotations

import re
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
    Role,
    TextDelta,
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
    first_token_s: float = 0.03
    token_s: float = 0.015
    context_tokens: int = 2048


_TOKEN = re.compile(
    r"\s*(?:[\u3400-\u9fff]|[^\s\u3400-\u9fff]{1,8})\s*$|\s*(?:[\u3400-\u9fff]|[^\s\u3400-\u9fff]{1,8})"
)
_NOT_A_WORD = re.compile(r"[\W_]+")


class ScriptedLanguageModel:
    """Re-entrant. `requests` and `running` let a test see what the engine saw."""

    def __init__(self, options: ScriptedOptions | None = None) -> None:
        self._options = options or ScriptedOptions()
        self._lines = {_normal(said): line for said, line in self._options.lines.items()}
        self.requests: list[GenerationRequest] = []
        self.running = 0
        """Requests being answered now."""

    @property
    def context_tokens(self) -> int:
        return self._options.context_tokens

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[TextDelta | GenerationEnd, None]:
        self.requests.append(request)
        self.running += 1
        try:
            line = self._line(request.messages)
            await self._before_the_first_token(line.fault)
            usage = TokenUsage(prompt_tokens=prompt_tokens(request.messages))
            pieces = tokens(line.text)
            allowed = pieces[: request.sampling.max_tokens]
            for index, piece in enumerate(allowed):
                await self._before_token(line.fault, index, len(pieces))
                usage = replace(usage, completion_tokens=index + 1)
                yield TextDelta(piece)
            yield GenerationEnd(FinishReason.STOP if len(allowed) == len(pieces) else FinishReason.LENGTH, usage)
        finally:
            self.running -= 1

    async def count_tokens(self, messages: tuple[ChatMessage, ...]) -> int:
        return prompt_tokens(messages)

    async def warm_up(self) -> None:
        """Always warm."""

    async def aclose(self) -> None:
        """Holds nothing."""

    def _line(self, messages: tuple[ChatMessage, ...]) -> Line:
        said = next((message.content for message in reversed(messages) if message.role is Role.USER), "")
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


def prompt_tokens(messages: tuple[ChatMessage, ...]) -> int:
    """Tokens of the contents, four for each message's frame, four for the generation prompt."""
    return sum(len(tokens(message.content)) + 4 for message in messages) + 4


def _echo(said: str) -> str:
    return f"You said: {said.strip()} And I heard every word of it." if said.strip() else "I am listening."


def _normal(said: str) -> str:
    return "*" if said.strip() == "*" else _NOT_A_WORD.sub(" ", said).strip().lower()
