"""The caller's microphone clock and loudspeaker, in virtual time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duolog.loadtest.call_log import Turn
from duolog.loadtest.microphone import SILENCE, Microphone
from duolog.loadtest.pacing import FRAME_SAMPLES, FrameSchedule, SentFrames, cut_frames
from duolog.loadtest.playout import VirtualPlayer

pytestmark = pytest.mark.pure


def test_a_frame_leaves_when_its_last_sample_was_captured() -> None:
    schedule = FrameSchedule(start_s=10.0)
    assert schedule.deadline_s(0) == pytest.approx(10.02)
    assert schedule.deadline_s(49) == pytest.approx(11.0)


@given(st.lists(st.floats(0, 0.5), min_size=1, max_size=50))
def test_lateness_never_moves_later_deadlines(delays_s: list[float]) -> None:
    schedule = FrameSchedule(start_s=0.0)
    sent, now_s = SentFrames(schedule), 0.0
    for index, delay_s in enumerate(delays_s):
        now_s = max(now_s, schedule.deadline_s(index)) + delay_s
        sent.record(now_s)
    assert schedule.deadline_s(len(sent)) == pytest.approx((len(delays_s) + 1) * 0.02)
    assert sent.worst_lateness_ms() >= max(delays_s) * 1000 - 1e-6


def test_the_time_of_a_sample_is_when_its_frame_was_sent() -> None:
    sent = SentFrames(FrameSchedule(start_s=0.0))
    for now_s in (0.021, 0.045):
        sent.record(now_s)
    assert sent.time_of_sample(319) == 0.021
    assert sent.time_of_sample(320) == 0.045
    assert sent.time_of_sample(640) == pytest.approx(0.06)


@given(st.integers(0, 2_000))
def test_frames_hold_every_sample_and_are_filled_up(length: int) -> None:
    samples = np.arange(1, length + 1).astype(np.int16)
    frames = cut_frames(samples)
    joined = np.frombuffer(b"".join(frames), dtype="<i2")
    assert {len(frame) for frame in frames} <= {FRAME_SAMPLES * 2}
    assert np.array_equal(joined[:length], samples)
    assert not joined[length:].any()


def test_the_microphone_marks_the_last_voiced_frame_and_then_is_silent() -> None:
    tone = np.full(FRAME_SAMPLES * 3, 8_000, dtype=np.int16)
    recording = np.concatenate([tone, np.zeros(FRAME_SAMPLES * 2, dtype=np.int16)])
    turn, microphone = Turn("tone", started_s=0.0), Microphone()
    microphone.speak(recording, turn)
    voiced_at = []
    for number in range(6):
        frame = microphone.next_frame()
        microphone.frame_sent(float(number))
        voiced_at.append(turn.last_voiced_s)
    assert voiced_at == [None, None, 2.0, 2.0, 2.0, 2.0]
    assert frame == SILENCE


def test_a_microphone_that_is_behind_sends_the_silence_it_owes_before_speech() -> None:
    schedule, microphone = FrameSchedule(10.0), Microphone()
    sent, now_s = 3, 10.15
    owed = schedule.first_frame_from(now_s) - sent
    assert owed == 5
    microphone.speak(np.full(320, 8_000, dtype=np.int16), Turn("a", now_s), owed)
    microphone.speak(np.full(320, 9_000, dtype=np.int16), Turn("b", now_s), owed)
    frames = [microphone.next_frame() for _ in range(8)]
    assert [frame != SILENCE for frame in frames] == [False] * 5 + [True, True, False]
    assert schedule.deadline_s(sent + 5) >= now_s + 0.02


@pytest.mark.parametrize(("now_s", "frame"), [(9.0, 0), (10.0, 0), (10.001, 1), (10.02, 1), (10.3, 15), (10.31, 16)])
def test_the_first_frame_that_begins_no_earlier_than_now(now_s: float, frame: int) -> None:
    assert FrameSchedule(10.0).first_frame_from(now_s) == frame


def test_turns_that_overlap_in_the_queue_end_where_each_was_sent() -> None:
    microphone = Microphone()
    first, second = Turn("a", 0.0), Turn("b", 0.0)
    loud = np.full(2 * 320, 8_000, dtype=np.int16)
    microphone.speak(loud, first)
    microphone.speak(loud, second)
    for index in range(4):
        microphone.next_frame()
        microphone.frame_sent(float(index))
    assert (first.last_voiced_s, second.last_voiced_s) == (1.0, 3.0)


def test_the_speaker_plays_in_real_time_and_counts_stalls() -> None:
    player = VirtualPlayer(rate_hz=1_000)
    assert player.receive(100, now_s=1.0) == 1.0
    assert player.receive(100, now_s=1.05) == pytest.approx(1.1)
    assert player.played_samples(1.05) == 50
    assert player.played_samples(1.3) == 200
    assert player.is_idle(1.3)
    assert player.receive(50, now_s=1.5) == 1.5
    assert player.stalled_ms == pytest.approx(300)
    assert player.played_samples(1.52) == 220


def test_a_stopped_speaker_keeps_its_position() -> None:
    player = VirtualPlayer(rate_hz=1_000)
    player.receive(1_000, now_s=0.0)
    assert player.stop(0.25) == 250
    player.receive(1_000, now_s=0.3)
    assert (player.stopped, player.is_idle(0.3), player.played_samples(9.0)) == (True, True, 250)


@given(st.lists(st.tuples(st.integers(1, 500), st.floats(0, 0.5)), min_size=1, max_size=20))
def test_played_never_runs_backwards_nor_past_what_came(chunks: list[tuple[int, float]]) -> None:
    player, now_s, before = VirtualPlayer(rate_hz=1_000), 0.0, 0
    for samples, wait_s in chunks:
        player.receive(samples, now_s)
        now_s += wait_s
        played = player.played_samples(now_s)
        assert before <= played <= player.received_samples
        before = played
