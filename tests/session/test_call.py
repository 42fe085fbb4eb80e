"""Whole calls in virtual time: turns, order of events, interruptions, failures, resume."""

from __future__ import annotations

from dataclasses import replace

import anyio
import pytest
from tests.session.harness import loudness, persona, world

from duolog.adapters.scripted_asr import count_aloud, in_order
from duolog.adapters.scripted_llm import Fault, Line, ScriptedOptions
from duolog.personas import Endpointing, TurnTaking
from duolog.ports.asr import TranscriptionRequest
from duolog.ports.errors import EngineUnavailable, Overloaded, RequestRefused
from duolog.ports.llm import Role
from duolog.serving.batcher import RequestClass
from duolog.serving.policies.admission import ENGINE_PRIORITY
from duolog.session.config import Modality, ResponseOptions, ServerVad
from duolog.session.engines import CallOptions
from duolog.session.events import (
    AudioDelta,
    CallErrorRaised,
    InputCommitted,
    InputTimedOut,
    ItemDeleted,
    ItemDone,
    PlayoutFlush,
    PlayoutHeard,
    ResponseCreated,
    ResponseDone,
    ResponseStatus,
    SessionCreated,
    SpeechStarted,
    SpeechStopped,
    StateChanged,
    TranscriptCompleted,
    TranscriptDelta,
    TranscriptFailed,
    TurnTimings,
)
from duolog.telemetry import metrics
from duolog.turns.conversation import ContentPart, Item, ItemRole, PartKind

pytestmark = pytest.mark.session

LONG = "Well, let me tell you all about it. " * 14
SHORTER = "Well, let me tell you all about it. " * 4


def typed(text: str, item_id: str = "item_typed") -> Item:
    return Item(item_id, ItemRole.USER, (ContentPart(PartKind.INPUT_TEXT, text),))


async def test_one_spoken_turn() -> None:
    async with (
        world(script=in_order("What is the time?"), lines={"What is the time?": Line("It is noon, my friend.")}) as w,
        w.call() as caller,
    ):
        await caller.pause(0.4)
        await caller.say(1.5)
        done = await caller.wait_for(ResponseDone)
        await caller.wait_for_state("listening")
    assert done.response.status is ResponseStatus.COMPLETED
    assert caller.answers() == ["It is noon, my friend."]
    assert caller.of(TranscriptCompleted)[0].transcript == "What is the time?"
    assert loudness(caller.of(AudioDelta)) > 1_000
    assert caller.names() == [
        "SpeechStarted",
        "TranscriptDelta",
        "SpeechStopped",
        "InputCommitted",
        "ItemAdded",
        "ItemDone",
        "TranscriptCompleted",
        "ResponseCreated",
        "OutputItemAdded",
        "ContentPartAdded",
        "TextDelta",
        "AudioDone",
        "TextDone",
        "ContentPartDone",
        "OutputItemDone",
        "ResponseDone",
    ]
    states = [event.state for event in caller.of(StateChanged)]
    assert states == ["hearing", "thinking", "speaking", "listening"]


async def test_answer_is_ready_before_the_turn_ends() -> None:
    """Everything is made during the 500 ms of silence; the first audio leaves with the endpoint."""
    async with world() as w, w.call() as caller:
        await caller.say(1.2)
        timings = await caller.wait_for(TurnTimings)
    assert timings.endpoint_ms == pytest.approx(500, abs=40)
    assert len([request for batch in w.asr.batches for request in batch if not request.partial]) == 1, (
        "one transcript serves the guess and the turn: no other, differently written, can drop the work"
    )
    assert len(w.llm.requests) == 1
    assert timings.first_audio_ms is not None
    assert timings.first_audio_sent_ms is not None
    assert timings.first_audio_ms < 400
    assert timings.first_audio_sent_ms - (timings.endpoint_ms or 0) < 5
    assert timings.speculation == "used"


