"""A sound over the bot: what interrupts it, what the answer goes on under, and how soon. In virtual time."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import anyio
import numpy as np
import pytest
from tests.session.harness import Caller, World, world

from duolog.adapters.scripted_llm import Line
from duolog.ports.asr import SAMPLE_RATE_HZ, TranscriptionRequest
from duolog.ports.errors import EngineUnavailable
from duolog.session.config import ResponseOptions, ServerVad
from duolog.session.events import (
    AudioDelta,
    InputCommitted,
    PlayoutFlush,
    PlayoutHeard,
    ResponseCreated,
    ResponseDone,
    ResponseStatus,
    SpeechStarted,
    StateChanged,
    TranscriptCompleted,
)
from duolog.turns.conversation import ContentPart, Item, ItemRole, PartKind

pytestmark = pytest.mark.session

LONG = "Well, let me tell you all about it, from the beginning to the end. " * 6
WARM_UP_S = 3.2
WORDS_PER_S = 4.0
LOUD_RMS = 0.01


@dataclass
class Mouth:
    """What the caller's voice says from now on: a word for each quarter of a second of it."""

    text: str = "tell me"

    def __call__(self, request: TranscriptionRequest) -> str:
        windows = np.array_split(request.samples, max(1, len(request.samples) // 512))
        loud = sum(len(one) for one in windows if len(one) and np.sqrt(np.mean(np.square(one))) >= LOUD_RMS)
        return " ".join(self.text.split()[: 1 + int(loud / SAMPLE_RATE_HZ * WORDS_PER_S)])


@asynccontextmanager
async def talking(
    text: str, *, after_s: float = WARM_UP_S, plays: bool = True
) -> AsyncGenerator[tuple[World, Caller, Mouth], None]:
    """A call whose bot has been talking for a while, and a mouth about to say `text` over it."""
    mouth = Mouth(text)
    lines = {"*": Line("All right then."), "hi": Line(LONG)}
    async with world(script=mouth, lines=lines) as w, w.call(plays=plays) as caller:
        caller.call.create_item(Item("typed", ItemRole.USER, (ContentPart(PartKind.INPUT_TEXT, "hi"),)), None)
        caller.call.create_response(ResponseOptions())
        await caller.wait_for(AudioDelta)
        await caller.pause(after_s)
        yield w, caller, mouth


def states(caller: Caller) -> list[str]:
    return [event.state for event in caller.of(StateChanged)]


def delay_s(caller: Caller, since: float, state: str) -> float:
    """Until the call first said so."""
    return (
        next(
            at
            for at, event in caller.events
            if at >= since and isinstance(event, StateChanged) and event.state == state
        )
        - since
    )


@pytest.mark.parametrize("text", ["stop", "no", "wait wait", "what time is it", "等等", "不", "停"])
@pytest.mark.parametrize("plays", [True, False])
async def test_words_interrupt(text: str, plays: bool) -> None:
    async with talking(text, plays=plays) as (w, caller, _):
        began = anyio.current_time()
        await caller.say(1.0)
        flush = await caller.wait_for(PlayoutFlush)
        await caller.wait_for(ResponseDone, 2)
    assert delay_s(caller, began, "hearing") <= 0.25
    assert caller.when(flush) - began <= 0.9
    assert caller.of(ResponseDone)[0].response.status is ResponseStatus.CANCELLED
    assert w.llm.requests[-1].messages[-1].content == text


async def test_short_word_is_recognised_at_its_end() -> None:
    async with talking("no") as (_, caller, _mouth):
        await caller.say(0.18)
        await caller.wait_for(ResponseDone, 2)
    assert len(caller.of(PlayoutFlush)) == 1
    assert caller.of(TranscriptCompleted)[-1].transcript == "no"


@pytest.mark.parametrize("text", ["", "mhm", "yeah", "okay right", "嗯", "好的", "(coughs)"])
@pytest.mark.parametrize("seconds", [0.1, 0.4, 0.9])
async def test_coughs_and_backchannels_leave_the_answer_whole(text: str, seconds: float) -> None:
    async with talking(text) as (_, caller, _mouth):
        began = anyio.current_time()
        await caller.say(seconds)
        await caller.pause(0.5)
        resumed_s = delay_s(caller, began + 0.1, "speaking") + 0.1
        await caller.wait_for_state("listening")
    assert delay_s(caller, began, "hearing") <= 0.25
    assert resumed_s <= seconds + 0.35
    assert caller.of(PlayoutFlush) == []
    assert caller.of(SpeechStarted) == [], "clients stop playing on it"
    assert caller.answers() == [LONG]
    heard = caller.of(PlayoutHeard)[-1]
    assert (heard.heard_text, heard.approximate) == (LONG, False)


async def test_answer_that_is_held_has_the_time_it_needs() -> None:
    """Held four times for seconds in all, the answer is still heard to its end, and not taken for heard before."""
    async with talking("") as (_, caller, _mouth):
        for _number in range(4):
            await caller.say(0.58)
            await caller.pause(0.6)
        await caller.wait_for_state("listening")
        assert caller._held_s > 0.5
    generation = caller.of(AudioDelta)[0].generation
    assert caller.of(PlayoutHeard)[-1].played_ms == caller.samples_of(generation) * 1000 // 24_000


@pytest.mark.parametrize("text", ["yeah but what about tomorrow", "okay so stop", "对 但是", "好的 等等"])
async def test_backchannel_and_more_words_interrupt(text: str) -> None:
    async with talking(text) as (_, caller, _mouth):
        await caller.say(1.2)
        await caller.wait_for(ResponseDone, 2)
    assert len(caller.of(PlayoutFlush)) == 1
    assert caller.of(TranscriptCompleted)[-1].transcript == text


async def test_words_after_a_backchannel_and_a_pause_interrupt() -> None:
    async with talking("yeah") as (_, caller, mouth):
        await caller.say(0.4)
        await caller.pause(0.4)
        mouth.text = "but what about tomorrow"
        await caller.say(1.0)
        await caller.wait_for(ResponseDone, 2)
    assert len(caller.of(PlayoutFlush)) == 1
    assert caller.of(TranscriptCompleted)[-1].transcript == "but what about tomorrow"


async def test_two_interruptions_in_a_row() -> None:
    async with talking("stop") as (_, caller, mouth):
        await caller.say(0.8)
        await caller.wait_for(AudioDelta, 1 + len(caller.of(AudioDelta)))
        mouth.text = "no wait"
        await caller.say(0.8)
        await caller.wait_for(ResponseDone, 3)
        await caller.wait_for_state("listening")
    assert len(caller.of(PlayoutFlush)) == 2
    assert [event.transcript for event in caller.of(TranscriptCompleted)] == ["stop", "no wait"]


async def test_noise_that_goes_on_stops_lowering_the_answer() -> None:
    """Music in the room: the answer comes back while it plays, and is never held for long."""
    async with talking("") as (_, caller, _mouth):
        began = anyio.current_time()
        await caller.say(4.0)
        assert delay_s(caller, began + 0.3, "speaking") + 0.3 < 1.0
        await caller.wait_for_state("listening")
    assert caller.of(PlayoutFlush) == []
    assert caller._held_s < 1.0


async def test_words_in_the_midst_of_noise_still_interrupt() -> None:
    async with talking("") as (_, caller, mouth):
        await caller.say(1.5)
        mouth.text = "stop it"
        await caller.say(1.0)
        await caller.wait_for(PlayoutFlush, timeout_s=1.0)


async def test_long_voice_that_nobody_can_recognise_interrupts() -> None:
    async with talking("stop") as (w, caller, _):
        w.asr.stall_next()
        began = anyio.current_time()
        await caller.say(2.5)
        flush = await caller.wait_for(PlayoutFlush)
    assert 1.4 < caller.when(flush) - began < 1.8


async def test_recogniser_that_fails_lets_the_voice_interrupt_at_its_end() -> None:
    async with talking("stop") as (w, caller, _):
        for _number in range(4):
            w.asr.fail_next(EngineUnavailable("no recogniser", engine="asr"))
        await caller.say(0.6)
        await caller.wait_for(PlayoutFlush)
        await caller.wait_for(InputCommitted)


async def test_in_the_first_seconds_sound_alone_neither_interrupts_nor_lowers_the_answer() -> None:
    async with talking("", after_s=0.5) as (w, caller, _):
        w.asr.stall_next()
        await caller.say(2.0)
        assert "hearing" not in states(caller)
        await caller.wait_for_state("listening")
    assert caller.of(PlayoutFlush) == []


@pytest.mark.parametrize(
    ("text", "interrupts"), [("let me tell you", False), ("tell", False), ("mhm", False), ("stop", True)]
)
async def test_in_the_first_seconds_words_interrupt_but_not_the_bots_own(text: str, interrupts: bool) -> None:
    async with talking(text, after_s=0.5) as (_, caller, _mouth):
        await caller.say(1.2)
        await caller.wait_for_state("listening")
    assert len(caller.of(PlayoutFlush)) == interrupts


async def test_echo_of_many_words_never_interrupts() -> None:
    async with talking("from the beginning to the end") as (_, caller, _mouth):
        await caller.pause(0.5)
        await caller.say(1.2)
        await caller.wait_for_state("listening")
    flushed = len(caller.of(PlayoutFlush))
    assert flushed <= 1, "its first words alone may be the user's"


async def test_cough_before_the_answer_does_not_swallow_it() -> None:
    """It comes between the question's end and the first sound, and is long enough to stop what is being made."""
    mouth = Mouth("tell me")
    async with world(script=mouth, lines={"*": Line(LONG)}, tts_delay_s=1.5) as w, w.call() as caller:
        await caller.say(0.8)
        await caller.wait_for(InputCommitted)
        await caller.pause(0.2)
        mouth.text = ""
        await caller.say(0.4)
        await caller.wait_for(ResponseDone, 2)
        await caller.wait_for_state("listening")
    assert [done.response.status for done in caller.of(ResponseDone)] == [
        ResponseStatus.CANCELLED,
        ResponseStatus.COMPLETED,
    ]
    assert w.llm.requests[-1].messages[-1].content == "tell me"


async def test_click_after_an_answer_is_not_answered_with_the_last_question() -> None:
    mouth = Mouth("tell me")
    async with world(script=mouth, lines={"*": Line("Yes.")}) as w, w.call() as caller:
        await caller.say(0.8)
        await caller.wait_for(ResponseDone)
        await caller.wait_for_state("listening")
        mouth.text = ""
        await caller.say(0.4)
        await caller.wait_for(TranscriptCompleted, 2)
        await caller.pause(2.0)
    assert len(caller.of(ResponseCreated)) == 1
    assert len(w.llm.requests) == 1


async def test_client_may_commit_a_sound_over_the_bot() -> None:
    async with talking("mhm") as (_, caller, _mouth):
        await caller.say(0.14)
        caller.call.commit_audio()
        await caller.wait_for(InputCommitted)
        await caller.wait_for(ResponseDone, 2)
    assert caller.of(PlayoutFlush) == []
    assert caller.answers()[0] == LONG
    assert caller.of(TranscriptCompleted)[-1].transcript == "mhm"


async def test_bot_that_may_not_be_interrupted_is_not_lowered() -> None:
    async with talking("stop") as (_, caller, _mouth):
        caller.call.update(replace(caller.call.config, turn_detection=ServerVad(interrupt_response=False)))
        before = len(states(caller))
        await caller.say(1.0)
        assert states(caller)[before:] == []
        await caller.wait_for(ResponseDone, 2)
    assert caller.of(PlayoutFlush) == []


async def test_click_after_a_hum_is_no_turn() -> None:
    """The hum before it lies within its pre-roll, and is not its voice."""
    async with world() as w, w.call() as caller:
        caller.call.update(replace(caller.call.config, turn_detection=ServerVad(silence_duration_ms=200)))
        await caller.say(0.16)
        await caller.wait_for(TranscriptCompleted)
        await caller.say(0.06)
        second = await caller.wait_for(TranscriptCompleted, 2)
    assert second.transcript == ""
