"""What an OpenAI-compatible server sends, understood: chunks of a stream, errors, special tokens in text. No I/O."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

import httpx
from httpx_sse import SSEError

from duolog.ports.errors import EngineError, EngineProtocolError, EngineRejected, EngineTimeout, EngineUnavailable
from duolog.ports.llm import FinishReason, TokenChance, TokenUsage

SPECIAL_TOKENS = ("<|im_end|>", "<|im_start|>", "<|endoftext|>", "<|eot_id|>", "<|end|>", "</s>", "<end_of_turn>")
"""Ends of a turn that leak into the text where a model's configuration names the wrong end token."""

_BY_EXCEPTION: tuple[tuple[type[Exception], type[EngineError], str], ...] = (
    (SSEError, EngineProtocolError, "answered something that is not an event stream"),
    (httpx.ConnectTimeout, EngineUnavailable, "did not accept the connection in time"),
    (httpx.PoolTimeout, EngineUnavailable, "has as many requests as are allowed at once"),
    (httpx.TimeoutException, EngineTimeout, "did not answer in time"),
    (httpx.ConnectError, EngineUnavailable, "refused the connection; is it running?"),
    (httpx.RemoteProtocolError, EngineUnavailable, "closed the connection in the middle of the answer"),
    (httpx.DecodingError, EngineProtocolError, "sent bytes that cannot be decoded"),
    (httpx.TransportError, EngineUnavailable, "broke the connection"),
)
_BY_STATUS: tuple[tuple[range, type[EngineError], str], ...] = (
    (range(408, 409), EngineTimeout, "gave up waiting"),
    (range(504, 505), EngineTimeout, "gave up waiting"),
    (range(425, 426), EngineUnavailable, "is not ready"),
    (range(429, 430), EngineUnavailable, "has too many requests"),
    (range(400, 500), EngineRejected, "refused the request"),
    (range(500, 600), EngineUnavailable, "failed"),
)
"""Both tables: the first row that fits."""


def error_of_exception(error: Exception, server: str) -> EngineError:
    for theirs, ours, what in _BY_EXCEPTION:
        if isinstance(error, theirs):
            return ours(f"The language model at {server} {what}.", engine="llm")
    return EngineProtocolError(f"The language model at {server} answered something strange: {error}.", engine="llm")


def error_of_status(status: int, message: str, server: str) -> EngineError:
    detail = f": {message[:300]}" if message else ""
    for statuses, ours, what in _BY_STATUS:
        if status in statuses:
            return ours(f"The language model at {server} {what} (status {status}){detail}.", engine="llm")
    return EngineProtocolError(f"The language model at {server} answered with status {status}{detail}.", engine="llm")


def message_of_body(body: bytes) -> str:
    """The server's own words in an error body, as far as they can be found."""
    try:
        read = json.loads(body)
    except ValueError:
        return body.decode("utf-8", "replace").strip()
    error = read.get("error", read) if isinstance(read, dict) else {}
    if isinstance(error, dict):
        return str(error.get("message") or error.get("detail") or "")
    return str(error)


@dataclass(frozen=True, slots=True)
class Chunk:
    """One event of the stream, of messages (`delta`) or of a completion (`text`)."""

    text: str = ""
    finish: FinishReason | None = None
    usage: TokenUsage | None = None
    likely: tuple[TokenChance, ...] = ()


_FINISH = {"stop": FinishReason.STOP, "length": FinishReason.LENGTH, "abort": FinishReason.ABORTED}


def parse_chunk(text: str, server: str) -> Chunk:
    """Raises EngineProtocolError where it is no chunk, and the error a server sends inside a 200 stream."""
    try:
        read = json.loads(text)
        if "error" in read:
            raise _error_in_stream(read["error"], server)
        choices = read.get("choices") or [{}]
        delta = choices[0].get("delta") or {}
        reason = choices[0].get("finish_reason")
        return Chunk(
            text=str(delta.get("content") or choices[0].get("text") or ""),
            finish=None if reason is None else _FINISH.get(reason, FinishReason.STOP),
            usage=_usage(read.get("usage")),
            likely=_likely(choices[0].get("logprobs")),
        )
    except (ValueError, TypeError, AttributeError, KeyError, IndexError) as error:
        raise EngineProtocolError(
            f"The language model at {server} sent a piece of an answer that cannot be understood.", engine="llm"
        ) from error


def _error_in_stream(error: Any, server: str) -> EngineError:
    fields = error if isinstance(error, dict) else {"message": error}
    code = str(fields.get("code") or 500)
    return error_of_status(int(code) if code.isdecimal() else 500, str(fields.get("message") or ""), server)


def _usage(usage: Any) -> TokenUsage | None:
    if not usage:
        return None
    details = usage.get("prompt_tokens_details") or {}
    return TokenUsage(
        prompt_tokens=int(usage.get("prompt_tokens") or 0),
        cached_tokens=int(details.get("cached_tokens") or 0),
        completion_tokens=int(usage.get("completion_tokens") or 0),
    )


def _likely(logprobs: Any) -> tuple[TokenChance, ...]:
    """Of a completion's first token."""
    if not logprobs or not (first := logprobs.get("top_logprobs")):
        return ()
    return tuple(
        TokenChance("" if text in SPECIAL_TOKENS else text, math.exp(logprob)) for text, logprob in first[0].items()
    )


class SpecialTokenGuard:
    """Lets text through up to the first special token; holds back only what may be the beginning of one.

    As `stop` strings the engine would hold back every answer's last ten characters: half a phrase of delay.
    """

    def __init__(self, tokens: tuple[str, ...] = SPECIAL_TOKENS) -> None:
        self._tokens = tokens
        self._held = ""
        self.ended = False

    def feed(self, text: str) -> str:
        """What may be said now."""
        if self.ended:
            return ""
        text = self._held + text
        self._held = ""
        found = [position for token in self._tokens if (position := text.find(token)) >= 0]
        if found:
            self.ended = True
            return text[: min(found)]
        start = self._possible_start(text)
        text, self._held = text[:start], text[start:]
        return text

    def finish(self) -> str:
        """What was held back and is no special token after all."""
        held, self._held = self._held, ""
        return held

    def _possible_start(self, text: str) -> int:
        longest = max(map(len, self._tokens))
        for start in range(max(0, len(text) - longest + 1), len(text)):
            if any(token.startswith(text[start:]) for token in self._tokens):
                return start
        return len(text)
