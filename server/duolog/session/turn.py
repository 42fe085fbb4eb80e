"""One turn: what the user said (if anything) and the answer to it, inside one cancel scope.

A turn may begin before it is known to be over: everything it makes is held back until `commit`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

import anyio

from duolog.ports.asr import Transcript
from duolog.session.config import ResponseOptions
from duolog.session.listening import Utterance
from duolog.session.response import Response


class TurnEnd(StrEnum):
    """Why a turn was cancelled: the wire's `status_details.reason`."""

    DROPPED = "dropped"
    """The user went on; nothing of it was ever visible."""
    TURN_DETECTED = "turn_detected"
    CLIENT_CANCELLED = "client_cancelled"


@dataclass(slots=True)
class Marks:
    """Loop times in seconds; None: has not happened."""

    heard: float | None = None
    """The last voiced sample arrived."""
    endpoint: float | None = None
    transcript: float | None = None
    admitted: float | None = None
    first_token: float | None = None
    first_phrase: float | None = None
    first_audio: float | None = None
    first_audio_sent: float | None = None

    def after_speech_ms(self, name: str) -> float | None:
        """A mark as milliseconds after the last voiced sample."""
        value: float | None = getattr(self, name)
        if value is None or self.heard is None:
            return None
        return round((value - self.heard) * 1000, 1)


@dataclass(slots=True)
class Turn:
    """State of one turn. Owned by its call."""

    session_id: str
    options: ResponseOptions
    utterance: Utterance | None = None
    """None: the client asked for an answer, or the bot speaks first."""
    spoken_text: str | None = None
    """A fixed text to say instead of asking the model (the greeting)."""
    answer: bool = True
    """False: only transcribe."""
    speculative: bool = False
    wasted_speculations: int = 0
    """Answers begun earlier in this utterance, and dropped when it went on."""
    marks: Marks = field(default_factory=Marks)
    transcript: Transcript | None = None
    response: Response | None = None
    end: TurnEnd | None = None
    silence_wait_ms: int = 0
    committed: anyio.Event = field(default_factory=anyio.Event)
    ended: anyio.Event = field(default_factory=anyio.Event)
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    transcript_published: bool = False
    shorten_after_tokens: int | None = None
    """The answer ends with the sentence that is running after so many: it began under load. None: it ends by itself."""
    answer_source: str | None = None
    """`model`, or the level of the cache the answer came from; None: not known yet, or a fixed text."""

    def cancel(self, why: TurnEnd) -> None:
        """End it early; the first reason stands."""
        self.end = self.end or why
        self.scope.cancel()
