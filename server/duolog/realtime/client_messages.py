"""Every event a client may send, typed. Knows no socket and no call; `parsing.py` turns text into these.

A field that is absent is not in `model_fields_set`; one that is an explicit null is. The `session` and `response`
objects refuse fields they do not know, because a misspelt one would silently do nothing.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator

from duolog.realtime.session_messages import (
    OutputModalities,
    SessionPayload,
    ToolChoice,
    ToolList,
    VoiceName,
    WholeNumberOrInf,
)

MAX_ID_LENGTH = 128

Identifier = Annotated[str, Field(min_length=1, max_length=MAX_ID_LENGTH)]


class ClientMessage(BaseModel):
    """What every event may carry."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore", allow_inf_nan=False)

    event_id: str | None = Field(default=None, max_length=512)
    """Chosen by the client; echoed in `error.event_id` where the event is refused."""


class SessionUpdate(ClientMessage):
    type: Literal["session.update"]
    session: SessionPayload


class InputAudioAppend(ClientMessage):
    type: Literal["input_audio_buffer.append"]
    audio: str
    """Base64 of samples in the session's input format."""


class InputAudioCommit(ClientMessage):
    type: Literal["input_audio_buffer.commit"]


class InputAudioClear(ClientMessage):
    type: Literal["input_audio_buffer.clear"]


class OutputAudioClear(ClientMessage):
    """For WebRTC clients; without effect over a WebSocket, where the client itself holds the audio."""

    type: Literal["output_audio_buffer.clear"]


class ContentPayload(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")

    type: Literal["input_text", "input_audio", "output_text", "output_audio"]
    text: str | None = None
    transcript: str | None = None
    audio: str | None = None

    @model_validator(mode="after")
    def has_text(self) -> ContentPayload:
        """Text parts need `text`, audio parts `transcript`."""
        field = "transcript" if self.type.endswith("audio") else "text"
        if getattr(self, field) is None:
            hint = "; send audio itself with input_audio_buffer.append" if field == "transcript" else ""
            raise ValueError(f"a part of type {self.type} needs {field!r}{hint}")
        return self


_ALLOWED_PARTS = {
    "system": ("input_text",),
    "user": ("input_text", "input_audio"),
    "assistant": ("output_text", "output_audio"),
}


class ItemPayload(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")

    type: Literal["message"]
    role: Literal["system", "user", "assistant"]
    content: list[ContentPayload] = Field(min_length=1, max_length=64)
    id: Identifier | None = None

    @model_validator(mode="after")
    def parts_fit_role(self) -> ItemPayload:
        allowed = _ALLOWED_PARTS[self.role]
        for part in self.content:
            if part.type not in allowed:
                raise ValueError(f"a {self.role} message may hold {' or '.join(allowed)}, not {part.type}")
        return self


class ItemCreate(ClientMessage):
    type: Literal["conversation.item.create"]
    item: ItemPayload
    previous_item_id: str | None = None
    """`root`: at the head; absent or null: at the end."""


class ItemDelete(ClientMessage):
    type: Literal["conversation.item.delete"]
    item_id: Identifier


class ItemRetrieve(ClientMessage):
    type: Literal["conversation.item.retrieve"]
    item_id: Identifier


class ItemTruncate(ClientMessage):
    type: Literal["conversation.item.truncate"]
    item_id: Identifier
    content_index: int = Field(ge=0)
    audio_end_ms: int = Field(ge=0)


class ItemReference(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")

    type: Literal["item_reference"]
    id: Identifier


class ResponseOutputFormatPayload(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    type: str
    rate: int | None = None


class ResponseOutputPayload(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    voice: VoiceName | None = None
    format: ResponseOutputFormatPayload | None = None


class ResponseAudioPayload(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    output: ResponseOutputPayload | None = None


MetadataKey = Annotated[str, Field(max_length=64)]
MetadataValue = Annotated[str, Field(max_length=512)]


class ResponsePayload(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    instructions: str | None = None
    output_modalities: OutputModalities | None = None
    audio: ResponseAudioPayload | None = None
    tools: ToolList | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    max_output_tokens: WholeNumberOrInf | None = None
    metadata: dict[MetadataKey, MetadataValue] | None = Field(default=None, max_length=16)
    input: list[Annotated[ItemReference | ItemPayload, Field(discriminator="type")]] | None = Field(
        default=None, max_length=1024
    )
    """What the model is shown instead of the conversation: items of it, and others that never enter it."""
    conversation: Literal["auto", "none"] | None = None
    prompt: None = None
    reasoning: dict[str, JsonValue] | None = None


class ResponseCreate(ClientMessage):
    type: Literal["response.create"]
    response: ResponsePayload | None = None


class ResponseCancel(ClientMessage):
    type: Literal["response.cancel"]
    response_id: Identifier | None = None


class PlayoutReported(ClientMessage):
    type: Literal["duolog.playout.report"]
    generation: int = Field(ge=0)
    played_samples: int = Field(ge=0)
    ended: bool = False


class MuteSet(ClientMessage):
    type: Literal["duolog.mute"]
    muted: bool


class Ping(ClientMessage):
    type: Literal["duolog.ping"]
    client_time_ms: float


class Greet(ClientMessage):
    type: Literal["duolog.greet"]


ExtensionEvent = PlayoutReported | MuteSet | Ping | Greet

ClientEvent = (
    SessionUpdate
    | InputAudioAppend
    | InputAudioCommit
    | InputAudioClear
    | OutputAudioClear
    | ItemCreate
    | ItemDelete
    | ItemRetrieve
    | ItemTruncate
    | ResponseCreate
    | ResponseCancel
    | PlayoutReported
    | MuteSet
    | Ping
    | Greet
)
