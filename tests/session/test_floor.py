"""The floor comes back: whatever ends an answer or a turn, the call listens again, and nothing said is lost."""

from __future__ import annotations

import gc
from dataclasses import replace

import anyio
import numpy as np
import pytest
from tests.session.harness import Caller, world

from duolog.adapters.scripted_asr import in_order
from duolog.adapters.scripted_llm import Line
from duolog.ports.errors import RequestRefused
from duolog.session.call import Call
from duolog.session.config import ResponseOptions, ServerVad
from duolog.session.context import CallContext
from duolog.session.events import (
    AudioDelta,
    CallEvent,
    InputCommitted,
    OutputItemAdded,
    PlayoutFlush,
    ResponseCreated,
    ResponseDone,
    ResponseStatus,
    SpeechStarted,
    StateChanged,
    TranscriptCompleted,
    TranscriptDelta,
)
from duolog.session.listening import Ear
from duolog.session.outbox import Outbox
from duolog.session.turn import Turn
from duolog.turns.conversation import ContentPart, Item, ItemRole, PartKind

pytestmark = pytest.mark.session

LONG = "Well, let me tell you all about it, from the beginning to the end. " * 8


def typed(text: str) -> Item:
    return Item("item_typed", ItemRole.USER, (ContentPart(PartKind.INPUT_TEXT, text),))


async def ask(caller: Caller, text: str = "hi") -> None:
    caller.call.create_item(typed(text), None)
    caller.call.create_response(ResponseOptions())


async def test_answer_deleted_before_its_sound() -> None:
    async with world(lines={"*": Line(LONG)}, tts_delay_s=2.0) as w, w.call() as caller:
        await ask(caller)
        opened = await caller.wait_for(OutputItemAdded)
        caller.call.delete_item(opened.item.id)
        done = await caller.wait_for(ResponseDone)
        await caller.wait_for_state("listening")
    assert done.response.status is ResponseStatus.CANCELLED
    assert caller.of(AudioDelta) == []


async def test_answer_deleted_while_it_is_heard() -> None:
    async with world(lines={"*": Line(LONG)}) as w, w.call() as caller:
        await ask(caller)
        sound = await caller.wait_for(AudioDelta)
        caller.call.delete_item(sound.item_id)
        await caller.wait_for(PlayoutFlush)
        await caller.wait_for_state("listening")
    assert w.llm.running == 0


@pytest.mark.parametrize("plays", [True, False])
async def test_client_that_cuts_an_answer_has_stopped_playing_it(plays: bool) -> None:
    async with world(lines={"*": Line(LONG[:200])}) as w, w.call(plays=plays) as caller:
        await ask(caller)
        done = await caller.wait_for(ResponseDone)
        caller.call.truncate_item(done.response.items[0].id, 0, 1_000)
        await caller.wait_for_state("listening", timeout_s=1)


async def test_turn_that_is_only_transcribed() -> None:
    """Its transcript is there before its end."""
    async with world() as w, w.call() as caller:
        caller.call.update(replace(caller.call.config, turn_detection=ServerVad(create_response=False)))
        await caller.say(1.0)
        await caller.wait_for(TranscriptCompleted)
        await caller.wait_for_state("listening")
        await caller.pause(1.0)
        assert caller.of(ResponseCreated) == []
        caller.call.create_response(ResponseOptions())
        await caller.wait_for(ResponseDone)
    assert w.llm.requests[-1].messages[-1].content == "one two three"


async def test_who_goes_on_before_the_transcript_is_answered_to_all_of_it() -> None:
    """The turn was called over, its transcript is still being made, and the user speaks again: both parts count."""
    async with (
        world(script=in_order("the first half", "and the second"), asr_delay_s=1.2) as w,
        w.call() as caller,
    ):
        await caller.say(1.0)
        await caller.wait_for(InputCommitted)
        await caller.say(1.0)
        await caller.wait_for(ResponseDone)
        await caller.wait_for_state("listening")
    assert [event.transcript for event in caller.of(TranscriptCompleted)] == ["the first half", "and the second"]
    assert len(caller.of(ResponseCreated)) == 1
    assert w.llm.requests[-1].messages[-1].content == "the first half\nand the second"


async def test_text_that_never_sounded_is_not_history() -> None:
    """Interrupted between its first words' text and their sound."""
    async with world(script=in_order("stop"), lines={"hi": Line(LONG)}, tts_delay_s=1.5) as w, w.call() as caller:
        await ask(caller)
        await caller.wait_for(OutputItemAdded)
        await caller.say(0.8)
        await caller.wait_for(ResponseDone, 2)
    assert caller.of(ResponseDone)[0].response.status is ResponseStatus.CANCELLED
    assert [message.content for message in w.llm.requests[-1].messages] == ["Be kind.", "hi\nstop"]


async def test_question_typed_in_a_pause_does_not_strand_what_was_being_said() -> None:
    async with (
        world(script=in_order("what I say"), lines={"hi": Line("Hello yourself.")}, asr_delay_s=0.05) as w,
        w.call() as caller,
    ):
        await caller.say(1.0)
        await caller.pause(0.2)
        await ask(caller)
        await caller.wait_for(ResponseDone, 2)
        await caller.wait_for_state("listening")
    assert len(caller.of(TranscriptCompleted)) == 1
    assert w.llm.running == 0


async def test_captions_over_the_bot_wait_for_the_start_of_speech() -> None:
    async with world(lines={"*": Line(LONG)}) as w, w.call() as caller:
        await ask(caller)
        await caller.wait_for(AudioDelta)
        await caller.pause(1.0)
        await caller.say(2.0)
        await caller.wait_for(ResponseDone, 2)
    order: list[CallEvent] = [event for _, event in caller.events if isinstance(event, SpeechStarted | TranscriptDelta)]
    assert isinstance(order[0], SpeechStarted)
    assert len(order) > 1


async def test_two_utterances_in_one_append_are_two_turns() -> None:
    async with world() as w, w.call() as caller:
        loud = (np.random.default_rng(1).standard_normal(16_000) * 3_000).astype(np.int16)
        still = np.zeros(16_000, np.int16)
        await caller.call.append_audio(np.concatenate([loud, still, loud, still]))
        await caller.hear(ResponseDone)
        await caller.wait_for_state("listening")
    assert len(caller.of(TranscriptCompleted)) == 2
    assert caller.of(StateChanged)[-1].state == "listening"


async def test_greeting_is_refused_while_an_answer_is_made() -> None:
    async with world(lines={"*": Line(LONG)}) as w, w.call() as caller:
        await ask(caller)
        with pytest.raises(RequestRefused) as refused:
            caller.call.greet()
    assert refused.value.code == "conversation_already_has_active_response"


async def test_audio_that_comes_after_the_end_is_nobodys() -> None:
    async with world() as w:
        async with w.call() as caller:
            call = caller.call
        await call.append_audio(np.zeros(320, np.int16))


@pytest.mark.slow
async def test_nothing_of_a_call_is_kept_after_it() -> None:
    async with world(lines={"*": Line(LONG)}) as w:
        for _ in range(3):
            async with w.call() as caller:
                await caller.say(1.0)
                await caller.wait_for(AudioDelta)
            del caller
        w.asr.batches.clear()
        await anyio.sleep(1)
        gc.collect()
        kept = [one for one in gc.get_objects() if type(one) in (Call, CallContext, Ear, Outbox, Turn)]
    assert kept == []
