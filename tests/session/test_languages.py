"""A persona of two languages: each phrase in its own, by voices of different sample rates."""

from __future__ import annotations

import pytest
from tests.session import harness
from tests.session.harness import persona, world

from duolog.adapters.scripted_asr import in_order
from duolog.adapters.scripted_llm import Line
from duolog.adapters.scripted_tts import ScriptedSynthesizer
from duolog.adapters.voice_router import VoiceRouter
from duolog.ports.tts import Voice
from duolog.session.events import AudioDelta, PlayoutHeard, ResponseDone, TranscriptCompleted

pytestmark = pytest.mark.session

ENGLISH = Voice("scripted", ("en",), 22_050, has_word_timings=True)
CHINESE = Voice("mei", ("zh",), 16_000, has_word_timings=True, last_resort=True)
ANSWER = "好的，我们一起来说吧。Hello there, my dear friend. 再见了，我的好朋友。"
LINES = {"Both, please.": Line(ANSWER)}


async def test_each_phrase_is_spoken_in_its_own_language() -> None:
    async with (
        world(script=in_order("Both, please."), lines=LINES, one=persona(languages=("zh", "en"))) as w,
        w.call() as caller,
    ):
        await caller.say(1.0)
        await caller.wait_for(ResponseDone)
    assert [(request.language, request.text) for request in w.tts.requests] == [
        ("zh", "好的，我们一起来说吧。"),
        ("en", "Hello there, my dear friend."),
        ("zh", "再见了，我的好朋友。"),
    ]


async def test_one_language_stays_one() -> None:
    async with (
        world(script=in_order("Both, please."), lines=LINES, one=persona(languages=("zh",))) as w,
        w.call() as caller,
    ):
        await caller.say(1.0)
        await caller.wait_for(ResponseDone)
    assert {request.language for request in w.tts.requests} == {"zh"}


async def test_voices_of_different_rates_make_one_sound(monkeypatch: pytest.MonkeyPatch) -> None:
    def two_voices(*, delay_s: float) -> VoiceRouter:
        return VoiceRouter((ScriptedSynthesizer((ENGLISH,), delay_s=delay_s), ScriptedSynthesizer((CHINESE,))))

    monkeypatch.setattr(harness, "ScriptedSynthesizer", two_voices)
    async with (
        world(script=in_order("Both, please."), lines=LINES, one=persona(languages=("zh", "en"))) as w,
        w.call() as caller,
    ):
        await caller.say(1.0)
        await caller.wait_for(ResponseDone)
        await caller.wait_for_state("listening")
    characters, words, letters_and_marks = 17, 5, 24
    spoken_s = (characters + words) * 0.04 + (characters + letters_and_marks) * 0.06
    assert sum(len(delta.samples) for delta in caller.of(AudioDelta)) / 24_000 == pytest.approx(spoken_s, abs=0.02)
    assert caller.of(PlayoutHeard)[-1].heard_text == ANSWER
    assert not caller.of(PlayoutHeard)[-1].approximate


async def test_the_language_is_looked_for_until_a_caption_of_a_second_has_found_it() -> None:
    async with world(one=persona(languages=("zh", "en"))) as w, w.call() as caller:
        await caller.say(3.0)
        await caller.wait_for(TranscriptCompleted)
    asked = [request for batch in w.asr.batches for request in batch]
    short = [request for request in asked if request.audio_s < 1.0]
    last = asked[-1]
    assert short
    assert {request.language for request in short} == {None}
    assert not last.partial
    assert last.language == "en", "as the scripted recognizer found"
    assert last.expected == ("zh", "en")


async def test_the_next_utterance_may_be_in_another_language() -> None:
    async with world(one=persona(languages=("zh", "en"))) as w, w.call() as caller:
        await caller.say(3.0)
        await caller.wait_for(ResponseDone)
        await caller.wait_for_state("listening")
        before = len(w.asr.batches)
        await caller.say(3.0)
        await caller.wait_for(ResponseDone, 2)
    assert w.asr.batches[before][0].language is None