async def test_an_answer_made_ahead_is_a_guess_until_its_turn_is_committed() -> None:
    slow = ScriptedOptions(lines={"*": Line("One two three four five six seven.")}, token_s=0.3)
    async with world(llm_options=slow) as w, w.call() as caller:
        await caller.say(1.2)
        await caller.pause(0.4)
        assert w.batcher.snapshot().in_flight[RequestClass.SPECULATIVE] == 1
        await caller.wait_for(InputCommitted)
        running = w.batcher.snapshot().in_flight
        assert (running[RequestClass.SPECULATIVE], running[RequestClass.FINAL]) == (0, 1)
        await caller.wait_for(ResponseDone)
    assert [request.priority for request in w.llm.requests] == [ENGINE_PRIORITY[RequestClass.SPECULATIVE]]


async def test_speech_that_goes_on_frees_the_engines_at_once() -> None:
    slow = ScriptedOptions(lines={"*": Line("One two three four five six seven.")}, token_s=0.3)
    async with world(llm_options=slow) as w, w.call() as caller:
        await caller.say(1.2)
        await caller.pause(0.4)
        assert w.llm.running == 1
        before = metrics.SPECULATIONS.labels("wasted")._value.get()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(caller.say, 0.6)
            while metrics.SPECULATIONS.labels("wasted")._value.get() == before:  # noqa: ASYNC110 - a counter wakes nobody
                await anyio.sleep(0.001)
            await anyio.sleep(0.02)
            assert w.llm.running == 0
            assert not any(w.batcher.snapshot().queued.values())
        await caller.wait_for(ResponseDone)
        timings = await caller.wait_for(TurnTimings)
    assert (timings.speculation, timings.wasted_speculations) == ("used", 1)


async def test_a_caption_that_nobody_can_have_said_is_not_shown() -> None:
    def loop(request: TranscriptionRequest) -> str:
        return "Thank you. " * 12 if request.partial else count_aloud(request)

    async with world(script=loop) as w, w.call() as caller:
        before = metrics.DROPS.labels("caption", "compressible")._value.get()
        await caller.say(2.0)
        await caller.wait_for(TranscriptCompleted)
        assert metrics.DROPS.labels("caption", "compressible")._value.get() > before
    assert caller.of(TranscriptDelta) == []
    assert caller.of(TranscriptCompleted)[0].transcript == "one two three four five"


async def test_pause_inside_a_turn_does_not_end_it() -> None:
    async with world() as w, w.call() as caller:
        await caller.say(0.8)
        await caller.pause(0.35)
        await caller.say(0.8)
        await caller.wait_for(ResponseDone)
    assert len(caller.of(InputCommitted)) == 1
    assert len(caller.of(SpeechStarted)) == 1
    assert caller.of(TranscriptCompleted)[0].transcript == "one two three four"
    assert len(w.llm.requests) == 2, "the first was speculation, dropped when the user went on"
    assert w.llm.running == 0


async def test_history_grows_turn_by_turn() -> None:
    lines = {"*": Line("Fine, thank you.")}
    async with world(script=in_order("hello", "how are you?"), lines=lines) as w, w.call() as caller:
        for number in (1, 2):
            await caller.say(1.0)
            await caller.wait_for(ResponseDone, number)
            await caller.wait_for_state("listening")
    messages = [(message.role, message.content) for message in w.llm.requests[-1].messages]
    assert messages == [
        (Role.SYSTEM, "Be kind."),
        (Role.USER, "hello"),
        (Role.ASSISTANT, "Fine, thank you."),
        (Role.USER, "how are you?"),
    ]


async def test_silence_and_a_click_are_no_turn() -> None:
    async with world() as w, w.call() as caller:
        await caller.pause(1.0)
        await caller.say(0.02)
        await caller.pause(2.0)
    assert caller.of(SpeechStarted) == []
    assert w.llm.requests == []


