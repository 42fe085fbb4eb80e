"""espeak-ng as a voice: where it puts words, and that it does not disturb the phonemes of other voices."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import aclosing
from itertools import pairwise

import numpy as np
import pytest

from duolog.adapters.espeak_library import SAMPLE_RATE_HZ, WordMark, shared_library
from duolog.adapters.espeak_voice import EspeakSynthesizer, word_edges
from duolog.ports.errors import EngineRejected
from duolog.ports.tts import SpeechRequest, WordTiming

pytestmark = pytest.mark.real


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def engine() -> AsyncIterator[EspeakSynthesizer]:
    engine = EspeakSynthesizer()
    yield engine
    await engine.aclose()


async def words(engine: EspeakSynthesizer, text: str, language: str) -> tuple[list[WordTiming], float]:
    async with aclosing(engine.synthesize(SpeechRequest(text, "espeak", language))) as stream:
        chunks = [chunk async for chunk in stream]
    return [word for chunk in chunks for word in chunk.words], sum(len(chunk.samples) for chunk in chunks) / 22_050


async def test_it_is_the_marked_last_resort_for_many_languages(engine: EspeakSynthesizer) -> None:
    (voice,) = engine.voices()
    assert voice.last_resort
    assert voice.has_word_timings
    assert {"en", "zh", "de", "fr", "es", "ja", "hi"} <= set(voice.languages)


async def test_each_chinese_character_has_its_place(engine: EspeakSynthesizer) -> None:
    text = "你好，今天天气很好。我用 Python 写程序。"
    timings, length_s = await words(engine, text, "zh")
    assert "".join(text[word.text_start] for word in timings) == "你好今天天气很好我用P写程序"
    assert 2 < length_s < 8
    assert all(one.end_sample <= other.start_sample for one, other in pairwise(timings))
    assert all(word.end_sample - word.start_sample > 0.02 * SAMPLE_RATE_HZ for word in timings)


async def test_a_language_it_lacks_is_refused(engine: EspeakSynthesizer) -> None:
    with pytest.raises(EngineRejected, match="does not speak 'xx'"):
        await words(engine, "Hello.", "xx")


def test_words_that_were_joined_share_the_time() -> None:
    marks = (WordMark(0, 0), WordMark(4, 1_000), WordMark(12, 4_000))
    assert word_edges([(0, 3), (4, 6), (7, 10), (11, 15)], marks, 5_000) == [0, 1_000, 2_500, 4_000, 5_000]


def test_marks_out_of_order_or_beyond_the_end_are_not_believed() -> None:
    marks = (WordMark(0, 0), WordMark(4, 2_000), WordMark(7, 1_500), WordMark(11, 9_000))
    assert word_edges([(0, 3), (4, 6), (7, 10), (11, 15)], marks, 5_000) == [0, 2_000, 3_000, 4_000, 5_000]


def test_a_stopped_synthesis_ends_early() -> None:
    text = "This is a sentence of some length. " * 40
    library = shared_library()
    assert len(library.speak(text, "en-us", 175, lambda: True).samples) < 22_050
    assert len(library.speak("Hello.", "en-us", 175, lambda: False).samples) > 5_000


def test_phonemes_and_sound_do_not_disturb_each_other() -> None:
    library = shared_library()
    text = "Hello there, of the world."
    phonemes = library.phonemes(text, "en-us")
    alone = library.speak("你好，世界。", "cmn", 175, lambda: False)
    wrong: list[str] = []

    def phonemize() -> None:
        wrong.extend(found for _ in range(200) if (found := library.phonemes(text, "en-us")) != phonemes)

    thread = threading.Thread(target=phonemize)
    thread.start()
    for _ in range(20):
        again = library.speak("你好，世界。", "cmn", 175, lambda: False)
        assert [mark.text_offset for mark in again.marks] == [mark.text_offset for mark in alone.marks]
        assert abs(len(again.samples) - len(alone.samples)) < 500
        assert np.abs(again.samples).max() > 1_000
    thread.join()
    assert wrong == []
