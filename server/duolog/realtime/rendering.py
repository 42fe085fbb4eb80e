"""Items, responses and errors as their wire objects. Pure, without state."""

from __future__ import annotations

from duolog.ports.errors import RequestRefused
from duolog.ports.llm import TokenUsage
from duolog.realtime.audio_format import AudioFormat
from duolog.realtime.server_messages import (
    ContentJson,
    ErrorMessage,
    ItemJson,
    PartJson,
    ResponseJson,
    StatusDetailsJson,
    UsageJson,
)
from duolog.realtime.wire_session import format_json
from duolog.session.events import ResponseInfo, ResponseStatus
from duolog.turns.conversation import ContentPart, Item, PartKind

_AUDIO_KINDS = (PartKind.INPUT_AUDIO, PartKind.OUTPUT_AUDIO)

_CANCEL_REASONS = ("turn_detected", "client_cancelled")
_INCOMPLETE_REASONS = ("max_output_tokens", "content_filter")
"""What clients accept as `status_details.reason`."""


def item_json(item: Item) -> ItemJson:
    return {
        "id": item.id,
        "object": "realtime.item",
        "type": "message",
        "status": item.status.value,
        "role": item.role.value,
        "content": [content_json(part) for part in item.parts],
    }


def content_json(part: ContentPart) -> ContentJson:
    """A user's transcript may be null; every other text is there, be it empty."""
    if part.kind is PartKind.INPUT_AUDIO:
        return {"type": part.kind.value, "transcript": part.text}
    if part.kind is PartKind.OUTPUT_AUDIO:
        return {"type": part.kind.value, "transcript": part.text or ""}
    return {"type": part.kind.value, "text": part.text or ""}


def part_json(kind: PartKind, text: str) -> PartJson:
    """A content part as `response.content_part.*` carries it: its type has other names there."""
    if kind in _AUDIO_KINDS:
        return {"type": "audio", "transcript": text}
    return {"type": "text", "text": text}


def response_json(
    response: ResponseInfo, *, conversation_id: str, audio_format: AudioFormat, voice: str
) -> ResponseJson:
    """Every key is there in every state: clients read them without looking."""
    done = response.status is not ResponseStatus.IN_PROGRESS
    return {
        "id": response.id,
        "object": "realtime.response",
        "status": response.status.value,
        "status_details": status_details_json(response),
        "output": [item_json(item) for item in response.items],
        "output_modalities": [response.modality.value],
        "audio": {"output": {"format": format_json(audio_format), "voice": voice}},
        "conversation_id": None if response.out_of_band else conversation_id,
        "metadata": dict(response.metadata) or None,
        "max_output_tokens": response.max_output_tokens or "inf",
        "usage": usage_json(response.usage) if done else None,
    }


def status_details_json(response: ResponseInfo) -> StatusDetailsJson | None:
    """Null while in progress and when completed."""
    status = response.status
    if status is ResponseStatus.FAILED:
        message = response.error or "The answer failed; ask again."
        return {"type": "failed", "error": {"type": "server_error", "code": "response_failed", "message": message}}
    if status is ResponseStatus.CANCELLED:
        return {"type": "cancelled", "reason": _known(response.reason, _CANCEL_REASONS, "client_cancelled")}
    if status is ResponseStatus.INCOMPLETE:
        return {"type": "incomplete", "reason": _known(response.reason, _INCOMPLETE_REASONS, "max_output_tokens")}
    return None


def _known(reason: str | None, allowed: tuple[str, ...], otherwise: str) -> str:
    return reason if reason in allowed else otherwise


def usage_json(usage: TokenUsage) -> UsageJson:
    """A full object, zeros included. All tokens are text: sound never reaches the language model."""
    return {
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "input_tokens": usage.prompt_tokens,
        "output_tokens": usage.completion_tokens,
        "input_token_details": {
            "cached_tokens": usage.cached_tokens,
            "text_tokens": usage.prompt_tokens,
            "audio_tokens": 0,
            "image_tokens": 0,
            "cached_tokens_details": {"text_tokens": usage.cached_tokens, "audio_tokens": 0, "image_tokens": 0},
        },
        "output_token_details": {"text_tokens": usage.completion_tokens, "audio_tokens": 0},
    }


def refusal_json(refused: RequestRefused, event_id: str | None) -> ErrorMessage:
    """The error a refused client event is answered with; it names that event."""
    return error_json(str(refused), code=refused.code, param=refused.param, event_id=event_id)


def error_json(
    message: str,
    *,
    code: str,
    kind: str = "invalid_request_error",
    param: str | None = None,
    event_id: str | None = None,
) -> ErrorMessage:
    return {
        "type": "error",
        "error": {"type": kind, "code": code, "message": message, "param": param, "event_id": event_id},
    }