async def test_transcript_that_the_gate_drops_is_no_turn() -> None:
    """100 ms of voice: the recogniser may say what it likes."""
    async with world(script=in_order("Thanks for watching!")) as w, w.call() as caller:
        await caller.say(0.1)
        await caller.wait_for(TranscriptCompleted)
        await caller.pause(1.0)
    assert caller.of(TranscriptCompleted)[0].transcript == ""
    assert len(caller.of(ItemDeleted)) == 1
    assert caller.of(ResponseDone) == []
    assert caller.of(StateChanged)[-1].state == "listening"


async def test_barge_in_silences_the_bot_and_cuts_history_to_what_was_heard() -> None:
    async with (
        world(
            script=in_order("tell me", "stop it please"), lines={"tell me": Line(LONG), "*": Line("All right then.")}
        ) as w,
        w.call() as caller,
    ):
        await caller.say(1.0)
        await caller.wait_for(AudioDelta)
        await caller.pause(3.0)
        spoken_at = anyio.current_time()
        await caller.say(1.0)
        flush = await caller.wait_for(PlayoutFlush)
        await caller.wait_for(ResponseDone, 2)
        heard = caller.of(PlayoutHeard)
    first = caller.of(ResponseDone)[0].response
    assert first.status is ResponseStatus.CANCELLED
    assert first.reason == "turn_detected"
    assert flush.generation == 2
    assert caller.when(flush) - spoken_at < 0.35
    cut = next(event for event in reversed(heard) if event.item_id == first.items[0].id)
    assert LONG.startswith(cut.heard_text)
    assert 10 < len(cut.heard_text) < len(LONG) / 2
    history = [message.content for message in w.llm.requests[-1].messages if message.role is Role.ASSISTANT]
    assert history == [cut.heard_text]


async def test_barge_in_after_the_answer_was_made_still_cuts_its_history() -> None:
    async with (
        world(script=in_order("tell me", "stop"), lines={"tell me": Line(SHORTER), "*": Line("All right.")}) as w,
        w.call() as caller,
    ):
        await caller.say(1.0)
        first = await caller.wait_for(ResponseDone)
        await caller.pause(1.0)
        await caller.say(1.0)
        await caller.wait_for(ResponseDone, 2)
    assert first.response.status is ResponseStatus.COMPLETED
    history = [message.content for message in w.llm.requests[-1].messages if message.role is Role.ASSISTANT]
    assert 0 < len(history[0]) < len(SHORTER) / 2


async def test_heard_words_match_the_played_samples_exactly() -> None:
    """The scripted voice says where each word ends; the history ends with the last one that ended."""
    async with world(lines={"*": Line(LONG)}) as w, w.call() as caller:
        await caller.say(1.0)
        await caller.wait_for(AudioDelta)
        await caller.pause(2.0)
        await caller.say(0.6)
        await caller.wait_for(PlayoutFlush)
        await caller.pause(0.3)
        cut = [event for event in caller.of(PlayoutHeard) if not event.approximate][-1]
    played_ms, text = cut.played_ms, cut.heard_text
    words = LONG.split()
    end_ms, expected = 0.0, []
    for word in words:
        letters = len(word)
        if end_ms + letters * 60 > played_ms:
            break
        expected.append(word)
        end_ms += letters * 60 + 40
    assert abs(len(text.split()) - len(expected)) <= 1


async def test_cough_over_the_bot_does_not_stop_it() -> None:
    async with world(lines={"*": Line(LONG)}) as w, w.call() as caller:
        await caller.say(1.0)
        await caller.wait_for(AudioDelta)
        await caller.pause(4.0)
        await caller.say(0.12)
        await caller.wait_for_state("listening")
    assert caller.of(PlayoutFlush) == []
    assert caller.answers() == [LONG]
    assert [event.state for event in caller.of(StateChanged)][-4:] == ["speaking", "hearing", "speaking", "listening"]
    assert len(caller.of(SpeechStarted)) == 1, "clients stop playing on it, so a cough must not send it"


