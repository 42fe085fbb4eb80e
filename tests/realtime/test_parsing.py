"""Bad text gets an answer that names the field and what is allowed; good text becomes a typed event."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duolog.ports.errors import RequestRefused
from duolog.realtime.client_messages import (
    ClientEvent,
    InputAudioAppend,
    ItemCreate,
    PlayoutReported,
    ResponseCreate,
    SessionUpdate,
)
from duolog.realtime.parsing import CLIENT_EVENT_TYPES, Refusal, parse_event, parse_session

pytestmark = pytest.mark.pure


def refusal(event: dict[str, Any] | str) -> Refusal:
    result = parse_event(event if isinstance(event, str) else json.dumps(event))
    assert isinstance(result, Refusal)
    return result


def update(**session: Any) -> dict[str, Any]:
    return {"type": "session.update", "event_id": "mine", "session": {"type": "realtime", **session}}


def item(**fields: Any) -> dict[str, Any]:
    return {"type": "conversation.item.create", "item": {"type": "message", "role": "user", **fields}}


@pytest.mark.parametrize("text", ["", "{", "hello", '{"type":', "[" * 100_000, "\x00"])
def test_what_is_no_json_is_called_that(text: str) -> None:
    refused = refusal(text)
    assert refused.error.code == "invalid_json"
    assert refused.event_id is None


@pytest.mark.parametrize("text", ["[]", "1", "null", '"x"'])
def test_json_that_is_no_object(text: str) -> None:
    assert refusal(text).error.code == "invalid_value"


CASES: list[tuple[dict[str, Any], str, str, str]] = [
    ({"type": "session.updat"}, "invalid_value", "type", "'session.update'"),
    ({"type": 3}, "invalid_value", "type", "'session.update'"),
    ({"event_id": "x"}, "missing_required_parameter", "type", "'response.create'"),
    ({"type": "session.update"}, "missing_required_parameter", "session", "Missing"),
    ({"type": "session.update", "session": {}}, "missing_required_parameter", "session.type", "Missing"),
    (update(type="chat"), "invalid_value", "session.type", "'transcription'"),
    (update(turn_detecton=None), "unknown_parameter", "session.turn_detecton", "Unknown"),
    (update(modalities=["text"]), "invalid_value", "session", "output_modalities"),
    (update(voice="joe"), "invalid_value", "session", "audio.output.voice"),
    (update(output_modalities=["audio", "text"]), "invalid_value", "session.output_modalities", '["text"]'),
    (update(max_output_tokens=0), "invalid_value", "session.max_output_tokens", '"inf"'),
    (update(max_output_tokens=True), "invalid_value", "session.max_output_tokens", '"inf"'),
    (update(tools=[{"type": "function", "name": "f"}]), "invalid_value", "session.tools", "no tools"),
    (update(tool_choice="required"), "invalid_value", "session.tool_choice", "no tools"),
    (update(instructions=3), "invalid_type", "session.instructions", "string"),
    (
        update(audio={"input": {"format": {"type": "audio/pcm", "rate": 11_025}}}),
        "invalid_value",
        "session.audio.input.format",
        "8000, 16000, 24000, 48000",
    ),
    (
        update(audio={"input": {"format": {"type": "audio/opus"}}}),
        "invalid_value",
        "session.audio.input.format.type",
        "'audio/pcmu'",
    ),
    (update(audio={"input": {"format": "pcm16"}}), "invalid_type", "session.audio.input.format", "an object"),
    (update(audio={"input": {"format": {}}}), "missing_required_parameter", "session.audio.input.format.type", "Miss"),
    (
        update(audio={"input": {"turn_detection": {"type": "server_vad", "threshold": "high"}}}),
        "invalid_type",
        "session.audio.input.turn_detection.threshold",
        "number",
    ),
    (
        update(audio={"input": {"turn_detection": {"type": "server_vad", "threshold": 2}}}),
        "invalid_value",
        "session.audio.input.turn_detection.threshold",
        "less than or equal to 1",
    ),
    (update(audio={"output": {"speed": 9}}), "invalid_value", "session.audio.output.speed", "1.5"),
    (update(audio={"output": {"voice": 3}}), "invalid_value", "session.audio.output.voice", "voice name"),
    ({"type": "input_audio_buffer.append"}, "missing_required_parameter", "audio", "Missing"),
    ({"type": "input_audio_buffer.append", "audio": [1]}, "invalid_type", "audio", "string"),
    (item(content=[]), "invalid_value", "item.content", "at least 1"),
    (item(content=[{"type": "output_text", "text": "x"}]), "invalid_value", "item", "input_text or input_audio"),
    (item(content=[{"type": "input_text"}]), "invalid_value", "item.content[0]", "'text'"),
    (item(content=[{"type": "input_audio", "audio": "AAAA"}]), "invalid_value", "item.content[0]", "append"),
    (item(content=[{"type": "input_image", "image_url": "x"}]), "invalid_value", "item.content[0].type", "input_text"),
    (item(content=[{"type": "input_text", "text": "x"}], id=""), "invalid_value", "item.id", "at least 1"),
    (
        {"type": "conversation.item.create", "item": {"type": "function_call_output", "call_id": "c", "output": "1"}},
        "invalid_value",
        "item.type",
        "'message'",
    ),
    (
        {"type": "conversation.item.truncate", "item_id": "a", "content_index": 0, "audio_end_ms": -1},
        "invalid_value",
        "audio_end_ms",
        "greater than or equal to 0",
    ),
    (
        {"type": "conversation.item.truncate", "item_id": "a", "content_index": 0, "audio_end_ms": 1.5},
        "invalid_type",
        "audio_end_ms",
        "integer",
    ),
    ({"type": "response.create", "response": {"metadata": {"a": 1}}}, "invalid_type", "response.metadata.a", "string"),
    ({"type": "response.create", "response": {"colour": 1}}, "unknown_parameter", "response.colour", "Unknown"),
    (
        {"type": "response.create", "response": {"input": [{"type": "function_call", "name": "f"}]}},
        "invalid_value",
        "response.input[0].type",
        "'item_reference'",
    ),
    ({"type": "duolog.mute", "muted": "yes"}, "invalid_type", "muted", "boolean"),
    ({"type": "duolog.playout.report", "generation": 1}, "missing_required_parameter", "played_samples", "Missing"),
]


@pytest.mark.parametrize(("event", "code", "param", "says"), CASES)
def test_what_is_wrong_and_what_is_allowed(event: dict[str, Any], code: str, param: str, says: str) -> None:
    error = refusal(event).error
    assert (error.code, error.param) == (code, param)
    assert says in str(error)


def test_numbers_that_are_none_are_refused() -> None:
    assert refusal('{"type":"duolog.ping","client_time_ms":NaN}').error.param == "client_time_ms"


def test_the_refusal_carries_the_clients_event_id() -> None:
    assert refusal(update(instructions=3)).event_id == "mine"
    assert refusal({"type": "nonsense", "event_id": 7}).event_id is None


def test_long_values_are_not_repeated_in_full() -> None:
    assert len(str(refusal(update(max_output_tokens="x" * 10_000)).error)) < 400


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.sampled_from(["session", "audio", "item", "item_id", "response", "content_index", "event_id", "x"])


@pytest.mark.slow
@settings(deadline=None)
@given(st.one_of(st.sampled_from(CLIENT_EVENT_TYPES), JSON), st.dictionaries(FIELDS, JSON, max_size=4))
def test_any_json_is_an_event_or_a_refusal(event_type: object, fields: dict[str, object]) -> None:
    result = parse_event(json.dumps({"type": event_type, **fields}))
    if isinstance(result, Refusal):
        assert str(result.error)
        assert result.error.code


def test_null_is_not_absent() -> None:
    event = parse_event(json.dumps(update(audio={"input": {"turn_detection": None}})))
    assert isinstance(event, SessionUpdate)
    assert event.session.audio is not None
    assert event.session.audio.input is not None
    assert event.session.audio.input.given("turn_detection")
    assert not event.session.audio.input.given("transcription")


def test_good_events() -> None:
    append = parse_event('{"type":"input_audio_buffer.append","audio":"AAAA","event_id":"e"}')
    assert append == InputAudioAppend(type="input_audio_buffer.append", audio="AAAA", event_id="e")
    create = parse_event(
        json.dumps(item(id="mine", content=[{"type": "input_text", "text": "Hi"}], status="completed"))
    )
    assert isinstance(create, ItemCreate)
    assert create.item.id == "mine"
    respond = parse_event('{"type":"response.create","response":{"metadata":{"a":"b"},"max_output_tokens":"inf"}}')
    assert isinstance(respond, ResponseCreate)
    report = parse_event('{"type":"duolog.playout.report","generation":1,"played_samples":480}')
    assert report == PlayoutReported(type="duolog.playout.report", generation=1, played_samples=480)


def test_every_client_event_of_the_protocol_is_known() -> None:
    assert len(CLIENT_EVENT_TYPES) == len(get_args(ClientEvent))
    assert {
        "session.update",
        "input_audio_buffer.append",
        "input_audio_buffer.commit",
        "input_audio_buffer.clear",
        "conversation.item.create",
        "conversation.item.delete",
        "conversation.item.retrieve",
        "conversation.item.truncate",
        "response.create",
        "response.cancel",
        "output_audio_buffer.clear",
        "duolog.playout.report",
        "duolog.mute",
        "duolog.ping",
        "duolog.greet",
    } == set(CLIENT_EVENT_TYPES)


def test_a_session_outside_of_an_event() -> None:
    assert parse_session({"type": "realtime", "model": "ava"}).model == "ava"
    with pytest.raises(RequestRefused) as caught:
        parse_session({"type": "realtime", "audio": {"output": {"speed": "fast"}}})
    assert caught.value.param == "session.audio.output.speed"
