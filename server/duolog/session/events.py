"""What a call tells the outside. The wire layer translates each into zero or more messages, in this order.

Order of one spoken turn: SpeechStarted, TranscriptDelta…, SpeechStopped, InputCommitted, ItemAdded, ItemDone,
TranscriptCompleted; ResponseCreated, OutputItemAdded, ContentPartAdded, (TextDelta | AudioDelta)…, AudioDone,
TextDone, ContentPartDone, OutputItemDone, ResponseDone. Each response ends in exactly one ResponseDone, and nothing
of it follows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from duolog.ports.llm import TokenUsage
from duolog.session.config import Modality, SessionConfig
from duolog.turns.conversation import Item, PartKind


class ResponseStatus(StrEnum):
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    INCOMPLETE = "incomplete"
    """The answer hit the token limit."""
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class ResponseInfo:
    """A response as it stands."""

    id: str
    status: ResponseStatus
    modality: Modality
    metadata: tuple[tuple[str, str], ...] = ()
    items: tuple[Item, ...] = ()
    """Empty until done."""
    usage: TokenUsage = field(default_factory=TokenUsage)
    reason: str | None = None
    """Why it was cancelled (`turn_detected`, `client_cancelled`) or incomplete (`max_output_tokens`)."""
    error: str | None = None
    """One sentence, where it failed."""
    out_of_band: bool = False
    max_output_tokens: int | None = None
    asked_by: str | None = None
    """The client's own id of the event that asked for it."""


@dataclass(frozen=True, slots=True)
class SessionCreated:
    config: SessionConfig
    resumed: bool


@dataclass(frozen=True, slots=True)
class SessionUpdated:
    config: SessionConfig


@dataclass(frozen=True, slots=True)
class SpeechStarted:
    item_id: str
    audio_start_ms: int
    """Milliseconds of input audio received since the call began, pre-roll included."""


@dataclass(frozen=True, slots=True)
class SpeechStopped:
    item_id: str
    audio_end_ms: int


@dataclass(frozen=True, slots=True)
class InputCommitted:
    item_id: str
    previous_item_id: str | None


@dataclass(frozen=True, slots=True)
class InputCleared:
    pass


@dataclass(frozen=True, slots=True)
class InputTimedOut:
    """Nobody spoke for `idle_timeout_ms`."""

    item_id: str
    audio_start_ms: int
    audio_end_ms: int


@dataclass(frozen=True, slots=True)
class ItemAdded:
    item: Item
    previous_item_id: str | None


@dataclass(frozen=True, slots=True)
class ItemDone:
    item: Item
    previous_item_id: str | None


@dataclass(frozen=True, slots=True)
class ItemDeleted:
    item_id: str


@dataclass(frozen=True, slots=True)
class ItemTruncated:
    item_id: str
    content_index: int
    audio_end_ms: int


@dataclass(frozen=True, slots=True)
class ItemRetrieved:
    item: Item


@dataclass(frozen=True, slots=True)
class TranscriptDelta:
    """Append-only: words that will not change."""

    item_id: str
    delta: str


@dataclass(frozen=True, slots=True)
class TranscriptCompleted:
    """The truth about what the user said, replacing the deltas."""

    item_id: str
    transcript: str
    audio_s: float


@dataclass(frozen=True, slots=True)
class TranscriptFailed:
    item_id: str
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class ResponseCreated:
    response: ResponseInfo


@dataclass(frozen=True, slots=True)
class OutputItemAdded:
    response_id: str
    item: Item
    previous_item_id: str | None
    out_of_band: bool = False
    """True: no `conversation.item.added` goes with it."""


@dataclass(frozen=True, slots=True)
class ContentPartAdded:
    response_id: str
    item_id: str
    kind: PartKind


@dataclass(frozen=True, slots=True)
class TextDelta:
    """Text of a text answer, or transcript of a spoken one (`kind` says which)."""

    response_id: str
    item_id: str
    kind: PartKind
    delta: str