async def test_bot_that_may_not_be_interrupted_finishes_and_then_answers() -> None:
    patience = TurnTaking(endpointing=Endpointing.SILENCE, silence_ms=500, interruptible=False)
    one = persona(turn_taking=patience)
    async with world(lines={"*": Line(LONG)}, one=one) as w, w.call() as caller:
        await caller.say(1.0)
        await caller.wait_for(AudioDelta)
        await caller.pause(1.0)
        await caller.say(1.0)
        await caller.wait_for(ResponseDone, 2)
    assert caller.of(PlayoutFlush) == []
    assert len(caller.of(TranscriptCompleted)) == 2


async def test_greeting_is_spoken_first_and_kept() -> None:
    async with world() as w, w.call(greet=True) as caller:
        await caller.wait_for(ResponseDone)
        await caller.wait_for_state("listening")
        await caller.say(1.0)
        await caller.wait_for(ResponseDone, 2)
    assert caller.answers()[0] == "Hello there, friend."
    assert w.llm.requests[-1].messages[1].content == "Hello there, friend."


async def test_typed_message_is_answered() -> None:
    async with world(lines={"Hi": Line("Hello yourself.")}) as w, w.call() as caller:
        caller.call.create_item(typed("Hi"), None)
        caller.call.create_response(ResponseOptions())
        await caller.wait_for(ResponseDone)
    assert caller.answers() == ["Hello yourself."]


async def test_text_answers_make_no_sound() -> None:
    async with world(lines={"Hi": Line("Hello yourself.")}) as w, w.call() as caller:
        caller.call.create_item(typed("Hi"), None)
        caller.call.create_response(ResponseOptions(output_modality=Modality.TEXT))
        await caller.wait_for(ResponseDone)
        assert caller.of(StateChanged)[-1].state == "listening"
    assert caller.answers() == ["Hello yourself."]
    assert caller.of(AudioDelta) == []


async def test_second_answer_is_refused_while_one_is_made() -> None:
    async with world(lines={"*": Line(LONG)}) as w, w.call() as caller:
        caller.call.create_response(ResponseOptions())
        await caller.wait_for(ResponseCreated)
        with pytest.raises(RequestRefused) as refused:
            caller.call.create_response(ResponseOptions())
        assert refused.value.code == "conversation_already_has_active_response"


async def test_cancel_stops_the_answer_and_refuses_when_idle() -> None:
    async with world(lines={"*": Line(LONG)}) as w, w.call() as caller:
        with pytest.raises(RequestRefused) as refused:
            caller.call.cancel_response(None)
        assert refused.value.code == "response_cancel_not_active"
        caller.call.create_response(ResponseOptions())
        await caller.wait_for(AudioDelta)
        caller.call.cancel_response(None)
        done = await caller.wait_for(ResponseDone)
        assert done.response.status is ResponseStatus.CANCELLED
        assert done.response.reason == "client_cancelled"
        assert caller.of(StateChanged)[-1].state == "listening"
        audio = len(caller.of(AudioDelta))
        await caller.pause(1.0)
        assert len(caller.of(AudioDelta)) == audio
    assert w.llm.running == 0


async def test_new_answer_may_be_asked_for_right_after_a_cancel() -> None:
    async with world(lines={"Hi": Line("Hello yourself."), "*": Line(LONG)}) as w, w.call() as caller:
        caller.call.create_response(ResponseOptions())
        await caller.wait_for(AudioDelta)
        caller.call.cancel_response(None)
        caller.call.create_item(typed("Hi"), None)
        caller.call.create_response(ResponseOptions())
        await caller.wait_for(ResponseDone, 2)
    assert caller.answers()[1] == "Hello yourself."


