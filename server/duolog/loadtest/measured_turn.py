"""One measured turn, and whether it may be counted. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from duolog.loadtest.call_log import Turn
from duolog.loadtest.timeline import TurnTimeline, first_phrase_words

MIN_FIRST_PHRASE_WORDS = 3
"""An answer whose first phrase is shorter is a filler or a greeting: it says nothing about the model's latency."""


@dataclass(frozen=True, slots=True)
class MeasuredTurn:
    utterance: str
    transcript: str = ""
    answer: str = ""
    timeline: TurnTimeline | None = None
    premature_answers: int = 0
    """Answers that began before the caller had finished."""
    stalled_ms: float = 0.0
    """How long the answer's sound stood still because more had not come yet."""
    failure: str | None = None
    """Why there is no answer."""
    min_words: int = MIN_FIRST_PHRASE_WORDS
    """In the first phrase, for the turn to count; 1 for scripted engines, which have no model to hide."""

    @property
    def rejected(self) -> str | None:
        """Why this turn is left out of the figures, None where it counts."""
        if self.failure is not None:
            return "failed"
        if self.timeline is None or self.timeline.heard_ms is None:
            return "silent"
        if self.premature_answers:
            return "answered half a sentence"
        if first_phrase_words(self.answer) < self.min_words:
            return "first phrase too short"
        return None


def measured(turn: Turn, timeline: TurnTimeline | None, min_words: int = MIN_FIRST_PHRASE_WORDS) -> MeasuredTurn:
    """A turn that was heard out."""
    answer = turn.answer
    return MeasuredTurn(
        utterance=turn.label,
        transcript=turn.transcript,
        answer="" if answer is None else answer.text.strip(),
        timeline=timeline,
        premature_answers=turn.premature_answers,
        stalled_ms=0.0 if answer is None else round(answer.player.stalled_ms, 1),
        min_words=min_words,
    )
