"""A chat model behind the OpenAI HTTP interface: vLLM first of all, and any other server that speaks it.

With the model's tokenizer at hand, vLLM is sent token ids (`/v1/completions`), so that it finds in its prefix cache
exactly what was prefilled; every other server is sent messages (`/v1/chat/completions`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import httpx
from httpx_sse import EventSource, ServerSentEvent, SSEError

from duolog.adapters.chat_tokenizer import ChatTokenizer
from duolog.adapters.openai_stream import (
    Chunk,
    SpecialTokenGuard,
    error_of_exception,
    error_of_status,
    message_of_body,
    parse_chunk,
)
from duolog.ports.errors import EngineError, EngineProtocolError, EngineRejected, EngineTimeout, EngineUnavailable
from duolog.ports.llm import (
    ChatMessage,
    FinishReason,
    GenerationEnd,
    GenerationRequest,
    PromptEnd,
    Role,
    Sampling,
    TextDelta,
    TokenChance,
    TokenUsage,
)


class Dialect(StrEnum):
    """What the server understands beyond OpenAI's own fields."""

    OPENAI = "openai"
    VLLM = "vllm"
    """Also `repetition_penalty`, token ids as prompt, `/tokenize`, and the context length in `/v1/models`."""


@dataclass(frozen=True, slots=True)
class OpenAIOptions:
    base_url: str
    """With the version: `http://127.0.0.1:8001/v1`."""
    model: str
    dialect: Dialect | None = None
    """None: as the server describes its models; plain OpenAI until `warm_up` has asked."""
    api_key: str | None = None
    context_tokens: int | None = None
    """None: as the server says; needed where it does not."""
    tokenizer_dir: Path | None = None
    """Folder of the model's tokenizer and chat template. None, or not vLLM: prompts are sent as messages."""
    send_priority: bool = False
    """Only for vLLM with `--scheduling-policy priority`; without it a priority is refused."""
    connect_timeout_s: float = 2.0
    first_token_timeout_s: float = 15.0
    inter_token_timeout_s: float = 10.0
    max_connections: int = 64
    """Requests at once; more wait for one to end, at most `first_token_timeout_s`."""


_CLOSE_S = 2.0
"""Closing a stream, which makes vLLM abort the request, may take so long even where the caller is cancelled."""
_TRAILER_S = 1.0
"""The usage follows the last word within this, or goes unreported."""
_ERROR_BODY_BYTES = 16_384
_GREETING = (ChatMessage(Role.USER, "Hi"),)


@dataclass(frozen=True, slots=True)
class _Patience:
    """Until when the next piece must have come."""

    limit_s: float
    until: float

    @classmethod
    def starting(cls, limit_s: float) -> _Patience:
        return cls(limit_s, anyio.current_time() + limit_s)

    def left_s(self) -> float:
        return self.until - anyio.current_time()


