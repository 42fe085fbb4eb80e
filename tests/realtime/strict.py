"""What the clients in the field demand of server events, as assertions.

`openai_event` validates against the official SDK's own types under strict pydantic. `check_pipecat` states what
Pipecat's parser demands: it validates with pydantic, and its receive loop ends where that raises.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

import openai.types.realtime as openai_types
from openai.types.realtime.realtime_server_event import RealtimeServerEvent
from pydantic import BaseModel

_UNION = get_args(RealtimeServerEvent)[0]
_MODELS: dict[str, type[BaseModel]] = {
    get_args(model.model_fields["type"].annotation)[0]: model for model in get_args(_UNION)
}

PIPECAT_REQUIRED: dict[str, set[str]] = {
    "error": {"error"},
    "session.created": {"session"},
    "session.updated": {"session"},
    "conversation.created": {"conversation"},
    "input_audio_buffer.committed": {"item_id"},
    "input_audio_buffer.cleared": set(),
    "input_audio_buffer.speech_started": {"audio_start_ms", "item_id"},
    "input_audio_buffer.speech_stopped": {"audio_end_ms", "item_id"},
    "conversation.item.added": {"item"},
    "conversation.item.done": {"item"},
    "conversation.item.input_audio_transcription.delta": {"item_id", "content_index", "delta"},
    "conversation.item.input_audio_transcription.completed": {"item_id", "content_index", "transcript"},
    "conversation.item.input_audio_transcription.failed": {"item_id", "content_index", "error"},
    "conversation.item.truncated": {"item_id", "content_index", "audio_end_ms"},
    "conversation.item.deleted": {"item_id"},
    "conversation.item.retrieved": {"item"},
    "response.created": {"response"},
    "response.done": {"response"},
    "response.output_item.added": {"response_id", "output_index", "item"},
    "response.output_item.done": {"response_id", "output_index", "item"},
    "response.content_part.added": {"response_id", "item_id", "output_index", "content_index", "part"},
    "response.content_part.done": {"response_id", "item_id", "output_index", "content_index", "part"},
    "response.output_text.delta": {"response_id", "item_id", "output_index", "content_index", "delta"},
    "response.output_text.done": {"response_id", "item_id", "output_index", "content_index", "text"},
    "response.output_audio_transcript.delta": {"response_id", "item_id", "output_index", "content_index", "delta"},
    "response.output_audio_transcript.done": {"response_id", "item_id", "output_index", "content_index", "transcript"},
    "response.output_audio.delta": {"response_id", "item_id", "output_index", "content_index", "delta"},
    "response.output_audio.done": {"response_id", "item_id", "output_index", "content_index"},
    "rate_limits.updated": {"rate_limits"},
}
"""Events Pipecat has a model for, with the fields it requires. Another event ended its loop in older releases."""

_PARTS = {"text", "audio", "input_text", "input_audio", "input_image", "output_text", "output_audio"}


def openai_event(event: Mapping[str, Any]) -> BaseModel:
    """The event as the SDK's own type; raises where it does not fit."""
    return _MODELS[event["type"]].model_validate(event, strict=True)


def openai_session(session: Mapping[str, Any]) -> BaseModel:
    """The session object as the SDK's richer response type, which has `id`, `object` and `expires_at`."""
    if session["type"] == "transcription":
        return openai_types.RealtimeTranscriptionSessionCreateResponse.model_validate(session, strict=True)
    return openai_types.RealtimeSessionCreateResponse.model_validate(session, strict=True)


def check_pipecat(event: Mapping[str, Any]) -> None:
    kind = event["type"]
    assert kind in PIPECAT_REQUIRED, f"Pipecat has no model for {kind}"
    assert isinstance(event["event_id"], str)
    assert PIPECAT_REQUIRED[kind] <= event.keys(), f"{kind} lacks {PIPECAT_REQUIRED[kind] - event.keys()}"
    if "session" in event:
        _check_session(event["session"])
    if "item" in event:
        _check_item(event["item"])
    if "response" in event:
        _check_response(event["response"], done=kind == "response.done")
    if "part" in event:
        assert event["part"]["type"] in _PARTS
    if "error" in event:
        assert isinstance(event["error"]["type"], str)
        assert isinstance(event["error"]["message"], str)


def _check_session(session: Mapping[str, Any]) -> None:
    assert session["type"] == "realtime"
    assert session["object"] == "realtime.session"
    assert session["tool_choice"] in {"auto", "none", "required"}
    assert session["tools"] == []
    assert session["audio"]["input"]["format"]["type"] in {"audio/pcm", "audio/pcmu", "audio/pcma"}
    transcription = session["audio"]["input"]["transcription"]
    # Its model has a hand-written __init__ with these three arguments: a fourth key raises.
    assert transcription is None or transcription.keys() == {"model", "language", "prompt"}
    detection = session["audio"]["input"]["turn_detection"]
    assert detection is None or detection["type"] in {"server_vad", "semantic_vad"}


def _check_item(item: Mapping[str, Any]) -> None:
    assert isinstance(item["id"], str)
    assert item["object"] == "realtime.item"
    assert item["type"] == "message"
    assert item["role"] in {"user", "assistant", "system"}
    assert item["status"] in {"completed", "in_progress", "incomplete"}
    for part in item["content"]:
        assert part["type"] in _PARTS


def _check_response(response: Mapping[str, Any], *, done: bool) -> None:
    assert response["object"] == "realtime.response"
    assert "status_details" in response
    for item in response["output"]:
        _check_item(item)
    if not done:
        return
    usage = response["usage"]
    for name in ("total_tokens", "input_tokens", "output_tokens"):
        assert isinstance(usage[name], int)
    for name in ("input_token_details", "output_token_details"):
        assert {"text_tokens", "audio_tokens"} <= usage[name].keys()
    if response["status"] == "failed":
        assert isinstance(response["status_details"]["error"]["message"], str)