async def test_manual_turn_is_committed_by_the_client() -> None:
    async with world(script=in_order("pushed to talk")) as w, w.call() as caller:
        caller.call.update(replace(caller.call.config, turn_detection=None))
        with pytest.raises(RequestRefused) as refused:
            caller.call.commit_audio()
        assert refused.value.code == "input_audio_buffer_commit_empty"
        await caller.say(1.0)
        await caller.pause(1.5)
        assert caller.of(InputCommitted) == []
        caller.call.commit_audio()
        caller.call.create_response(ResponseOptions())
        await caller.wait_for(ResponseDone)
    assert [message.content for message in w.llm.requests[-1].messages][-1] == "pushed to talk"
    assert caller.of(SpeechStarted) == []


async def test_audio_that_stops_in_the_middle_of_a_word_ends_the_turn() -> None:
    async with world() as w, w.call() as caller:
        await caller.say(1.0)
        await caller.hear(ResponseDone)
    assert len(caller.of(SpeechStopped)) == 1


@pytest.mark.parametrize("fault", [Fault.REFUSE, Fault.UNREACHABLE, Fault.TIME_OUT])
async def test_failed_model_ends_in_the_personas_apology(fault: Fault) -> None:
    async with world(lines={"*": Line("x", fault)}) as w, w.call() as caller:
        await caller.say(1.0)
        done = await caller.wait_for(ResponseDone)
        await caller.wait_for_state("listening")
    assert done.response.status is ResponseStatus.FAILED
    assert done.response.error
    assert caller.answers() == ["Sorry, my mind went blank."]
    assert loudness(caller.of(AudioDelta)) > 1_000
    assert caller.of(CallErrorRaised)


async def test_model_that_dies_in_mid_sentence_is_apologised_for() -> None:
    async with world(lines={"*": Line(LONG, Fault.DIE_MIDWAY)}) as w, w.call() as caller:
        await caller.say(1.0)
        done = await caller.wait_for(ResponseDone)
    assert done.response.status is ResponseStatus.FAILED
    assert caller.answers()[0].rstrip().endswith("Sorry, my mind went blank.")


async def test_call_goes_on_after_a_failed_answer() -> None:
    async with (
        world(script=in_order("bad", "good"), lines={"bad": Line("x", Fault.REFUSE), "good": Line("Better now.")}) as w,
        w.call() as caller,
    ):
        await caller.say(1.0)
        await caller.wait_for(ResponseDone)
        await caller.wait_for_state("listening")
        await caller.say(1.0)
        await caller.wait_for(ResponseDone, 2)
    assert caller.answers()[1] == "Better now."


async def test_failed_recogniser_is_told_and_apologised_for() -> None:
    async with world() as w, w.call() as caller:
        await caller.pause(0.2)
        w.asr.fail_next(EngineUnavailable("no recogniser", engine="asr"))
        w.asr.fail_next(EngineUnavailable("no recogniser", engine="asr"))
        w.asr.fail_next(EngineUnavailable("no recogniser", engine="asr"))
        await caller.say(0.6)
        await caller.wait_for(TranscriptFailed)
        done = await caller.wait_for(ResponseDone)
    assert done.response.status is ResponseStatus.FAILED


async def test_failed_voice_ends_the_answer_and_the_call_goes_on() -> None:
    async with world(lines={"*": Line("Here I am.")}) as w, w.call() as caller:
        w.tts.fail_next(EngineUnavailable("no voice", engine="tts"))
        await caller.say(1.0)
        done = await caller.wait_for(ResponseDone)
        assert done.response.status is ResponseStatus.FAILED
        await caller.say(1.0)
        done = await caller.wait_for(ResponseDone, 2)
    assert done.response.status is ResponseStatus.COMPLETED


async def test_dropped_call_is_resumed_with_its_history() -> None:
    async with world(script=in_order("remember me"), lines={"*": Line("I will, gladly.")}) as w:
        async with w.call() as caller:
            await caller.say(1.0)
            await caller.wait_for(ResponseDone)
            await caller.wait_for_state("listening")
            session_id = caller.call.session_id
        await anyio.sleep(1)
        async with w.call(resume=session_id, greet=True) as again:
            await again.wait_for(ItemDone, 2)
            created = again.of(SessionCreated)[0]
            await again.pause(2.0)
    assert created.resumed
    assert again.call.session_id == session_id
    assert [done.item.text for done in again.of(ItemDone)] == ["remember me", "I will, gladly."]
    assert again.of(ResponseDone) == [], "a resumed call is not greeted again"


