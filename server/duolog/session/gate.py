"""From a transcript to the evidence that the hallucination gate judges (`turns/hallucination.py`)."""

from __future__ import annotations

from duolog.ports.asr import Transcript
from duolog.turns.hallucination import Evidence


def evidence_of(transcript: Transcript, voiced_ms: int) -> Evidence:
    """`voiced_ms`: what the voice detector heard in the same sound."""
    return Evidence(
        text=transcript.text,
        voiced_ms=voiced_ms,
        audio_s=transcript.audio_s,
        mean_logprob=transcript.mean_logprob,
        no_speech_prob=transcript.no_speech_prob,
        compression_ratio=transcript.compression_ratio,
    )
