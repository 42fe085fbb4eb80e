"""Answers by their exact question, in virtual time."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.serving.fake_cache import FakeByteCache, settle, working
from trio.testing import MockClock

from duolog.adapters.scripted_llm import Fault, Line, ScriptedLanguageModel, ScriptedOptions
from duolog.ports.errors import EngineUnavailable
from duolog.ports.llm import ChatMessage, FinishReason, GenerationEnd, GenerationRequest, Role, Sampling, TextDelta
from duolog.serving.batcher import Batcher, BatcherRequest, RequestClass
from duolog.serving.policies.slo import SloPolicy
from duolog.serving.prompt_cache import (
    AnswerPart,
    CachedAnswer,
    PromptCache,
    Recalled,
    RememberingSource,
    decode,
    encode,
)
from duolog.serving.store_worker import StoreWorker
from duolog.serving.tiered_cache import CacheOptions, Level, TieredCache

pytestmark = pytest.mark.session

TTL_S = 100.0
GREEDY = Sampling(temperature=0.0)


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return "trio", {"clock": MockClock(autojump_threshold=0)}


def question(said: str = "hi", sampling: Sampling = GREEDY) -> GenerationRequest:
    messages = (ChatMessage(Role.SYSTEM, "Be kind."), ChatMessage(Role.USER, said))
    return GenerationRequest("id", messages, sampling, "sess")


def a_cache(store: FakeByteCache, worker: StoreWorker, model: str = "model") -> PromptCache:
    return PromptCache(TieredCache("prompt", store, worker, CacheOptions(100_000, TTL_S)), model)


@dataclass
class Server:
    """One process: its engine and its memory, before a store that all share."""

    llm: ScriptedLanguageModel
    batcher: Batcher
    cache: PromptCache

    async def ask(self, said: str = "hi", version: str = "v1", sampling: Sampling = GREEDY) -> list[AnswerPart]:
        source = RememberingSource(self.batcher, self.cache, "ava", version)
        request = BatcherRequest(question(said, sampling), RequestClass.FINAL, anyio.current_time())
        async with aclosing(source.generate(request)) as stream:
            return [part async for part in stream]


@asynccontextmanager
async def server(store: FakeByteCache, **lines: Line) -> AsyncGenerator[Server, None]:
    llm = ScriptedLanguageModel(ScriptedOptions(lines=lines))
    async with working() as worker:
        yield Server(llm, Batcher(llm, SloPolicy()), a_cache(store, worker))


def text(parts: list[AnswerPart]) -> str:
    return "".join(part.text for part in parts if isinstance(part, TextDelta))


def level(parts: list[AnswerPart]) -> Level | None:
    return parts[0].level if isinstance(parts[0], Recalled) else None


async def test_the_second_time_the_model_is_not_asked() -> None:
    async with server(FakeByteCache(), hi=Line("Hello yourself.")) as one:
        made, remembered = await one.ask(), await one.ask()
        assert len(one.llm.requests) == 1
    assert (level(made), level(remembered)) == (None, Level.MEMORY)
    assert text(made) == text(remembered) == "Hello yourself."
    first, second = made[-1], remembered[-1]
    assert isinstance(first, GenerationEnd)
    assert isinstance(second, GenerationEnd)
    assert second.reason is FinishReason.STOP
    assert second.usage == replace(first.usage, cached_tokens=first.usage.prompt_tokens)


async def test_another_process_finds_it_in_the_store_and_then_in_its_own_memory() -> None:
    store = FakeByteCache()
    async with server(store, hi=Line("Hello yourself.")) as one, server(store) as other:
        await one.ask()
        await settle()
        answers = [await other.ask(), await other.ask()]
        assert other.llm.requests == []
    assert [level(parts) for parts in answers] == [Level.REDIS, Level.MEMORY]
    assert {text(parts) for parts in answers} == {"Hello yourself."}
    assert list(store.ttls.values()) == [TTL_S]


async def test_everything_that_decides_the_answer_is_in_the_key() -> None:
    async with working() as worker:
        store = FakeByteCache()
        cache, larger = a_cache(store, worker), a_cache(store, worker, "larger")
        same = cache.key("ava", "v1", question())
        assert cache.key("ava", "v1", replace(question(), request_id="other", session_id="s2", priority=3)) == same
        longer = replace(question(), messages=(*question().messages, ChatMessage(Role.ASSISTANT, "")))
        split = (ChatMessage(Role.SYSTEM, "Be kind.hi"), ChatMessage(Role.USER, ""))
        others = [
            larger.key("ava", "v1", question()),
            cache.key("max", "v1", question()),
            cache.key("ava", "v2", question()),
            cache.key("ava", "v1", question("hi ")),
            cache.key("ava", "v1", question("Hi")),
            cache.key("ava", "v1", longer),
            cache.key("ava", "v1", replace(question(), messages=split)),
            *(cache.key("ava", "v1", question(sampling=sampling)) for sampling in every_other_sampling()),
        ]
    assert len({same, *others}) == 1 + len(others)


def every_other_sampling() -> list[Sampling]:
    return [
        replace(GREEDY, temperature=0.1),
        replace(GREEDY, top_p=0.5),
        replace(GREEDY, repetition_penalty=1.5),
        replace(GREEDY, max_tokens=7),
        replace(GREEDY, stop=("\n",)),
        replace(GREEDY, seed=1),
    ]


async def test_an_answer_cut_by_its_limit_is_not_remembered() -> None:
    async with server(FakeByteCache(), hi=Line("One two three four five.")) as one:
        for _ in range(2):
            parts = await one.ask(sampling=replace(GREEDY, max_tokens=2))
            assert isinstance(parts[-1], GenerationEnd)
            assert parts[-1].reason is FinishReason.LENGTH
        assert len(one.llm.requests) == 2


async def test_an_answer_that_failed_midway_is_not_remembered() -> None:
    store = FakeByteCache()
    async with server(store, hi=Line("One two three four five.", Fault.DIE_MIDWAY)) as one:
        for _ in range(2):
            with pytest.raises(EngineUnavailable):
                await one.ask()
        await settle()
        assert len(one.llm.requests) == 2
    assert store.held == {}


async def test_an_answer_that_was_left_midway_is_not_remembered() -> None:
    store = FakeByteCache()
    async with server(store, hi=Line("One two three four five.")) as one:
        with anyio.move_on_after(0.06):
            await one.ask()
        await settle()
        assert store.held == {}
        assert one.llm.running == 0
        assert level(await one.ask()) is None


async def test_it_is_forgotten_after_its_time() -> None:
    store = FakeByteCache()
    async with server(store, hi=Line("Hello.")) as one:
        await one.ask()
        await anyio.sleep(TTL_S)
        store.held.clear()
        assert level(await one.ask()) is None


async def test_a_slow_store_costs_no_more_than_the_bound() -> None:
    async with server(FakeByteCache(delay_s=3.0), hi=Line("Hello.")) as one:
        direct = ScriptedOptions().first_token_s
        begun = anyio.current_time()
        parts = await one.ask()
        assert level(parts) is None
        assert anyio.current_time() - begun <= direct + ScriptedOptions().token_s * 3 + 0.009


async def test_without_the_store_this_process_still_remembers() -> None:
    async with server(FakeByteCache(down=True, delay_s=0), hi=Line("Hello.")) as one:
        await one.ask()
        assert level(await one.ask()) is Level.MEMORY


@pytest.mark.parametrize(
    "spoilt", [b"", b"\x00", b"\x02[]", b"\x01", b"\x01{}", b'\x01["",1,1]', b'\x01["a"]', b"\x01\xff"]
)
async def test_what_cannot_be_read_is_a_miss_and_deleted(spoilt: bytes) -> None:
    store = FakeByteCache()
    async with server(store, hi=Line("Hello.")) as one:
        key = f"prompt:{one.cache.key('ava', 'v1', question())}"
        store.held[key] = spoilt
        assert await one.cache.find(key.removeprefix("prompt:")) is None
        await settle()
        assert key not in store.held
        assert level(await one.ask()) is None
        await settle()
        assert decode(store.held[key]).text == "Hello."


async def test_an_answer_without_words_is_not_kept() -> None:
    store = FakeByteCache()
    async with working() as worker:
        a_cache(store, worker).keep("key", CachedAnswer(" \n", 3, 1))
        await settle()
    assert store.held == {}


@given(st.text(min_size=1), st.integers(0, 10_000), st.integers(0, 10_000))
def test_an_answer_comes_back_as_it_was(said: str, prompt: int, completion: int) -> None:
    answer = CachedAnswer(said, prompt, completion)
    assert decode(encode(answer)) == answer
