"""The gate: each rule by itself, and short real answers that must pass."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duolog.turns.hallucination import DropReason, Evidence, judge

pytestmark = pytest.mark.pure

GOOD = Evidence(
    text="What is the weather like today?",
    voiced_ms=1_600,
    audio_s=2.2,
    mean_logprob=-0.2,
    no_speech_prob=0.02,
    compression_ratio=0.9,
)


def test_good_evidence_passes() -> None:
    assert judge(GOOD) is None


@pytest.mark.parametrize(
    ("evidence", "reason"),
    [
        (replace(GOOD, voiced_ms=96), DropReason.TOO_LITTLE_VOICE),
        (replace(GOOD, no_speech_prob=0.8, mean_logprob=-0.7), DropReason.NO_SPEECH),
        (replace(GOOD, mean_logprob=-1.2), DropReason.IMPROBABLE),
        (replace(GOOD, compression_ratio=2.4), DropReason.COMPRESSIBLE),
        (replace(GOOD, text="you " * 8), DropReason.REPETITIVE),
        (replace(GOOD, text="Thank you for watching, see you next time.", voiced_ms=400), DropReason.TOO_FAST),
        (replace(GOOD, text="谢谢大家的收看我们下次再见", voiced_ms=400), DropReason.TOO_FAST),
    ],
)
def test_each_rule_has_its_reason(evidence: Evidence, reason: DropReason) -> None:
    assert judge(evidence) is reason


@pytest.mark.parametrize(
    "text", ["No.", "Yes.", "Yes, please.", "OK.", "四十", "B", "No, no, no.", "Goodbye.", "Stop!", "对", "不"]
)
def test_short_real_answers_pass(text: str) -> None:
    short = Evidence(text, voiced_ms=160, audio_s=0.7, mean_logprob=-0.7, no_speech_prob=0.3, compression_ratio=0.4)
    assert judge(short) is None


def test_a_certain_yes_passes_a_high_no_speech_probability() -> None:
    assert judge(replace(GOOD, text="Yes.", voiced_ms=200, no_speech_prob=0.85, mean_logprob=-0.3)) is None


@settings(deadline=None)
@given(st.floats(-5, 0), st.floats(0, 1), st.floats(0, 9), st.integers(0, 5_000))
def test_an_empty_text_is_never_dropped(logprob: float, no_speech: float, ratio: float, voiced_ms: int) -> None:
    assert judge(Evidence("", voiced_ms, 1.0, logprob, no_speech, ratio)) is None
