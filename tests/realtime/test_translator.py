"""Call events as a plain client and as one with extensions sees them: order, fields, strictness."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
from tests.realtime.fake_call import CONFIG
from tests.realtime.strict import check_pipecat, openai_event, openai_session

from duolog.ports.llm import TokenUsage
from duolog.realtime.audio_format import AudioFormat, Encoding
from duolog.realtime.frames import Frame
from duolog.realtime.session_update import EffectiveSession
from duolog.realtime.translator import Translator
from duolog.realtime.wire_session import SessionKind, WireSession
from duolog.session.config import Modality, SemanticVad, SessionConfig
from duolog.session.events import (
    AudioDelta,
    AudioDone,
    CallErrorRaised,
    CallEvent,
    ContentPartAdded,
    ContentPartDone,
    InputCleared,
    InputCommitted,
    InputTimedOut,
    ItemAdded,
    ItemDeleted,
    ItemDone,
    ItemRetrieved,
    ItemTruncated,
    OutputItemAdded,
    OutputItemDone,
    PlayoutFlush,
    PlayoutHeard,
    ResponseCreated,
    ResponseDone,
    ResponseInfo,
    ResponseStatus,
    SessionCreated,
    SessionUpdated,
    SpeechAnnounced,
    SpeechStarted,
    SpeechStopped,
    StateChanged,
    TextDelta,
    TextDone,
    TranscriptCompleted,
    TranscriptDelta,
    TranscriptFailed,
    TurnTimings,
)
from duolog.turns.conversation import ContentPart, Item, ItemRole, ItemStatus, PartKind

pytestmark = pytest.mark.pure

QUESTION = Item("item_q", ItemRole.USER, (ContentPart(PartKind.INPUT_AUDIO, None),))
ANSWER = Item("item_a", ItemRole.ASSISTANT, (), ItemStatus.IN_PROGRESS)
SPOKEN = replace(ANSWER, parts=(ContentPart(PartKind.OUTPUT_AUDIO, "It is noon."),), status=ItemStatus.COMPLETED)
RESPONSE = ResponseInfo("resp_1", ResponseStatus.IN_PROGRESS, Modality.AUDIO, metadata=(("turn", "1"),))
SAMPLES = np.arange(6_000, dtype=np.int16)
TIMINGS = TurnTimings("resp_1", "item_q", 3, 16_000, 500.0, 90.0, 91.0, 120.0, 180.0, 250.0, None, 40, 32, 500, "used")

SPOKEN_TURN: tuple[CallEvent, ...] = (
    SpeechStarted("item_q", 300),
    StateChanged("hearing"),
    TranscriptDelta("item_q", "what time"),
    SpeechStopped("item_q", 1_400),
    InputCommitted("item_q", None),
    ItemAdded(QUESTION, None),
    ItemDone(QUESTION, None),
    TranscriptCompleted("item_q", "What time is it?", 1.1),
    ResponseCreated(RESPONSE),
    OutputItemAdded("resp_1", ANSWER, "item_q"),
    ContentPartAdded("resp_1", "item_a", PartKind.OUTPUT_AUDIO),
    TextDelta("resp_1", "item_a", PartKind.OUTPUT_AUDIO, "It is noon."),
    SpeechAnnounced(3, "resp_1", "item_a", 24_000),
    AudioDelta("resp_1", "item_a", 3, 0, SAMPLES, 24_000),
    TIMINGS,
    AudioDone("resp_1", "item_a", 3, 6_000),
    TextDone("resp_1", "item_a", PartKind.OUTPUT_AUDIO, "It is noon."),
    ContentPartDone("resp_1", "item_a", PartKind.OUTPUT_AUDIO, "It is noon."),
    OutputItemDone("resp_1", SPOKEN, "item_q"),
    ResponseDone(replace(RESPONSE, status=ResponseStatus.COMPLETED, items=(SPOKEN,), usage=TokenUsage(40, 32, 5))),
)

EVERY_EVENT: tuple[CallEvent, ...] = (
    SessionCreated(CONFIG, resumed=False),
    SessionUpdated(CONFIG),
    *SPOKEN_TURN,
    TextDelta("resp_1", "item_a", PartKind.OUTPUT_TEXT, "x"),
    TextDone("resp_1", "item_a", PartKind.OUTPUT_TEXT, "x"),
    ContentPartAdded("resp_1", "item_a", PartKind.OUTPUT_TEXT),
    InputCleared(),
    InputTimedOut("item_t", 0, 5_000),
    ItemDeleted("item_q"),
    ItemTruncated("item_a", 0, 640),
    ItemRetrieved(SPOKEN),
    TranscriptFailed("item_q", "asr_failed", "The recognizer failed."),
    PlayoutFlush(4),
    PlayoutHeard("item_a", "It is", 200, approximate=False),
    CallErrorRaised("llm_unavailable", "The language model does not answer."),
)


def translator(*, extensions: bool = False, config: SessionConfig = CONFIG, **wire: Any) -> Translator:
    session = replace(WireSession.initial("sess_1", 1_800_003_600, config), **wire)
    return Translator(EffectiveSession(config, session), extensions=extensions)


def sent(speaker: Translator, events: Sequence[CallEvent]) -> list[dict[str, Any]]:
    """The JSON objects as they arrive; binary frames left out."""
    frames = [frame for event in events for frame in speaker.translate(event)]
    return [json.loads(frame.encoded()) for frame in frames if not isinstance(frame.payload, bytes)]


def types(messages: Sequence[dict[str, Any]]) -> list[str]:
    return [message["type"] for message in messages]


def only(frames: list[Frame]) -> dict[str, Any]:
    (frame,) = frames
    message: dict[str, Any] = json.loads(frame.encoded())
    return message


def test_spoken_turn_in_the_order_clients_rely_on() -> None:
    assert types(sent(translator(), SPOKEN_TURN)) == [
        "input_audio_buffer.speech_started",
        "conversation.item.input_audio_transcription.delta",
        "input_audio_buffer.speech_stopped",
        "input_audio_buffer.committed",
        "conversation.item.added",
        "conversation.item.done",
        "conversation.item.input_audio_transcription.completed",
        "response.created",
        "response.output_item.added",
        "conversation.item.added",
        "response.content_part.added",
        "response.output_audio_transcript.delta",
        "response.output_audio.delta",
        "response.output_audio.delta",
        "response.output_audio.done",
        "response.output_audio_transcript.done",
        "response.content_part.done",
        "conversation.item.done",
        "response.output_item.done",
        "response.done",
    ]


def test_extension_client_gets_binary_speech_and_its_own_events() -> None:
    speaker = translator(extensions=True)
    names = types(sent(speaker, SPOKEN_TURN))
    assert "response.output_audio.delta" not in names
    assert names[1] == "duolog.state"
    assert names.index("duolog.speech.started") < names.index("duolog.turn.timings")
    frames = translator(extensions=True).translate(AudioDelta("resp_1", "item_a", 3, 100, SAMPLES, 24_000))
    assert [frame.generation for frame in frames] == [3, 3]
    heads = [struct.unpack_from("<BBHII", frame.payload) for frame in frames if isinstance(frame.payload, bytes)]
    assert heads == [(2, 0, 0, 3, 100), (2, 0, 0, 3, 4_900)]
    bodies = b"".join(frame.payload[12:] for frame in frames if isinstance(frame.payload, bytes))
    assert np.array_equal(np.frombuffer(bodies, "<i2"), SAMPLES)


def test_no_extension_reaches_a_plain_client() -> None:
    assert not [name for name in types(sent(translator(), EVERY_EVENT)) if name.startswith("duolog.")]


def test_every_call_event_has_a_translation() -> None:
    assert {type(event) for event in EVERY_EVENT} == set(get_args(CallEvent))
    sent(translator(extensions=True), EVERY_EVENT)


def test_every_event_fits_the_official_types() -> None:
    for message in sent(translator(), EVERY_EVENT):
        openai_event(message)
        if "session" in message:
            openai_session(message["session"])


def test_every_event_fits_pipecat() -> None:
    for message in sent(translator(), EVERY_EVENT):
        if message["type"] != "input_audio_buffer.timeout_triggered":  # Sent only where the client set the timeout.
            check_pipecat(message)


def test_event_ids_are_unique() -> None:
    ids = [message["event_id"] for message in sent(translator(extensions=True), EVERY_EVENT)]
    assert len(set(ids)) == len(ids)


def test_audio_of_a_plain_client_is_base64_in_the_session_format() -> None:
    frames = translator().translate(AudioDelta("resp_1", "item_a", 3, 0, SAMPLES, 24_000))
    payload = b"".join(base64.b64decode(json.loads(frame.encoded())["delta"]) for frame in frames)
    assert np.array_equal(np.frombuffer(payload, "<i2"), SAMPLES)
    assert [frame.generation for frame in frames] == [3, 3]
    law = translator(output_format=AudioFormat(Encoding.MU_LAW, 8_000))
    frames = law.translate(AudioDelta("resp_1", "item_a", 3, 0, SAMPLES[:800], 8_000))
    assert len(base64.b64decode(only(frames)["delta"])) == 800


def test_a_response_keeps_the_format_it_began_with() -> None:
    speaker = translator()
    speaker.translate(ResponseCreated(RESPONSE))
    wire = replace(speaker.session.wire, output_format=AudioFormat(Encoding.MU_LAW, 8_000))
    speaker.session = replace(speaker.session, wire=wire)
    delta = only(speaker.translate(AudioDelta("resp_1", "item_a", 1, 0, SAMPLES[:240], 24_000)))["delta"]
    assert len(base64.b64decode(delta)) == 480
    done = only(speaker.translate(ResponseDone(replace(RESPONSE, status=ResponseStatus.COMPLETED))))
    assert done["response"]["audio"]["output"]["format"] == {"type": "audio/pcm", "rate": 24_000}


def test_empty_audio_sends_nothing() -> None:
    assert translator().translate(AudioDelta("resp_1", "item_a", 3, 0, SAMPLES[:0], 24_000)) == []


def test_previous_item_is_null_where_the_client_never_saw_it() -> None:
    speaker = translator()
    added = only(speaker.translate(ItemAdded(QUESTION, "item_of_the_resumed_past")))
    assert added["previous_item_id"] is None
    following = only(speaker.translate(ItemAdded(SPOKEN, "item_q")))
    assert following["previous_item_id"] == "item_q"
    speaker.translate(ItemDeleted("item_q"))
    assert only(speaker.translate(ItemDone(SPOKEN, "item_q")))["previous_item_id"] is None


@pytest.mark.parametrize(
    ("status", "reason", "error", "details"),
    [
        (ResponseStatus.COMPLETED, None, None, None),
        (ResponseStatus.CANCELLED, "turn_detected", None, {"type": "cancelled", "reason": "turn_detected"}),
        (ResponseStatus.CANCELLED, "item_deleted", None, {"type": "cancelled", "reason": "client_cancelled"}),
        (ResponseStatus.INCOMPLETE, "max_output_tokens", None, {"type": "incomplete", "reason": "max_output_tokens"}),
        (
            ResponseStatus.FAILED,
            None,
            "The model is gone.",
            {
                "type": "failed",
                "error": {"type": "server_error", "code": "response_failed", "message": "The model is gone."},
            },
        ),
    ],
)
def test_response_done_is_whole_however_it_ended(
    status: ResponseStatus, reason: str | None, error: str | None, details: object
) -> None:
    done = only(translator().translate(ResponseDone(replace(RESPONSE, status=status, reason=reason, error=error))))
    openai_event(done)
    check_pipecat(done)
    response = done["response"]
    assert response["status_details"] == details
    assert response["metadata"] == {"turn": "1"}
    assert response["usage"]["total_tokens"] == 0
    assert response["conversation_id"] == "conv_1"


def test_out_of_band_answers_stay_out_of_the_conversation() -> None:
    aside = replace(RESPONSE, out_of_band=True, modality=Modality.TEXT)
    events = (
        ResponseCreated(aside),
        OutputItemAdded("resp_1", ANSWER, None, out_of_band=True),
        OutputItemDone("resp_1", ANSWER, None, out_of_band=True),
    )
    messages = sent(translator(), events)
    assert types(messages) == ["response.created", "response.output_item.added", "response.output_item.done"]
    assert messages[0]["response"]["conversation_id"] is None


def test_second_item_of_a_response_has_its_own_index() -> None:
    speaker = translator()
    other = replace(ANSWER, id="item_b")
    events = (
        ResponseCreated(RESPONSE),
        OutputItemAdded("resp_1", ANSWER, None),
        OutputItemAdded("resp_1", other, None),
    )
    sent(speaker, events)
    part = only(speaker.translate(ContentPartAdded("resp_1", "item_b", PartKind.OUTPUT_TEXT)))
    assert (part["output_index"], part["content_index"]) == (1, 0)


def test_transcription_events_stop_where_transcription_is_off() -> None:
    silent = translator(config=replace(CONFIG, transcribe=False))
    events = (
        TranscriptDelta("item_q", "what"),
        TranscriptCompleted("item_q", "What?", 1.0),
        TranscriptFailed("item_q", "asr_failed", "It failed."),
    )
    assert sent(silent, events) == []


def test_session_object_says_what_holds() -> None:
    config = replace(CONFIG, turn_detection=SemanticVad(), output_modality=Modality.TEXT)
    session = sent(translator(config=config), [SessionCreated(config, resumed=False)])[0]["session"]
    assert session["id"] == "sess_1"
    assert session["model"] == "ava"
    assert session["expires_at"] == 1_800_003_600
    assert session["output_modalities"] == ["text"]
    assert session["audio"]["input"]["turn_detection"] == {
        "type": "semantic_vad",
        "eagerness": "auto",
        "create_response": True,
        "interrupt_response": True,
    }
    assert session["max_output_tokens"] == "inf"


def test_transcription_session_object() -> None:
    speaker = translator(kind=SessionKind.TRANSCRIPTION)
    message = sent(speaker, [SessionUpdated(CONFIG)])[0]
    openai_event(message)
    openai_session(message["session"])
    assert message["session"]["object"] == "realtime.transcription_session"
