"""The two ends of the measurement, the stages between, and the figures made of them."""

from __future__ import annotations

import numpy as np
import pytest

from duolog.loadtest.call_log import Answer, Turn
from duolog.loadtest.measure import turn_timeline
from duolog.loadtest.measured_turn import MeasuredTurn
from duolog.loadtest.pacing import FrameSchedule, SentFrames
from duolog.loadtest.playout import VirtualPlayer
from duolog.loadtest.timeline import (
    Percentiles,
    TurnTimeline,
    first_audible_sample,
    first_phrase_words,
    last_voiced_sample,
    median_of_medians,
    percentiles,
)
from duolog.loadtest.waterfall import waterfall

pytestmark = pytest.mark.pure


def tone(frames: int, level: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int16]]:
    return np.resize(np.array([level, -level], dtype=np.int16), frames * 320)


@pytest.mark.parametrize(("tail_level", "last"), [(0, 10 * 320 - 1), (200, 10 * 320 - 1), (400, 20 * 320 - 1)])
def test_the_last_voiced_sample_is_within_30_db_of_the_loudest(tail_level: int, last: int) -> None:
    assert last_voiced_sample(np.concatenate([tone(10, 8_000), tone(10, tail_level)])) == last


def test_a_silent_recording_has_no_voice() -> None:
    assert last_voiced_sample(np.zeros(1_000, dtype=np.int16)) == 0
    assert last_voiced_sample(np.zeros(10, dtype=np.int16)) == 9


def test_audible_is_one_percent_of_full_scale() -> None:
    assert first_audible_sample(np.array([0, 327, -328, 9_000], dtype=np.int16)) == 2
    assert first_audible_sample(np.array([-32_768], dtype=np.int16)) == 0
    assert first_audible_sample(np.array([1, 2], dtype=np.int16)) is None


def test_percentiles_leave_out_what_is_missing() -> None:
    assert percentiles([None, *map(float, range(101))]) == Percentiles(50.0, 90.0, 99.0)
    assert percentiles([None]) is None


@pytest.mark.parametrize(
    ("answer", "words"),
    [("Well, I think so.", 1), ("I think so, yes.", 3), ("", 0), ("今天天气很好,你呢?", 6), ("The weather is fine", 4)],
)
def test_words_of_the_first_phrase(answer: str, words: int) -> None:
    assert first_phrase_words(answer) == words


def test_one_slow_round_does_not_move_the_median() -> None:
    assert median_of_medians([[100.0, 110.0], [9_000.0], [120.0], []]) == 120.0
    assert median_of_medians([]) is None


def answered(*, typed: bool = False) -> Turn:
    turn = Turn("hello", started_s=0.0, last_voiced_s=2.0, typed=typed, stopped_s=2.6, transcript_s=2.7)
    answer = Answer("resp_1", created_s=2.6, last_sign_s=2.6, player=VirtualPlayer(24_000), status="completed")
    answer.first_text_s, answer.first_frame_s, answer.heard_s = 2.8, 2.9, 2.95
    turn.answers.append(answer)
    return turn


def test_without_the_servers_marks_the_callers_own_hold() -> None:
    timeline = turn_timeline(answered(), SentFrames(FrameSchedule(0.0)))
    assert timeline is not None
    assert timeline.endpoint_ms == pytest.approx(600)
    assert timeline.first_audio_sent_ms == pytest.approx(900)
    assert timeline.heard_ms == pytest.approx(950)
    assert timeline.after_endpoint_ms() == pytest.approx(350)
    assert timeline.sent_after_endpoint_ms() == pytest.approx(300)
    assert timeline.admitted_ms is None


def test_the_servers_marks_are_moved_to_the_callers_clock() -> None:
    turn = answered()
    turn.answers[0].timings = {"speech_end_sample": 320 * 101 - 1, "endpoint_ms": 500.0, "silence_wait_ms": 500}
    timeline = turn_timeline(turn, SentFrames(FrameSchedule(0.0)))
    assert timeline is not None
    assert timeline.endpoint_ms == pytest.approx(520), "the server took a frame more for voice"
    assert timeline.silence_wait_ms == 500
    assert timeline.transcript_ms == pytest.approx(700)


def test_a_typed_turn_counts_from_its_sending() -> None:
    turn = answered(typed=True)
    turn.answers[0].timings = {"first_token_ms": 30.0}
    timeline = turn_timeline(turn, SentFrames(FrameSchedule(0.0)))
    assert timeline is not None
    assert timeline.first_token_ms == pytest.approx(30)


def test_no_answer_no_timeline() -> None:
    assert turn_timeline(Turn("hello", 0.0, last_voiced_s=1.0), SentFrames(FrameSchedule(0.0))) is None


@pytest.mark.parametrize(
    ("turn", "reason"),
    [
        (MeasuredTurn("a", failure="no answer"), "failed"),
        (MeasuredTurn("a", answer="One two three", timeline=TurnTimeline()), "silent"),
        (MeasuredTurn("a", answer="Well, yes", timeline=TurnTimeline(heard_ms=1.0)), "first phrase too short"),
        (
            MeasuredTurn("a", answer="One two three", timeline=TurnTimeline(heard_ms=1.0), premature_answers=1),
            "answered half a sentence",
        ),
        (MeasuredTurn("a", answer="One two three", timeline=TurnTimeline(heard_ms=1.0)), None),
    ],
)
def test_which_turns_count(turn: MeasuredTurn, reason: str | None) -> None:
    assert turn.rejected == reason


def test_the_waterfall_is_in_order_of_time() -> None:
    timeline = TurnTimeline(endpoint_ms=600, transcript_ms=200, heard_ms=700, silence_wait_ms=500)
    lines = waterfall(timeline).splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["transcript", "turn", "heard"]
    assert lines[2].endswith("700 ms    +100")
    assert lines[3].strip() == "500 ms of silence by design; 100 ms from the end of the turn to sound"
    assert "no timings" in waterfall(TurnTimeline())
