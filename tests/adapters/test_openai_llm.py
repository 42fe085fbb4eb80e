"""The OpenAI adapter against a server on loopback that misbehaves in each way there is."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import SocketStream
from tests.llm_server import (
    DONE,
    LAST,
    SSE_HEAD,
    USAGE,
    Server,
    answer,
    chunked,
    event,
    good_answer,
    piece,
    serving,
    streams,
)
from tests.tokenizer_folder import GREETING_IDS, write_tokenizer

from duolog.adapters.openai_llm import Dialect, OpenAILanguageModel, OpenAIOptions
from duolog.adapters.openai_stream import SPECIAL_TOKENS, SpecialTokenGuard
from duolog.ports.errors import (
    EngineError,
    EngineProtocolError,
    EngineRejected,
    EngineTimeout,
    EngineUnavailable,
)
from duolog.ports.llm import (
    ChatMessage,
    FinishReason,
    GenerationEnd,
    GenerationRequest,
    PromptEnd,
    Role,
    Sampling,
    TextDelta,
    TokenUsage,
)

pytestmark = pytest.mark.real

ASK = GenerationRequest(
    "req-1", (ChatMessage(Role.USER, "Hi"),), Sampling(stop=("END",), seed=7), session_id="call-9", priority=20
)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with serving(Server(good_answer("Hello", " you."))) as house:
        yield house


def model_for(server: Server, **changes: Any) -> OpenAILanguageModel:
    defaults: dict[str, Any] = {
        "dialect": Dialect.VLLM,
        "first_token_timeout_s": 0.3,
        "inter_token_timeout_s": 0.2,
        "connect_timeout_s": 0.5,
    }
    return OpenAILanguageModel(OpenAIOptions(f"http://127.0.0.1:{server.port}/v1", "tiny", **(defaults | changes)))


async def run(model: OpenAILanguageModel, request: GenerationRequest = ASK) -> tuple[str, GenerationEnd | EngineError]:
    """The text that came, and how it ended."""
    text = ""
    try:
        async with aclosing(model.generate(request)) as stream:
            async for value in stream:
                if isinstance(value, GenerationEnd):
                    return text, value
                text += value.text
    except EngineError as error:
        return text, error
    finally:
        await model.aclose()
    raise AssertionError("the stream had no end")


async def test_a_good_answer(server: Server) -> None:
    assert await run(model_for(server, send_priority=True)) == (
        "Hello you.",
        GenerationEnd(FinishReason.STOP, TokenUsage(9, 4, 2)),
    )
    first, headers, body = server.requests[0]
    assert first == "POST /v1/chat/completions HTTP/1.1"
    assert (headers["x-request-id"], headers["x-session-id"]) == ("req-1", "call-9")
    assert body["stream_options"] == {"include_usage": True}
    assert (body["priority"], body["stop"], body["seed"], body["repetition_penalty"]) == (20, ["END"], 7, 1.05)


async def test_other_servers_get_only_openais_fields(server: Server) -> None:
    await run(model_for(server, dialect=Dialect.OPENAI, api_key="k"))
    _, headers, body = server.requests[0]
    assert headers["authorization"] == "Bearer k"
    assert not {"priority", "repetition_penalty"} & body.keys()


@pytest.mark.parametrize(
    ("parts", "text", "error"),
    [
        ((), "", EngineUnavailable),
        ((b"HTTP/1.1 200 OK\r\n",), "", EngineUnavailable),
        ((b"garbage that is not HTTP\r\n\r\n",), "", EngineUnavailable),
        ((2.0,), "", EngineTimeout),
        ((SSE_HEAD, 2.0), "", EngineTimeout),
        ((SSE_HEAD, chunked(b": ping\n\n"), 0.2, chunked(b": ping\n\n"), 2.0), "", EngineTimeout),
        ((SSE_HEAD, piece("Hel"), 2.0), "Hel", EngineTimeout),
        ((SSE_HEAD, piece("Hel")), "Hel", EngineUnavailable),
        ((SSE_HEAD, piece("Hel"), b"5\r\nda"), "Hel", EngineUnavailable),
        ((SSE_HEAD, piece("Hel"), LAST), "Hel", EngineUnavailable),
        ((SSE_HEAD, LAST), "", EngineUnavailable),
        ((SSE_HEAD, piece("Hel"), event("{not json"), LAST), "Hel", EngineProtocolError),
        ((SSE_HEAD, event("[1, 2]"), LAST), "", EngineProtocolError),
        ((SSE_HEAD, event('{"choices": [3]}'), LAST), "", EngineProtocolError),
        ((SSE_HEAD, event('{"choices": {"a": 1}}'), LAST), "", EngineProtocolError),
        (
            (SSE_HEAD, piece("Hel"), event('{"error": {"message": "boom", "code": 500}}'), DONE),
            "Hel",
            EngineUnavailable,
        ),
        ((SSE_HEAD, event('{"error": {"message": "queue full", "code": 503}}')), "", EngineUnavailable),
        ((SSE_HEAD, event('{"error": {"message": "too long", "code": 400}}')), "", EngineRejected),
        ((SSE_HEAD, event('{"error": "odd"}')), "", EngineUnavailable),
        ((answer(200, '{"choices": []}'),), "", EngineProtocolError),
        ((answer(200, "<html>", "text/html"),), "", EngineProtocolError),
        ((answer(400, '{"error": {"message": "prompt too long"}}'),), "", EngineRejected),
        ((answer(401, ""),), "", EngineRejected),
        ((answer(404, '{"detail": "Not Found"}'),), "", EngineRejected),
        ((answer(408, "late"),), "", EngineTimeout),
        ((answer(429, "busy"),), "", EngineUnavailable),
        ((answer(500, "<html>oh</html>", "text/html"),), "", EngineUnavailable),
        ((answer(503, '{"error": {"message": "queue full"}}'),), "", EngineUnavailable),
        ((answer(504, ""),), "", EngineTimeout),
        ((answer(302, ""),), "", EngineProtocolError),
        ((b"HTTP/1.1 500 X\r\nContent-Length: 90\r\n\r\nhalf",), "", EngineUnavailable),
    ],
)
async def test_each_fault_has_its_error(
    server: Server, parts: tuple[bytes | float, ...], text: str, error: type[EngineError]
) -> None:
    server.manner = partial(streams, *parts)
    with anyio.fail_after(5):
        heard, end = await run(model_for(server))
    assert (heard, type(end)) == (text, error)
    assert isinstance(end, EngineError)
    assert end.engine == "llm"
    assert "127.0.0.1" in str(end)


async def test_the_servers_words_are_in_the_error(server: Server) -> None:
    server.manner = partial(streams, answer(400, '{"error": {"message": "prompt has 9000 tokens"}}'))
    _, end = await run(model_for(server))
    assert "prompt has 9000 tokens" in str(end)
    assert "status 400" in str(end)


async def test_nobody_listens(server: Server) -> None:
    model = OpenAILanguageModel(OpenAIOptions("http://127.0.0.1:9/v1", "tiny"))
    _, end = await run(model)
    assert isinstance(end, EngineUnavailable)
    assert "refused the connection" in str(end)


@pytest.mark.parametrize(
    "tail", [(DONE, LAST), (LAST,), (), (USAGE[:20],), (2.0,)], ids=["done", "no done", "cut", "cut usage", "stall"]
)
async def test_a_complete_answer_counts_even_where_what_follows_fails(
    server: Server, tail: tuple[bytes | float, ...]
) -> None:
    server.manner = partial(streams, SSE_HEAD, piece("Hello."), piece(None, "length"), *tail)
    assert await run(model_for(server)) == ("Hello.", GenerationEnd(FinishReason.LENGTH, TokenUsage()))


async def test_odd_characters_and_split_bytes_arrive_whole(server: Server) -> None:
    text = "a\u2028b\u0085c\x1cd 你好 😀"
    whole = piece(text) + piece(None, "stop") + DONE + LAST
    server.manner = partial(streams, SSE_HEAD, *[whole[at : at + 7] for at in range(0, len(whole), 7)])
    assert (await run(model_for(server)))[0] == text


async def test_a_special_token_ends_the_answer_and_thestreams(server: Server) -> None:
    server.manner = partial(
        streams, SSE_HEAD, piece("Bye."), piece("<|im_"), piece("end|>and more"), *(piece("x" * 50_000), 0.01) * 300
    )
    assert await run(model_for(server)) == ("Bye.", GenerationEnd(FinishReason.STOP, TokenUsage()))
    with anyio.fail_after(2):
        await server.closed_by_client.wait()


@pytest.mark.parametrize("how", ["close", "cancel"])
async def test_stopping_closes_thestreams(server: Server, how: str) -> None:
    server.manner = partial(streams, SSE_HEAD, piece("Hello"), *(piece("x"), 0.01) * 300)
    model = model_for(server)
    with anyio.CancelScope() as scope:
        async with aclosing(model.generate(ASK)) as stream:
            async for _ in stream:
                if how == "close":
                    break
                scope.cancel()
    with anyio.fail_after(1):
        await server.closed_by_client.wait()
    await model.aclose()


async def test_no_more_than_the_allowed_requests_at_once(server: Server) -> None:
    at_once = most = 0

    async def slow(stream: SocketStream) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await streams(0.05, SSE_HEAD, piece("Hi", "stop"), DONE, LAST, stream)
        at_once -= 1

    server.manner = slow
    model = model_for(server, max_connections=2, first_token_timeout_s=3.0)

    async def one() -> None:
        async with aclosing(model.generate(ASK)) as stream:
            assert (await anext(stream), len([value async for value in stream])) == (TextDelta("Hi"), 1)

    async with anyio.create_task_group() as tasks:
        for _ in range(8):
            tasks.start_soon(one)
    assert most == 2
    await model.aclose()


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ('{"data": [{"id": "other", "max_model_len": 4096}]}', EngineRejected),
        ('{"data": [{"id": "tiny"}]}', EngineRejected),
        ('{"data": 3}', EngineProtocolError),
        ("[]", EngineProtocolError),
        ("no json", EngineProtocolError),
    ],
)
async def test_warm_up_says_what_is_wrong_with_the_model_list(
    server: Server, body: str, error: type[EngineError]
) -> None:
    server.manner = partial(streams, answer(200, body))
    model = model_for(server)
    with pytest.raises(error):
        await model.warm_up()
    with pytest.raises(EngineUnavailable):
        _ = model.context_tokens
    await model.aclose()


def completion_piece(text: str, finish: str | None = None) -> bytes:
    return event(json.dumps({"choices": [{"text": text, "finish_reason": finish}]}))


async def test_token_ids_are_sent_as_they_are(server: Server) -> None:
    server.manner = partial(
        streams, SSE_HEAD, completion_piece("Hello"), completion_piece("", "stop"), USAGE, DONE, LAST
    )
    assert (await run(model_for(server), replace(ASK, prompt_ids=(7, 8, 9))))[0] == "Hello"
    first, _, body = server.requests[0]
    assert first == "POST /v1/completions HTTP/1.1"
    assert body["prompt"] == [7, 8, 9]
    assert "messages" not in body


async def test_a_prefill_streams_only_its_end(server: Server) -> None:
    server.manner = partial(streams, SSE_HEAD, completion_piece("Hello", "length"), USAGE, DONE, LAST)
    request = replace(ASK, messages=(), prompt_ids=(7, 8, 9), prefill=True)
    assert await run(model_for(server), request) == ("", GenerationEnd(FinishReason.LENGTH, TokenUsage(9, 4, 2)))
    assert server.requests[0][2]["max_tokens"] == 1


async def test_a_prefill_may_ask_for_the_likeliest_tokens(server: Server) -> None:
    top = [{".": -0.5, "<|im_end|>": -2.0, ",": -3.0}]
    choice = {"text": ".", "logprobs": {"top_logprobs": top}, "finish_reason": "length"}
    server.manner = partial(streams, SSE_HEAD, event(json.dumps({"choices": [choice]})), USAGE, DONE, LAST)
    asked = replace(ASK, prompt_ids=(7, 8, 9), prefill=True, likeliest=20)
    text, end = await run(model_for(server), asked)
    assert isinstance(end, GenerationEnd)
    assert text == ""
    assert [(one.text, round(one.probability, 3)) for one in end.likely] == [(".", 0.607), ("", 0.135), (",", 0.05)]
    assert server.requests[0][2]["logprobs"] == 20


async def test_nobody_else_is_sent_chances(server: Server) -> None:
    server.manner = partial(streams, SSE_HEAD, completion_piece("Hello", "length"), USAGE, DONE, LAST)
    _, end = await run(model_for(server), replace(ASK, prompt_ids=(7, 8, 9), prefill=True))
    assert isinstance(end, GenerationEnd)
    assert end.likely == ()
    assert "logprobs" not in server.requests[0][2]


def describes_itself(server: Server, tokens: list[int], owner: str = "vllm") -> None:
    """Model list, `/tokenize` and answers as of vLLM."""
    card = {"data": [{"id": "tiny", "max_model_len": 512, "owned_by": owner}]}
    server.card = answer(200, json.dumps(card))
    manner = server.manner

    async def tokenizes_too(stream: SocketStream) -> None:
        if server.requests[-1][0].startswith("POST /tokenize "):
            await stream.send(answer(200, json.dumps({"count": len(tokens), "tokens": tokens})))
        else:
            await manner(stream)

    server.manner = tokenizes_too


@pytest.mark.parametrize("owner", ["vllm", "openai"])
async def test_vllm_is_known_by_its_model_list(server: Server, owner: str) -> None:
    describes_itself(server, [], owner)
    model = model_for(server, dialect=None)
    await model.warm_up()
    assert model.prompt_ids(ASK.messages, PromptEnd.ANSWER) == ()
    await run(model)
    assert ("repetition_penalty" in server.requests[-1][2]) == (owner == "vllm")


async def test_a_tokenizer_that_is_the_servers_makes_the_prompts(server: Server, tmp_path: Path) -> None:
    describes_itself(server, GREETING_IDS)
    model = model_for(server, tokenizer_dir=write_tokenizer(tmp_path))
    assert model.prompt_ids(ASK.messages, PromptEnd.ANSWER) == ()
    await model.warm_up()
    assert model.prompt_ids(ASK.messages, PromptEnd.ANSWER) == tuple(GREETING_IDS)
    assert server.requests[-1][2]["prompt"] == GREETING_IDS
    assert server.requests[-1][2]["stop_token_ids"] == [1]
    await model.aclose()


async def test_a_tokenizer_of_another_model_is_refused(server: Server, tmp_path: Path) -> None:
    describes_itself(server, [1, 2, 3])
    model = model_for(server, tokenizer_dir=write_tokenizer(tmp_path))
    with pytest.raises(EngineRejected, match="is not that of the model"):
        await model.warm_up()
    await model.aclose()


async def test_a_tokenizer_is_of_no_use_to_other_servers(server: Server, tmp_path: Path) -> None:
    describes_itself(server, GREETING_IDS, "openai")
    model = model_for(server, dialect=None, tokenizer_dir=write_tokenizer(tmp_path))
    await model.warm_up()
    assert model.prompt_ids(ASK.messages, PromptEnd.ANSWER) == ()
    await model.aclose()


def test_the_guard_holds_back_only_what_may_be_a_special_token() -> None:
    guard = SpecialTokenGuard()
    assert [guard.feed(text) for text in ("a < b", " and <", "|x", "<|im_end", "|> no")] == [
        "a < b",
        " and ",
        "<|x",
        "",
        "",
    ]
    assert guard.ended
    assert guard.feed("more") == ""
    loose = SpecialTokenGuard()
    assert loose.feed(SPECIAL_TOKENS[0][:-1]) == ""
    assert loose.finish() == SPECIAL_TOKENS[0][:-1]
