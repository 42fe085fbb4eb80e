"""What every SpeechSynthesizer keeps to: the same tests for the scripted engine, the router and the real ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

import anyio
import numpy as np
import pytest
from numpy.typing import NDArray

from duolog.adapters.coqui_tts import CoquiSynthesizer
from duolog.adapters.espeak_voice import EspeakSynthesizer
from duolog.adapters.scripted_tts import ScriptedSynthesizer
from duolog.adapters.voice_router import VoiceRouter
from duolog.ports.errors import EngineRejected
from duolog.ports.tts import SpeechRequest, SpeechSynthesizer, Voice, WordTiming

VOICE_FOLDER = Path(__file__).resolve().parents[2] / ".duolog" / "models" / "joe"
LONG_TEXT = "I am going to the market this morning. It is one of the best in town, isn't it? Dr. Smith said so!"


@pytest.fixture(
    params=[
        pytest.param("scripted", marks=pytest.mark.session),
        pytest.param("router", marks=pytest.mark.session),
        pytest.param("espeak", marks=pytest.mark.real),
        pytest.param("coqui", marks=pytest.mark.real),
    ]
)
def engine(request: pytest.FixtureRequest) -> SpeechSynthesizer:
    if request.param == "scripted":
        return ScriptedSynthesizer()
    if request.param == "router":
        other = Voice("other", ("en",), 16_000, has_word_timings=False)
        return VoiceRouter((ScriptedSynthesizer(), ScriptedSynthesizer((other,))))
    if request.param == "espeak":
        espeak: SpeechSynthesizer = request.getfixturevalue("espeak")
        return espeak
    coqui: SpeechSynthesizer = request.getfixturevalue("coqui")
    return coqui


@pytest.fixture(scope="module")
def coqui() -> Iterator[CoquiSynthesizer]:
    if not (VOICE_FOLDER / "config.json").exists():
        pytest.skip("no voice in .duolog/models/joe; run `duolog models prepare`")
    engine = CoquiSynthesizer({"joe": VOICE_FOLDER})
    yield engine
    anyio.run(engine.aclose)


@pytest.fixture(scope="module")
def espeak() -> Iterator[EspeakSynthesizer]:
    engine = EspeakSynthesizer()
    yield engine
    anyio.run(engine.aclose)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@dataclass(frozen=True, slots=True)
class Speech:
    samples: NDArray[np.float32]
    words: tuple[WordTiming, ...]
    chunk_edges: tuple[int, ...]
    words_per_chunk: tuple[int, ...]


def request_for(engine: SpeechSynthesizer, text: str, speed: float = 1.0) -> SpeechRequest:
    return SpeechRequest(text, voice=engine.voices()[0].id, language="en", speed=speed)


async def speak(engine: SpeechSynthesizer, text: str, speed: float = 1.0) -> Speech:
    chunks = []
    rate_hz = engine.voices()[0].sample_rate_hz
    async with aclosing(engine.synthesize(request_for(engine, text, speed))) as stream:
        async for chunk in stream:
            assert chunk.sample_rate_hz == rate_hz
            assert chunk.samples.dtype == np.float32
            assert chunk.samples.ndim == 1
            chunks.append(chunk)
    return Speech(
        samples=np.concatenate([np.zeros(0, dtype=np.float32), *[chunk.samples for chunk in chunks]]),
        words=tuple(word for chunk in chunks for word in chunk.words),
        chunk_edges=tuple(int(edge) for edge in np.cumsum([0, *[len(chunk.samples) for chunk in chunks]])),
        words_per_chunk=tuple(len(chunk.words) for chunk in chunks),
    )


async def test_there_is_a_voice(engine: SpeechSynthesizer) -> None:
    voice = engine.voices()[0]
    assert voice.id
    assert "en" in voice.languages
    assert 8_000 <= voice.sample_rate_hz <= 48_000


async def test_speech_is_sound_within_range(engine: SpeechSynthesizer) -> None:
    speech = await speak(engine, "Hello there, how are you today?")
    rate_hz = engine.voices()[0].sample_rate_hz
    assert 0.8 < len(speech.samples) / rate_hz < 6
    assert np.sqrt(np.mean(speech.samples**2)) > 0.01
    assert np.abs(speech.samples).max() <= 1
    assert np.isfinite(speech.samples).all()


@pytest.mark.parametrize("text", ["Yes.", "One of the 3.5 million; well-known, isn't it?", LONG_TEXT])
async def test_every_word_is_placed_in_order_within_the_sound(engine: SpeechSynthesizer, text: str) -> None:
    speech = await speak(engine, text)
    assert [text[word.text_start : word.text_end] for word in speech.words] == text.split()
    starts = [word.start_sample for word in speech.words]
    assert starts == sorted(starts)
    for word, following in zip(speech.words, speech.words[1:], strict=False):
        assert word.end_sample <= following.start_sample
    for word in speech.words:
        assert 0 <= word.start_sample < word.end_sample <= len(speech.samples)


async def test_a_words_sound_is_louder_than_nothing(engine: SpeechSynthesizer) -> None:
    speech = await speak(engine, LONG_TEXT)
    for word in speech.words:
        assert (
            np.abs(speech.samples[word.start_sample : word.end_sample]).max() > 0.005
        )  # The stop of a final t is quiet.


async def test_a_chunk_names_the_words_that_begin_in_it(engine: SpeechSynthesizer) -> None:
    speech = await speak(engine, LONG_TEXT)
    assert len(speech.words_per_chunk) > 1
    place = 0
    for number, count in enumerate(speech.words_per_chunk):
        for word in speech.words[place : place + count]:
            assert speech.chunk_edges[number] <= word.start_sample < speech.chunk_edges[number + 1]
        place += count


@pytest.mark.parametrize("text", ["", "  ", "…", "?!", "—"])
async def test_nothing_to_say_yields_nothing(engine: SpeechSynthesizer, text: str) -> None:
    speech = await speak(engine, text)
    assert len(speech.samples) == 0
    assert speech.words == ()


async def test_speed_changes_the_length(engine: SpeechSynthesizer) -> None:
    text = "I was thinking about that today, and I am not sure."
    slow, plain, fast = [len((await speak(engine, text, speed)).samples) for speed in (0.7, 1.0, 1.5)]
    assert slow > 1.15 * plain
    assert fast < 0.85 * plain


async def test_an_unknown_voice_is_refused_and_harms_nobody(engine: SpeechSynthesizer) -> None:
    with pytest.raises(EngineRejected, match="'nobody'; choose one of") as refusal:
        async with aclosing(engine.synthesize(SpeechRequest("Hi.", voice="nobody", language="en"))) as stream:
            await anext(stream)
    assert refusal.value.engine == "tts"
    assert len((await speak(engine, "Hi.")).samples) > 0


async def test_closing_early_leaves_the_engine_ready(engine: SpeechSynthesizer) -> None:
    async with aclosing(engine.synthesize(request_for(engine, LONG_TEXT * 20))) as stream:
        await anext(stream)
    with anyio.fail_after(10):
        speech = await speak(engine, "Yes.")
    assert [word.text_end for word in speech.words] == [4]


async def test_cancelling_leaves_the_engine_ready(engine: SpeechSynthesizer) -> None:
    with anyio.move_on_after(0.05):
        await speak(engine, LONG_TEXT * 20)
    with anyio.fail_after(10):
        assert len((await speak(engine, "Yes.")).words) == 1


async def test_warming_up_twice_is_harmless(engine: SpeechSynthesizer) -> None:
    await engine.warm_up()
    await engine.warm_up()
    assert len((await speak(engine, "Yes.")).words) == 1


async def test_unusual_text_is_survived(engine: SpeechSynthesizer) -> None:
    for text in ["你好，世界。", "naïve café 👍 ok", "a\0b", "x" * 500, "<b>&amp;</b>", "Ünïcödé\u200b text\ufeff"]:
        speech = await speak(engine, text)
        assert all(0 <= word.start_sample <= word.end_sample <= len(speech.samples) for word in speech.words)
