"""What a client may set for its call: the effective session, already merged with the persona's defaults."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from duolog.ports.llm import Sampling
from duolog.turns.conversation import Item


class Modality(StrEnum):
    AUDIO = "audio"
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class ServerVad:
    """Turns end after a fixed silence."""

    threshold: float = 0.5
    """Voice probability from which a window counts as speech, 0 to 1."""
    prefix_padding_ms: int = 300
    silence_duration_ms: int = 500
    create_response: bool = True
    """False: turns are committed, the client asks for responses."""
    interrupt_response: bool = True
    """False: speech during an answer does not stop it."""
    idle_timeout_ms: int | None = None


class Eagerness(StrEnum):
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    AUTO = "auto"


@dataclass(frozen=True, slots=True)
class SemanticVad:
    """Turns end when what was said sounds complete; eagerness scales the patience."""

    eagerness: Eagerness = Eagerness.AUTO
    create_response: bool = True
    interrupt_response: bool = True


TurnDetection = ServerVad | SemanticVad | None
"""None: manual turns (push-to-talk): the client commits and asks for responses."""


@dataclass(frozen=True, slots=True)
class SessionConfig:
    """The effective session of one call. Frozen: an update replaces it, and holds from the next turn on."""

    persona: str
    instructions: str
    voice: str
    language: str | None
    """ISO 639-1 code the user speaks; None: detect."""
    sampling: Sampling
    output_modality: Modality = Modality.AUDIO
    turn_detection: TurnDetection = ServerVad()
    transcribe: bool = True
    """False: no transcription events are sent (the call itself still transcribes)."""
    speed: float = 1.0
    input_rate_hz: int = 24_000
    output_rate_hz: int = 24_000
    greeting: str | None = None
    """Spoken first, once, in a new call; only where the client asked for it."""


@dataclass(frozen=True, slots=True)
class ResponseOptions:
    """What `response.create` may override for one response; None: the session's."""

    instructions: str | None = None
    output_modality: Modality | None = None
    max_output_tokens: int | None = None
    voice: str | None = None
    metadata: tuple[tuple[str, str], ...] = ()
    """Echoed back in every event that carries the response."""
    out_of_band: bool = False
    """`conversation: "none"`: the answer does not enter the conversation."""
    input_items: tuple[Item | str, ...] | None = None
    """What to answer instead of the whole conversation, in order: ids of its items, and items that are not part of it.
    An id that it does not have, or has no more, is left out."""
    asked_by: str | None = None
    """The client's own id of the event that asked for it."""
