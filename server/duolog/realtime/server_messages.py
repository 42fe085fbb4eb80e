"""Every event the server may send, typed, as the JSON object it becomes. `event_id` is stamped on each on its way out.

TypedDicts and not models: these values come from inside, mypy checks them, and a key that a client reads
unconditionally cannot be forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NotRequired, TypedDict

# Parts of messages


class AudioFormatJson(TypedDict):
    type: str
    rate: NotRequired[int]
    """`audio/pcm` alone has it."""


class TranscriptionJson(TypedDict):
    """Exactly these three keys: one client builds its own object from them by keyword."""

    model: str
    language: str | None
    prompt: str | None


class ServerVadJson(TypedDict):
    type: Literal["server_vad"]
    threshold: float
    prefix_padding_ms: int
    silence_duration_ms: int
    create_response: bool
    interrupt_response: bool
    idle_timeout_ms: int | None


class SemanticVadJson(TypedDict):
    type: Literal["semantic_vad"]
    eagerness: str
    create_response: bool
    interrupt_response: bool


class InputAudioJson(TypedDict):
    format: AudioFormatJson
    transcription: TranscriptionJson | None
    noise_reduction: None
    turn_detection: ServerVadJson | SemanticVadJson | None


class OutputAudioJson(TypedDict):
    format: AudioFormatJson
    voice: str
    speed: float


class SessionAudioJson(TypedDict):
    input: InputAudioJson
    output: OutputAudioJson


class RealtimeSessionJson(TypedDict):
    type: Literal["realtime"]
    object: Literal["realtime.session"]
    id: str
    model: str
    expires_at: int
    output_modalities: list[str]
    instructions: str
    audio: SessionAudioJson
    tools: list[Mapping[str, object]]
    tool_choice: str
    max_output_tokens: int | Literal["inf"]
    tracing: None
    truncation: Literal["auto"]
    prompt: None
    include: None


class TranscriptionAudioJson(TypedDict):
    input: InputAudioJson


class TranscriptionSessionJson(TypedDict):
    type: Literal["transcription"]
    object: Literal["realtime.transcription_session"]
    id: str
    expires_at: int
    audio: TranscriptionAudioJson
    include: None


SessionJson = RealtimeSessionJson | TranscriptionSessionJson


class ContentJson(TypedDict):
    type: str
    text: NotRequired[str]
    transcript: NotRequired[str | None]


class ItemJson(TypedDict):
    id: str
    object: Literal["realtime.item"]
    type: Literal["message"]
    status: str
    role: str
    content: list[ContentJson]


class PartJson(TypedDict):
    type: Literal["audio", "text"]
    text: NotRequired[str]
    transcript: NotRequired[str]


class CachedTokensJson(TypedDict):
    text_tokens: int
    audio_tokens: int
    image_tokens: int


class InputTokensJson(TypedDict):
    cached_tokens: int
    text_tokens: int
    audio_tokens: int
    image_tokens: int
    cached_tokens_details: CachedTokensJson


class OutputTokensJson(TypedDict):
    text_tokens: int
    audio_tokens: int


class UsageJson(TypedDict):
    total_tokens: int
    input_tokens: int
    output_tokens: int
    input_token_details: InputTokensJson
    output_token_details: OutputTokensJson


class StatusErrorJson(TypedDict):
    type: str
    code: str
    message: str


class StatusDetailsJson(TypedDict):
    type: str
    reason: NotRequired[str]
    error: NotRequired[StatusErrorJson]


class ResponseOutputJson(TypedDict):
    format: AudioFormatJson
    voice: str


class ResponseAudioJson(TypedDict):
    output: ResponseOutputJson


class ResponseJson(TypedDict):
    id: str
    object: Literal["realtime.response"]
    status: str
    status_details: StatusDetailsJson | None
    output: list[ItemJson]
    output_modalities: list[str]
    audio: ResponseAudioJson
    conversation_id: str | None
    metadata: dict[str, str] | None
    max_output_tokens: int | Literal["inf"]
    usage: UsageJson | None


class ErrorJson(TypedDict):
    type: str
    code: str | None
    message: str
    param: str | None
    event_id: str | None
    retry_after_s: NotRequired[float]
    """Extension: when to try again, where the server is full."""


class TranscriptionErrorJson(TypedDict):
    type: str
    code: str
    message: str
    param: str | None


class DurationUsageJson(TypedDict):
    type: Literal["duration"]
    seconds: float


# Session and errors


class SessionCreatedMessage(TypedDict):
    type: Literal["session.created"]
    session: SessionJson


class SessionUpdatedMessage(TypedDict):
    type: Literal["session.updated"]
    session: SessionJson


class ErrorMessage(TypedDict):
    type: Literal["error"]
    error: ErrorJson


class RateLimitsUpdatedMessage(TypedDict):
    type: Literal["rate_limits.updated"]
    rate_limits: list[Mapping[str, object]]


# Input audio


class SpeechStartedMessage(TypedDict):
    type: Literal["input_audio_buffer.speech_started"]
    audio_start_ms: int
    item_id: str


class SpeechStoppedMessage(TypedDict):
    type: Literal["input_audio_buffer.speech_stopped"]
    audio_end_ms: int
    item_id: str


class CommittedMessage(TypedDict):
    type: Literal["input_audio_buffer.committed"]
    item_id: str
    previous_item_id: str | None


class ClearedMessage(TypedDict):
    type: Literal["input_audio_buffer.cleared"]


class TimeoutTriggeredMessage(TypedDict):
    """Only where the client has set `idle_timeout_ms`: not every client knows it."""

    type: Literal["input_audio_buffer.timeout_triggered"]
    audio_start_ms: int
    audio_end_ms: int
    item_id: str


# Conversation


class ItemAddedMessage(TypedDict):
    type: Literal["conversation.item.added"]
    item: ItemJson
    previous_item_id: str | None


class ItemDoneMessage(TypedDict):
    type: Literal["conversation.item.done"]
    item: ItemJson
    previous_item_id: str | None


class ItemDeletedMessage(TypedDict):
    type: Literal["conversation.item.deleted"]
    item_id: str


class ItemTruncatedMessage(TypedDict):
    type: Literal["conversation.item.truncated"]
    item_id: str
    content_index: int
    audio_end_ms: int


class ItemRetrievedMessage(TypedDict):
    type: Literal["conversation.item.retrieved"]
    item: ItemJson


class TranscriptionDeltaMessage(TypedDict):
    type: Literal["conversation.item.input_audio_transcription.delta"]
    item_id: str
    content_index: int
    delta: str


class TranscriptionCompletedMessage(TypedDict):
    type: Literal["conversation.item.input_audio_transcription.completed"]
    item_id: str
    content_index: int
    transcript: str
    usage: DurationUsageJson


class TranscriptionFailedMessage(TypedDict):
    type: Literal["conversation.item.input_audio_transcription.failed"]
    item_id: str
    content_index: int
    error: TranscriptionErrorJson


# Responses


class ResponseCreatedMessage(TypedDict):
    type: Literal["response.created"]
    response: ResponseJson


class ResponseDoneMessage(TypedDict):
    type: Literal["response.done"]
    response: ResponseJson


class OutputItemMessage(TypedDict):
    type: Literal["response.output_item.added", "response.output_item.done"]
    response_id: str
    output_index: int
    item: ItemJson


class PartAddress(TypedDict):
    """Where in a response a part is."""

    response_id: str
    item_id: str
    output_index: int
    content_index: int


class ContentPartMessage(PartAddress):
    type: Literal["response.content_part.added", "response.content_part.done"]
    part: PartJson


class OutputDeltaMessage(PartAddress):
    type: Literal[
        "response.output_text.delta",
        "response.output_audio_transcript.delta",
        "response.output_audio.delta",
    ]
    delta: str


class OutputTextDoneMessage(PartAddress):
    type: Literal["response.output_text.done"]
    text: str


class OutputTranscriptDoneMessage(PartAddress):
    type: Literal["response.output_audio_transcript.done"]
    transcript: str


class OutputAudioDoneMessage(PartAddress):
    type: Literal["response.output_audio.done"]


# Extensions: only for clients that ask for them


class DuologSessionMessage(TypedDict):
    type: Literal["duolog.session"]
    resumed: bool
    persona: str
    input_rate_hz: int
    output_rate_hz: int


class DuologStateMessage(TypedDict):
    type: Literal["duolog.state"]
    state: str


class DuologSpeechStartedMessage(TypedDict):
    type: Literal["duolog.speech.started"]
    generation: int
    response_id: str
    item_id: str
    sample_rate_hz: int


class DuologFlushMessage(TypedDict):
    type: Literal["duolog.flush"]
    generation: int


class DuologPlayoutHeardMessage(TypedDict):
    type: Literal["duolog.playout.heard"]
    item_id: str
    heard_text: str
    played_ms: int
    approximate: bool


class DuologTurnTimingsMessage(TypedDict):
    type: Literal["duolog.turn.timings"]
    response_id: str
    item_id: str
    generation: int
    speech_end_sample: int
    endpoint_ms: float | None
    transcript_ms: float | None
    admitted_ms: float | None
    first_token_ms: float | None
    first_phrase_ms: float | None
    first_audio_ms: float | None
    first_audio_sent_ms: float | None
    prompt_tokens: int
    cached_tokens: int
    silence_wait_ms: int
    speculation: str | None
    wasted_speculations: int
    answer_source: str | None


class DuologPongMessage(TypedDict):
    type: Literal["duolog.pong"]
    client_time_ms: float
    server_time_ms: float


ServerMessage = (
    SessionCreatedMessage
    | SessionUpdatedMessage
    | ErrorMessage
    | RateLimitsUpdatedMessage
    | SpeechStartedMessage
    | SpeechStoppedMessage
    | CommittedMessage
    | ClearedMessage
    | TimeoutTriggeredMessage
    | ItemAddedMessage
    | ItemDoneMessage
    | ItemDeletedMessage
    | ItemTruncatedMessage
    | ItemRetrievedMessage
    | TranscriptionDeltaMessage
    | TranscriptionCompletedMessage
    | TranscriptionFailedMessage
    | ResponseCreatedMessage
    | ResponseDoneMessage
    | OutputItemMessage
    | ContentPartMessage
    | OutputDeltaMessage
    | OutputTextDoneMessage
    | OutputTranscriptDoneMessage
    | OutputAudioDoneMessage
    | DuologSessionMessage
    | DuologStateMessage
    | DuologSpeechStartedMessage
    | DuologFlushMessage
    | DuologPlayoutHeardMessage
    | DuologTurnTimingsMessage
    | DuologPongMessage
)
