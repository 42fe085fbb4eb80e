"""What the caller makes of events and frames, without a socket."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from duolog.loadtest.call_log import SETTLE_S, CallLog, Turn
from duolog.loadtest.wire_text import (
    SpeechFrame,
    field,
    microphone_frame,
    number_field,
    parse_message,
    parse_speech_frame,
    text_field,
)

pytestmark = pytest.mark.pure

LOUD = np.full(2_400, 5_000, dtype=np.int16)
"""100 ms at 24 kHz."""


def begun(voiced_s: float | None = 1.0) -> tuple[CallLog, Turn]:
    log = CallLog()
    log.on_message({"type": "duolog.session", "persona": "ava", "output_rate_hz": 24_000}, 0.0)
    turn = log.begin_turn("hello", 0.0)
    turn.last_voiced_s = voiced_s
    return log, turn


def speak(log: CallLog, generation: int, now_s: float) -> None:
    response = f"resp_{generation}"
    log.on_message({"type": "response.created", "response": {"id": response}}, now_s)
    started = {"type": "duolog.speech.started", "generation": generation, "response_id": response}
    log.on_message(started, now_s)
    log.on_speech(SpeechFrame(generation, 0, LOUD), now_s)


def end(log: CallLog, generation: int, now_s: float, status: str = "completed") -> None:
    response = {"id": f"resp_{generation}", "status": status}
    log.on_message({"type": "response.done", "response": response}, now_s)


def test_a_turn_is_finished_when_its_answer_has_been_played() -> None:
    log, turn = begun()
    speak(log, 1, now_s=1.5)
    assert not turn.finished(2.0)
    end(log, 1, now_s=1.55)
    assert not turn.finished(1.59)
    assert turn.finished(1.61)
    assert turn.answer is not None
    assert turn.answer.heard_s == 1.5


def test_an_answer_to_half_a_sentence_does_not_count() -> None:
    log, turn = begun(voiced_s=None)
    speak(log, 1, now_s=0.5)
    turn.last_voiced_s = 1.0
    end(log, 1, now_s=0.9)
    assert turn.premature_answers == 1
    assert turn.answer is None
    assert not turn.finished(1.0 + SETTLE_S - 0.1)
    assert turn.finished(1.0 + SETTLE_S)


def test_a_cancelled_answer_is_replaced_by_the_next() -> None:
    log, turn = begun()
    speak(log, 1, now_s=1.2)
    [report] = log.on_message({"type": "duolog.flush", "generation": 2}, 1.25)
    assert (report["generation"], report["played_samples"], report["ended"]) == (1, 1_200, True)
    end(log, 1, now_s=1.25, status="cancelled")
    assert not turn.finished(9.0)
    speak(log, 2, now_s=1.4)
    end(log, 2, now_s=1.4)
    assert turn.finished(1.6)
    assert turn.answer is turn.answers[1]


def test_frames_that_a_flush_has_overtaken_are_dropped() -> None:
    log, turn = begun()
    speak(log, 1, now_s=1.2)
    log.on_message({"type": "duolog.flush", "generation": 2}, 1.25)
    log.on_speech(SpeechFrame(1, 2_400, LOUD), 1.3)
    assert sum(map(len, turn.answers[0].chunks)) == len(LOUD)
    assert log.on_message({"type": "duolog.flush", "generation": 2}, 1.4) == []


def test_playout_is_reported_until_it_ended_once() -> None:
    log, _ = begun()
    speak(log, 1, now_s=1.0)
    [first] = log.playout_reports(1.05)
    assert (first["played_samples"], first["ended"]) == (1_200, False)
    log.on_message({"type": "response.output_audio.done", "response_id": "resp_1"}, 1.06)
    [last] = log.playout_reports(1.2)
    assert (last["played_samples"], last["ended"]) == (2_400, True)
    assert log.playout_reports(1.3) == []


def test_transcript_text_and_timings_are_kept() -> None:
    log, turn = begun()
    prefix = "conversation.item.input_audio_transcription"
    log.on_message({"type": f"{prefix}.delta", "delta": "he"}, 1.1)
    log.on_message({"type": f"{prefix}.completed", "transcript": "hello"}, 1.2)
    log.on_message({"type": "input_audio_buffer.speech_stopped"}, 1.3)
    speak(log, 1, now_s=1.5)
    delta = {"type": "response.output_audio_transcript.delta", "response_id": "resp_1", "delta": "Hi"}
    log.on_message(delta, 1.5)
    done = {"type": "response.output_audio_transcript.done", "response_id": "resp_1", "transcript": "Hi there."}
    log.on_message(done, 1.6)
    log.on_message({"type": "duolog.turn.timings", "response_id": "resp_1", "endpoint_ms": 3}, 1.6)
    answer = turn.answer
    assert (turn.caption, turn.transcript, turn.transcript_s, turn.stopped_s) == ("he", "hello", 1.2, 1.3)
    assert answer is not None
    assert (answer.text, answer.first_text_s) == ("Hi there.", 1.5)
    assert answer.timings is not None


def test_errors_are_kept_with_the_turn() -> None:
    log, turn = begun()
    log.on_message({"type": "error", "error": {"message": "odd byte count"}}, 1.0)
    log.on_message({"type": "something.new"}, 1.0)
    assert turn.problems == ["odd byte count"]


def test_binary_frames() -> None:
    assert microphone_frame(65_537, b"ab") == b"\x01\x00\x01\x00ab"
    frame = parse_speech_frame(struct.pack("<BBHIIhh", 2, 0, 0, 7, 480, 1, -1))
    assert (frame.generation, frame.start_sample, frame.samples.tolist()) == (7, 480, [1, -1])
    for wrong in (b"", b"\x02short", bytes(20)):
        with pytest.raises(ValueError, match="is not speech"):
            parse_speech_frame(wrong)


def test_fields_are_read_carefully() -> None:
    message = parse_message('{"a": {"b": "text", "c": 1, "d": true}}')
    assert text_field(message, "a", "b") == "text"
    assert text_field(message, "a", "c") == ""
    assert number_field(message, "a", "c") == 1.0
    assert number_field(message, "a", "d") is None
    assert field(message, "a", "b", "c") is None
    with pytest.raises(ValueError, match="JSON object"):
        parse_message("[]")