@dataclass(frozen=True, slots=True)
class SpeechAnnounced:
    """A new generation of audio begins. Extension clients are told; others need nothing."""

    generation: int
    response_id: str
    item_id: str
    sample_rate_hz: int


@dataclass(frozen=True, slots=True)
class AudioDelta:
    response_id: str
    item_id: str
    generation: int
    """Grows with each response that speaks; stale generations are dropped on the way out and in the page."""
    start_sample: int
    """Position within the generation, at `sample_rate_hz`."""
    samples: NDArray[np.int16]
    sample_rate_hz: int


@dataclass(frozen=True, slots=True)
class AudioDone:
    response_id: str
    item_id: str
    generation: int
    total_samples: int


@dataclass(frozen=True, slots=True)
class PlayoutFlush:
    """Stop playing every generation below this one, at once, with a short fade."""

    generation: int


@dataclass(frozen=True, slots=True)
class PlayoutHeard:
    """How much of an answer was heard so far (extension): for the page's captions."""

    item_id: str
    heard_text: str
    played_ms: int
    approximate: bool


@dataclass(frozen=True, slots=True)
class TextDone:
    response_id: str
    item_id: str
    kind: PartKind
    text: str


@dataclass(frozen=True, slots=True)
class ContentPartDone:
    response_id: str
    item_id: str
    kind: PartKind
    text: str


@dataclass(frozen=True, slots=True)
class OutputItemDone:
    response_id: str
    item: Item
    previous_item_id: str | None
    out_of_band: bool = False


@dataclass(frozen=True, slots=True)
class ResponseDone:
    response: ResponseInfo


@dataclass(frozen=True, slots=True)
class TurnTimings:
    """Where the time of one spoken turn went (extension). Sent once, after the answer's ResponseDone.

    Every mark is milliseconds after the last voiced sample was received; None: did not happen in this turn.
    """

    response_id: str
    item_id: str
    """The user's item."""
    generation: int
    speech_end_sample: int
    """Index of the last voiced input sample at 16 kHz since the call began; a client knows when it sent it."""
    endpoint_ms: float | None
    transcript_ms: float | None
    admitted_ms: float | None
    """The batcher handed the request to the engine."""
    first_token_ms: float | None
    first_phrase_ms: float | None
    """The first phrase was cut and given to the synthesizer."""
    first_audio_ms: float | None
    """The synthesizer returned its first samples."""
    first_audio_sent_ms: float | None
    prompt_tokens: int = 0
    cached_tokens: int = 0
    silence_wait_ms: int = 0
    """The endpointing delay that was waited by design."""
    speculation: str | None = None
    """`used`, or None: the answer was begun when the turn had ended."""
    wasted_speculations: int = 0
    """Answers that were begun in pauses of this utterance and dropped when it went on."""
    answer_source: str | None = None
    """`model`; `memory` or `redis`: the answer was remembered, and no engine was asked."""


@dataclass(frozen=True, slots=True)
class StateChanged:
    """What the call is doing, for a page's indicator (extension): `listening`, `hearing`, `thinking`, `speaking`."""

    state: str


@dataclass(frozen=True, slots=True)
class CallErrorRaised:
    """Something failed that is nobody's request; the call goes on."""

    code: str
    message: str
    kind: str = "server_error"


CallEvent = (
    SessionCreated
    | SessionUpdated
    | SpeechStarted
    | SpeechStopped
    | InputCommitted
    | InputCleared
    | InputTimedOut
    | ItemAdded
    | ItemDone
    | ItemDeleted
    | ItemTruncated
    | ItemRetrieved
    | TranscriptDelta
    | TranscriptCompleted
    | TranscriptFailed
    | ResponseCreated
    | OutputItemAdded
    | ContentPartAdded
    | TextDelta
    | SpeechAnnounced
    | AudioDelta
    | AudioDone
    | PlayoutFlush
    | PlayoutHeard
    | TextDone
    | ContentPartDone
    | OutputItemDone
    | ResponseDone
    | TurnTimings
    | StateChanged
    | CallErrorRaised
)
