"""What an answer is asked for with, and what is told when it ends."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.session.harness import Caller, persona, world

from duolog.adapters.scripted_llm import Fault, Line
from duolog.ports.errors import EngineUnavailable
from duolog.ports.llm import Sampling
from duolog.session.config import Modality, ResponseOptions
from duolog.session.events import (
    AudioDelta,
    CallErrorRaised,
    ItemAdded,
    OutputItemAdded,
    ResponseCreated,
    ResponseDone,
    ResponseStatus,
    TurnTimings,
)
from duolog.turns.conversation import ContentPart, Item, ItemRole, PartKind

pytestmark = pytest.mark.session


def typed(item_id: str, text: str) -> Item:
    return Item(item_id, ItemRole.USER, (ContentPart(PartKind.INPUT_TEXT, text),))


async def answered(caller: Caller, options: ResponseOptions) -> ResponseDone:
    caller.call.create_item(typed("item_hi", "hi"), None)
    caller.call.create_response(options)
    return await caller.wait_for(ResponseDone)


async def test_options_of_one_response_stand_above_the_session() -> None:
    async with world() as w, w.call() as caller:
        options = ResponseOptions(
            instructions="Be terse.",
            max_output_tokens=7,
            output_modality=Modality.TEXT,
            metadata=(("key", "value"),),
        )
        done = await answered(caller, options)
        caller.call.create_response(ResponseOptions())
        await caller.wait_for(ResponseDone, 2)
    first, second = [request for request in w.llm.requests if not request.prefill]
    assert first.messages[0].content == "Be terse."
    assert first.sampling.max_tokens == 7
    assert done.response.metadata == (("key", "value"),)
    assert done.response.max_output_tokens == 7
    assert done.response.modality is Modality.TEXT
    assert second.messages[0].content == "Be kind."
    assert second.sampling.max_tokens == 400


async def test_session_update_holds_from_the_next_answer_on() -> None:
    async with world(one=persona(sampling=Sampling(max_tokens=50))) as w, w.call() as caller:
        changed = replace(caller.call.config, instructions="Be odd.", speed=2.0, output_modality=Modality.AUDIO)
        caller.call.update(changed)
        await answered(caller, ResponseOptions())
    asked = [request for request in w.llm.requests if not request.prefill][-1]
    assert asked.messages[0].content == "Be odd."
    assert asked.sampling.max_tokens == 50
    assert {request.speed for request in w.tts.requests} == {2.0}


async def test_answer_out_of_band_stays_out_of_the_conversation() -> None:
    async with world() as w, w.call() as caller:
        await answered(caller, ResponseOptions(out_of_band=True))
        assert caller.of(OutputItemAdded)[0].out_of_band
        caller.call.create_response(ResponseOptions())
        await caller.wait_for(ResponseDone, 2)
    asked = [request for request in w.llm.requests if not request.prefill][-1]
    assert [message.content for message in asked.messages] == ["Be kind.", "hi"]


async def test_response_to_chosen_items_sees_nothing_else() -> None:
    async with world() as w, w.call() as caller:
        caller.call.create_item(typed("item_other", "not this"), None)
        await answered(caller, ResponseOptions(input_items=("item_hi",)))
    asked = [request for request in w.llm.requests if not request.prefill][-1]
    assert [message.content for message in asked.messages] == ["Be kind.", "hi"]


async def test_response_to_items_that_never_enter_the_conversation() -> None:
    async with world() as w, w.call() as caller:
        caller.call.create_item(typed("item_other", "not this"), None)
        judge = typed("item_judge", "Was that polite?")
        await answered(caller, ResponseOptions(input_items=(judge, "item_hi", "item_unknown"), out_of_band=True))
        assert [item.id for item in caller.call._context.items.conversation] == ["item_other", "item_hi"]
    asked = [request for request in w.llm.requests if not request.prefill][-1]
    assert [message.role.value for message in asked.messages] == ["system", "user"]
    assert asked.messages[-1].content.split("\n") == ["Was that polite?", "hi"]


async def test_spoken_turn_is_timed_once_and_typed_ones_are_not() -> None:
    async with world() as w, w.call() as caller:
        await caller.say(1.0)
        await caller.wait_for(ResponseDone)
        await caller.wait_for_state("listening")
        caller.call.create_item(typed("item_hi", "hi"), None)
        caller.call.create_response(ResponseOptions())
        await caller.wait_for(ResponseDone, 2)
        await caller.wait_for_state("listening")
    (timings,) = caller.of(TurnTimings)
    user = next(event.item for event in caller.of(ItemAdded) if event.item.role is ItemRole.USER)
    assert timings.item_id == user.id
    assert timings.response_id == caller.of(ResponseCreated)[0].response.id
    marks = [
        timings.transcript_ms,
        timings.admitted_ms,
        timings.first_token_ms,
        timings.first_phrase_ms,
        timings.first_audio_ms,
        timings.first_audio_sent_ms,
    ]
    assert None not in marks
    assert marks == sorted(marks, key=lambda mark: mark or 0.0)


async def test_failed_answer_is_told_beside_its_end() -> None:
    async with world(lines={"hi": Line("x", Fault.REFUSE)}) as w, w.call() as caller:
        done = await answered(caller, ResponseOptions())
    (error,) = caller.of(CallErrorRaised)
    assert error.code == "answer_failed"
    assert done.response.error == error.message
    assert caller.answers() == ["Sorry, my mind went blank."]


async def test_unknown_voice_fails_the_answer_and_says_which_there_are() -> None:
    async with world() as w, w.call() as caller:
        done = await answered(caller, ResponseOptions(voice="nobody"))
    assert done.response.status is ResponseStatus.FAILED
    assert "scripted" in (done.response.error or "")
    assert caller.of(AudioDelta) == []


async def test_speech_that_could_not_be_transcribed_is_apologised_for() -> None:
    async with world() as w, w.call() as caller:
        for _ in range(4):
            w.asr.fail_next(EngineUnavailable("no recogniser", engine="asr"))
        await caller.say(0.8)
        done = await caller.wait_for(ResponseDone)
    assert done.response.status is ResponseStatus.FAILED
    assert done.response.error == "The user's speech could not be transcribed."
    assert caller.answers() == ["Sorry, my mind went blank."]
    assert not [request for request in w.llm.requests if not request.prefill]