async def test_calls_beyond_the_cap_are_refused_with_a_time() -> None:
    async with world(max_calls=1) as w, w.call():
        with pytest.raises(Overloaded, match=r"^The one line of this server is taken\.$") as refused:
            async with w.call():
                pass
        assert refused.value.retry_after_s > 0
    assert w.switchboard.active == 0


async def test_muted_microphone_is_silence() -> None:
    async with world() as w, w.call() as caller:
        caller.call.set_muted(True)
        await caller.say(2.0)
        await caller.pause(1.0)
    assert caller.of(SpeechStarted) == []


async def test_captions_only_grow_and_begin_the_final_transcript() -> None:
    async with world() as w, w.call() as caller:
        await caller.say(4.0)
        done = await caller.wait_for(TranscriptCompleted)
    caption = "".join(event.delta for event in caller.of(TranscriptDelta))
    assert len(caption.split()) >= 4
    assert done.transcript.startswith(caption)


async def test_client_without_playout_reports_is_followed_by_the_clock() -> None:
    async with world(lines={"*": Line(LONG)}) as w, w.call(plays=False) as caller:
        await caller.say(1.0)
        await caller.wait_for(AudioDelta)
        await caller.pause(2.0)
        await caller.say(1.0)
        await caller.wait_for(PlayoutFlush)
    cut = caller.of(PlayoutHeard)[-1]
    assert cut.approximate
    assert 0 < len(cut.heard_text) < len(LONG)


async def test_speculation_is_bounded() -> None:
    async with world(options=CallOptions(max_speculations=2)) as w, w.call() as caller:
        for _ in range(5):
            await caller.say(0.4)
            await caller.pause(0.3)
        await caller.wait_for(ResponseDone)
    assert len(w.llm.requests) == 3, "two ahead of time, one when the turn had ended"


async def test_bot_speaks_up_once_when_nobody_says_anything() -> None:
    one = persona(turn_taking=TurnTaking(endpointing=Endpointing.SILENCE, silence_ms=500, idle_prompt_s=8.0))
    async with world(lines={"*": Line("Are you still there?")}, one=one) as w, w.call() as caller:
        await caller.pause(30)
        assert len(caller.of(ResponseDone)) == 1
        assert len(caller.of(InputTimedOut)) == 1
        assert caller.when(caller.of(InputTimedOut)[0]) == pytest.approx(8, abs=1)
        await caller.say(1.0)
        await caller.wait_for(ResponseDone, 2)
        await caller.pause(20)
    assert len(caller.of(ResponseDone)) == 3, "once more after the user has spoken again"


async def test_nobody_is_asked_where_no_time_is_set() -> None:
    async with world() as w, w.call() as caller:
        await caller.pause(60)
    assert caller.of(ResponseDone) == []


async def test_settings_choose_the_language_and_the_voice_threshold() -> None:
    async with world(options=CallOptions(language="de", vad_threshold=0.7)) as w, w.call() as caller:
        config = caller.call.config
    assert config.language == "de"
    assert isinstance(config.turn_detection, ServerVad)
    assert config.turn_detection.threshold == 0.7


async def test_captions_of_a_long_utterance_decode_only_its_end() -> None:
    async with world() as w, w.call() as caller:
        for _ in range(6):
            await caller.say(4.0)
            await caller.pause(0.3)
        await caller.wait_for(TranscriptCompleted)
    decoded_s = [len(request.samples) / 16_000 for batch in w.asr.batches for request in batch if request.partial]
    assert max(decoded_s) <= 11.0
    caption = "".join(event.delta for event in caller.of(TranscriptDelta))
    assert len(caption.split()) > 40, "two and a half words a second"