class OpenAILanguageModel:
    """Re-entrant. Made in the composition root; `warm_up` before the first request."""

    def __init__(self, options: OpenAIOptions) -> None:
        self._options = options
        self._server = urlsplit(options.base_url).netloc
        self._context_tokens = options.context_tokens
        self._dialect = options.dialect
        self._tokenizer: ChatTokenizer | None = None
        self._warm = False
        """Set once it is known to give the server's own ids."""
        self._end_of_turn: tuple[int, ...] = ()
        self._client = httpx.AsyncClient(
            headers={"Authorization": f"Bearer {options.api_key}"} if options.api_key else {},
            timeout=httpx.Timeout(
                connect=options.connect_timeout_s, read=None, write=10.0, pool=options.first_token_timeout_s
            ),
            limits=httpx.Limits(
                max_connections=options.max_connections, max_keepalive_connections=16, keepalive_expiry=60
            ),
            trust_env=False,
            verify=options.base_url.startswith("https:"),  # without TLS no certificates need to be loaded
        )

    @property
    def context_tokens(self) -> int:
        if self._context_tokens is None:
            raise EngineUnavailable(f"The language model at {self._server} is not warm yet.", engine="llm")
        return self._context_tokens

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[TextDelta | GenerationEnd, None]:
        patience = _Patience.starting(self._options.first_token_timeout_s)
        response = await self._open(request, patience)
        guard = SpecialTokenGuard()
        usage, finish, likely = TokenUsage(), None, tuple[TokenChance, ...]()
        try:
            async with aclosing(EventSource(response).aiter_sse()) as events:
                while (chunk := await self._next_chunk(events, patience, optional=finish is not None)) is not None:
                    usage, finish, likely = chunk.usage or usage, chunk.finish or finish, chunk.likely or likely
                    if (text := guard.feed(chunk.text)) and not request.prefill:
                        yield TextDelta(text)
                    if guard.ended:
                        break
                    if chunk.text or finish:
                        patience = _Patience.starting(_TRAILER_S if finish else self._options.inter_token_timeout_s)
        finally:
            await self._close(response)
        if (rest := guard.finish()) and not request.prefill:
            yield TextDelta(rest)
        yield GenerationEnd(FinishReason.STOP if guard.ended else finish or FinishReason.STOP, usage, likely)

    def prompt_ids(self, messages: tuple[ChatMessage, ...], end: PromptEnd) -> tuple[int, ...]:
        return () if self._tokenizer is None else self._tokenizer.prompt_ids(messages, end)

    async def warm_up(self) -> None:
        """Learn the context length, load the tokenizer, and generate a little; the first request is the slowest.

        Called again it only asks whether the server still lists the model, and warms it up anew where it was gone.
        """
        was_warm, self._warm = self._warm, False
        await self._read_model_card()
        if was_warm:
            self._warm = True
            return
        if self._tokenizer is None and self._options.tokenizer_dir is not None and self._dialect is Dialect.VLLM:
            await self._load_tokenizer(self._options.tokenizer_dir)
        ids = self.prompt_ids(_GREETING, PromptEnd.ANSWER)
        request = GenerationRequest("warm-up", _GREETING, Sampling(temperature=0.0, max_tokens=4), prompt_ids=ids)
        async with aclosing(self.generate(request)) as stream:
            async for _ in stream:
                pass
        self._warm = True

    async def aclose(self) -> None:
        with anyio.move_on_after(_CLOSE_S, shield=True):
            await self._client.aclose()

    async def _open(self, request: GenerationRequest, patience: _Patience) -> httpx.Response:
        """Send the request; the response's head is there. Raises EngineError."""
        headers = {"X-Request-Id": request.request_id, "Accept": "text/event-stream"}
        if request.session_id:
            headers["X-Session-ID"] = request.session_id
        path = "completions" if request.prompt_ids else "chat/completions"
        message = self._client.build_request(
            "POST", f"{self._options.base_url}/{path}", json=self._body(request), headers=headers
        )
        response = None
        try:
            with anyio.move_on_after(patience.left_s()):
                response = await self._client.send(message, stream=True)
        except (httpx.HTTPError, OSError) as error:
            raise error_of_exception(error, self._server) from error
        if response is None:
            raise self._silent(patience)
        if response.status_code != httpx.codes.OK:
            raise await self._refusal(response)
        return response

    def _body(self, request: GenerationRequest) -> dict[str, Any]:
        sampling = request.sampling
        body: dict[str, Any] = {
            "model": self._options.model,
            "stream": True,
            "stream_options": {"include_usage": True},
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "max_tokens": 1 if request.prefill else sampling.max_tokens,
            **self._prompt(request),
        }
        if sampling.stop:
            body["stop"] = list(sampling.stop)
        if sampling.seed is not None:
            body["seed"] = sampling.seed
        if request.likeliest:
            body["logprobs"] = request.likeliest
        if self._dialect is Dialect.VLLM:
            body["repetition_penalty"] = sampling.repetition_penalty
            body["min_p"] = sampling.min_p
        if self._options.send_priority:
            body["priority"] = request.priority
        return body

    def _prompt(self, request: GenerationRequest) -> dict[str, Any]:
        if request.prompt_ids:
            return {"prompt": list(request.prompt_ids), "stop_token_ids": list(self._end_of_turn)}
        return {"messages": _chat(request.messages)}

    async def _next_chunk(
        self, events: AsyncGenerator[ServerSentEvent, None], patience: _Patience, *, optional: bool
    ) -> Chunk | None:
        """The next chunk; None at the end of the answer. `optional`: the answer is complete, what follows may fail."""
        event = None
        try:
            with anyio.move_on_after(patience.left_s()) as waiting:
                event = await anext(events, None)
        except (httpx.HTTPError, SSEError, OSError, UnicodeError) as error:
            if optional:
                return None
            raise error_of_exception(error, self._server) from error
        if event is not None and event.data != "[DONE]":
            return parse_chunk(event.data, self._server)
        if optional or event is not None:
            return None
        if waiting.cancelled_caught:
            raise self._silent(patience)
        raise EngineUnavailable(
            f"The language model at {self._server} ended its answer in the middle of a sentence.", engine="llm"
        )

    async def _close(self, response: httpx.Response) -> None:
        """Also when cancelled: only a closed stream makes the engine stop."""
        with anyio.move_on_after(_CLOSE_S, shield=True):
            await response.aclose()

    async def _refusal(self, response: httpx.Response) -> EngineError:
        body = b""
        try:
            with anyio.move_on_after(_CLOSE_S):
                async for piece in response.aiter_bytes():
                    body += piece
                    if len(body) > _ERROR_BODY_BYTES:
                        break
        except httpx.HTTPError:
            body = b""
        finally:
            await self._close(response)
        return error_of_status(response.status_code, message_of_body(body), self._server)

    async def _read_model_card(self) -> None:
        answer = await self._json("GET", f"{self._options.base_url}/models")
        cards = answer.get("data") if isinstance(answer, dict) else None
        if not isinstance(cards, list) or not all(isinstance(card, dict) for card in cards):
            raise EngineProtocolError(f"The server at {self._server} lists no models.", engine="llm")
        served = {str(card.get("id")): card for card in cards}
        card = served.get(self._options.model)
        if card is None:
            raise EngineRejected(
                f"The server at {self._server} has no model `{self._options.model}`; set llm.model to one of"
                f" {sorted(served)[:5]}.",
                engine="llm",
            )
        length = self._options.context_tokens or card.get("max_model_len")
        if not isinstance(length, int):
            raise EngineRejected(
                f"The server at {self._server} does not say how long its context is; set the context length in the"
                " configuration.",
                engine="llm",
            )
        self._context_tokens = length
        if self._options.dialect is None:
            self._dialect = Dialect.VLLM if card.get("owned_by") == "vllm" else Dialect.OPENAI

    async def _load_tokenizer(self, folder: Path) -> None:
        """Ids that mean other tokens to the server would be nonsense to its model: compare before any is sent."""
        tokenizer = await anyio.to_thread.run_sync(ChatTokenizer, folder)
        body = {"model": self._options.model, "messages": _chat(_GREETING), "add_generation_prompt": True}
        answer = await self._json("POST", f"{self._root()}/tokenize", body)
        if not isinstance(answer, dict) or not isinstance(theirs := answer.get("tokens"), list):
            raise EngineProtocolError(
                f"The language model at {self._server} answered /tokenize without tokens.", engine="llm"
            )
        if tuple(theirs) != tokenizer.prompt_ids(_GREETING, PromptEnd.ANSWER):
            raise EngineRejected(
                f"The tokenizer in {folder} is not that of the model at {self._server}; name the folder of the model"
                " that it serves.",
                engine="llm",
            )
        self._end_of_turn = tokenizer.end_of_turn_ids()
        self._tokenizer = tokenizer

    async def _json(self, method: str, url: str, body: dict[str, Any] | None = None) -> Any:
        """One short request. Raises EngineError."""
        try:
            response = await self._client.request(method, url, json=body, timeout=self._options.first_token_timeout_s)
        except (httpx.HTTPError, OSError) as error:
            raise error_of_exception(error, self._server) from error
        if response.status_code != httpx.codes.OK:
            raise error_of_status(response.status_code, message_of_body(response.content), self._server)
        try:
            return response.json()
        except ValueError as error:
            raise error_of_exception(error, self._server) from error

    def _root(self) -> str:
        return self._options.base_url.rstrip("/").removesuffix("/v1")

    def _silent(self, patience: _Patience) -> EngineTimeout:
        message = f"The language model at {self._server} was silent for {patience.limit_s:g} s."
        return EngineTimeout(message, engine="llm")


def _chat(messages: tuple[ChatMessage, ...]) -> list[dict[str, str]]:
    return [{"role": message.role.value, "content": message.content} for message in messages]
