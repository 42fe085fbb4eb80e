"""Was it really said? A gate for transcripts with the evidence of detector and recogniser. Pure.

Recognisers invent text on silence, noise and music. Each rule stands on its own and has its own reason, so that drops
can be counted. The thresholds hold for Whisper and were set on recorded speech and noise (docs/decisions/0002).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from duolog.turns.repetition import longest_run
from duolog.turns.wording import is_ideograph

MIN_VOICED_MS = 120
MIN_MEAN_LOGPROB = -1.1
MAX_COMPRESSION_RATIO = 2.0
MAX_NO_SPEECH_PROB = 0.6
CERTAIN_MEAN_LOGPROB = -0.5
"""A transcript this likely is kept whatever the no-speech probability: "yes" and "no" often carry a high one."""
MAX_RUN = 5
"""A phrase said more often in a row than this is a loop."""
MAX_LETTERS_PER_S = 35.0
"""Twice a fast speaker; of voiced time."""
MAX_IDEOGRAPHS_PER_S = 14.0
RATE_SLACK_S = 0.3
"""The detector misses soft beginnings and ends; it weighs most in short answers."""


class DropReason(StrEnum):
    TOO_LITTLE_VOICE = "too_little_voice"
    NO_SPEECH = "no_speech"
    IMPROBABLE = "improbable"
    COMPRESSIBLE = "compressible"
    REPETITIVE = "repetitive"
    TOO_FAST = "too_fast"


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known about one transcript."""

    text: str
    voiced_ms: int
    """Time the voice detector heard a voice in it."""
    audio_s: float
    mean_logprob: float
    """Per token; 0 is certain."""
    no_speech_prob: float
    compression_ratio: float
    """UTF-8 bytes over zlib bytes."""


def judge(evidence: Evidence) -> DropReason | None:
    """Why the transcript must be dropped, the first reason that holds; None where it stands, or is empty."""
    if not evidence.text:
        return None
    return next((reason for reason, holds in _RULES if holds(evidence)), None)


def _no_speech(evidence: Evidence) -> bool:
    return evidence.no_speech_prob > MAX_NO_SPEECH_PROB and evidence.mean_logprob < CERTAIN_MEAN_LOGPROB


def _too_fast(evidence: Evidence) -> bool:
    """More text than a voice of that length can say."""
    ideographs = sum(is_ideograph(character) for character in evidence.text)
    letters = sum(character.isalnum() for character in evidence.text) - ideographs
    needed_s = letters / MAX_LETTERS_PER_S + ideographs / MAX_IDEOGRAPHS_PER_S
    return needed_s > evidence.voiced_ms / 1000 + RATE_SLACK_S


_RULES = (
    (DropReason.TOO_LITTLE_VOICE, lambda evidence: evidence.voiced_ms < MIN_VOICED_MS),
    (DropReason.NO_SPEECH, _no_speech),
    (DropReason.IMPROBABLE, lambda evidence: evidence.mean_logprob < MIN_MEAN_LOGPROB),
    (DropReason.COMPRESSIBLE, lambda evidence: evidence.compression_ratio > MAX_COMPRESSION_RATIO),
    (DropReason.REPETITIVE, lambda evidence: longest_run(evidence.text) > MAX_RUN),
    (DropReason.TOO_FAST, _too_fast),
)
