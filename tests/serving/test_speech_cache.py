"""Phrases that recur, in virtual time: sound and word timings survive, and the engine is asked once."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace

import anyio
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.serving.fake_cache import FakeByteCache, settle, working
from trio.testing import MockClock

from duolog.adapters.scripted_tts import ScriptedSynthesizer, scripted_speech
from duolog.audio.formats import float_to_int16
from duolog.ports.errors import EngineUnavailable
from duolog.ports.tts import SpeechChunk, SpeechRequest, Voice, WordTiming
from duolog.serving.speech_cache import MAX_CHARS, SpeechCache, decode, encode
from duolog.serving.synthesizer import Synthesizer
from duolog.serving.tiered_cache import CacheOptions, TieredCache

pytestmark = pytest.mark.session

HELLO = SpeechRequest("Hello there, friend.", "scripted", "en")


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return "trio", {"clock": MockClock(autojump_threshold=0)}


@dataclass
class Server:
    tts: ScriptedSynthesizer
    synthesizer: Synthesizer
    cache: SpeechCache

    async def say(self, request: SpeechRequest = HELLO) -> list[SpeechChunk]:
        speech = self.synthesizer.speak("sess", request)
        async with aclosing(speech) as chunks:
            return [chunk async for chunk in chunks]


@asynccontextmanager
async def server(store: FakeByteCache, engine: str = "scripted") -> AsyncGenerator[Server, None]:
    tts = ScriptedSynthesizer(delay_s=0.1)
    async with working() as worker:
        cache = SpeechCache(TieredCache("speech", store, worker, CacheOptions(10_000_000, 100.0)), engine)
        synthesizer = Synthesizer(tts, cache=cache)
        async with anyio.create_task_group() as service:
            service.start_soon(synthesizer.run)
            yield Server(tts, synthesizer, cache)
            service.cancel_scope.cancel()


def assert_same(chunks: list[SpeechChunk], others: list[SpeechChunk]) -> None:
    """As they leave the call: the same samples, words at the same places, in the same pieces."""
    assert [(one.sample_rate_hz, one.words) for one in chunks] == [(one.sample_rate_hz, one.words) for one in others]
    for one, other in zip(chunks, others, strict=True):
        assert np.array_equal(float_to_int16(one.samples), float_to_int16(other.samples))
        assert other.samples.dtype == np.float32


async def test_the_second_time_it_comes_at_once_and_is_the_same() -> None:
    async with server(FakeByteCache()) as one:
        spoken = await one.say()
        begun = anyio.current_time()
        remembered = await one.say()
        assert anyio.current_time() == begun
        assert len(one.tts.requests) == 1
    assert_same(spoken, remembered)
    assert sum(len(chunk.words) for chunk in remembered) == 3


async def test_the_store_gets_a_phrase_when_it_recurs() -> None:
    store = FakeByteCache()
    async with server(store) as one, server(store) as other:
        spoken = await one.say()
        await settle()
        assert store.held == {}
        await one.say()
        await settle()
        assert len(store.held) == 1
        assert_same(spoken, await other.say())
        assert other.tts.requests == []
        written = dict(store.held)
        await one.say()
        await other.say()
        await settle()
        assert store.held == written


async def test_a_phrase_that_was_pushed_out_of_memory_recurs_all_the_same() -> None:
    store = FakeByteCache()
    tts = ScriptedSynthesizer()
    async with working() as worker:
        cache = SpeechCache(TieredCache("speech", store, worker, CacheOptions(0, 100.0)), "scripted")
        synthesizer = Synthesizer(tts, cache=cache)
        async with anyio.create_task_group() as service:
            service.start_soon(synthesizer.run)
            for count in range(3):
                await Server(tts, synthesizer, cache).say()
                await settle()
                assert len(store.held) == (count > 0)
            service.cancel_scope.cancel()
    assert len(tts.requests) == 2


async def test_what_sounds_different_has_another_key() -> None:
    async with server(FakeByteCache()) as one, server(FakeByteCache(), "other engine") as other:
        voices = (Voice("scripted", ("en", "zh"), 24_000, True), Voice("deep", ("en",), 16_000, True))
        faster_rate = (replace(voices[0], sample_rate_hz=22_050), voices[1])
        keys = [
            one.cache.key(HELLO, voices),
            other.cache.key(HELLO, voices),
            one.cache.key(HELLO, faster_rate),
            one.cache.key(replace(HELLO, text="Hello there, friend!"), voices),
            one.cache.key(replace(HELLO, voice="deep"), voices),
            one.cache.key(replace(HELLO, language="zh"), voices),
            one.cache.key(replace(HELLO, speed=1.1), voices),
        ]
        assert len(set(keys)) == len(keys)
        assert None not in keys
        assert one.cache.key(replace(HELLO, text="a" * (MAX_CHARS + 1)), voices) is None
        assert one.cache.key(replace(HELLO, voice="nobody"), voices) is None


async def test_a_phrase_that_was_left_or_failed_is_not_remembered() -> None:
    async with server(FakeByteCache()) as one:
        with anyio.move_on_after(0.05):
            await one.say()
        one.tts.fail_next(EngineUnavailable("gone", engine="tts"))
        with pytest.raises(EngineUnavailable):
            await one.say()
        await one.say()
        assert len(one.tts.requests) == 3


async def test_text_with_nothing_to_say_is_not_remembered() -> None:
    store = FakeByteCache()
    async with server(store) as one:
        for _ in range(3):
            assert await one.say(replace(HELLO, text="…")) == []
        await settle()
    assert store.held == {}


async def test_without_the_store_this_process_still_remembers() -> None:
    async with server(FakeByteCache(down=True)) as one:
        for _ in range(3):
            assert await one.say()
        assert len(one.tts.requests) == 1


def whole() -> bytes:
    return encode(list(scripted_speech(HELLO, 24_000)))


@pytest.mark.parametrize(
    "spoilt", [b"", b"\x01", b"\x02" + whole()[1:], whole()[:-2], whole()[:-1], whole()[:40], b"\x01\x02\0\0\0{}"]
)
async def test_what_cannot_be_read_is_a_miss_and_deleted(spoilt: bytes) -> None:
    store = FakeByteCache()
    async with server(store) as one:
        key = one.cache.key(HELLO, one.tts.voices())
        store.held[f"speech:{key}"] = spoilt
        assert_same(list(scripted_speech(HELLO, 24_000)), await one.say())
        await settle()
        assert store.held == {}


word = st.builds(WordTiming, *(st.integers(0, 1_000_000) for _ in range(4)))
chunk = st.builds(
    lambda samples, words: SpeechChunk(np.array(samples, np.float32) / np.float32(32_767), 22_050, tuple(words)),
    st.lists(st.integers(-32_767, 32_767), max_size=40),
    st.lists(word, max_size=4),
)


@given(st.lists(chunk, min_size=1, max_size=5))
def test_speech_comes_back_as_it_was(chunks: list[SpeechChunk]) -> None:
    assert_same(chunks, list(decode(encode(chunks))))
