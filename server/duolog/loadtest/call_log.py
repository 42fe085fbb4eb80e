"""What the caller saw and heard, turn by turn. Sans I/O: fed with events, frames and the time; hands back replies.

A turn's answer is the first response that began after the last voiced sample, was heard and was not broken off. One
that began before it answered half a sentence; it is kept as premature and never measured.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from duolog.loadtest.playout import VirtualPlayer
from duolog.loadtest.timeline import first_audible_sample
from duolog.loadtest.wire_text import Message, SpeechFrame, number_field, text_field

SETTLE_S = 3.0
"""How long a premature answer that was played out is given to be followed by the one to the whole sentence."""


@dataclass(slots=True)
class Answer:
    """One response of the server, with what was heard of it."""

    response_id: str
    created_s: float
    last_sign_s: float
    """When anything of it last came, or its sound so far will have been played."""
    player: VirtualPlayer
    generation: int | None = None
    text: str = ""
    status: str = "in_progress"
    reason: str = ""
    first_text_s: float | None = None
    first_frame_s: float | None = None
    heard_s: float | None = None
    chunks: list[NDArray[np.int16]] = field(default_factory=list)
    timings: Message | None = None
    all_sent: bool = False
    """The server has sent all of its sound."""
    end_reported: bool = False

    @property
    def done(self) -> bool:
        return self.status != "in_progress"

    @property
    def cancelled(self) -> bool:
        return self.status == "cancelled"


@dataclass(slots=True)
class Turn:
    """One thing the caller said, and what came back."""

    label: str
    started_s: float
    last_voiced_s: float | None = None
    """When the last voiced sample, or the typed text, was sent; None while the caller still speaks."""
    typed: bool = False
    caption: str = ""
    transcript: str = ""
    stopped_s: float | None = None
    transcript_s: float | None = None
    answers: list[Answer] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def is_premature(self, answer: Answer) -> bool:
        return self.last_voiced_s is None or answer.created_s < self.last_voiced_s

    @property
    def answer(self) -> Answer | None:
        """The answer that counts, None while there is none."""
        fitting = [answer for answer in self.answers if not self.is_premature(answer)]
        kept = [answer for answer in fitting if not answer.cancelled]
        heard = [answer for answer in kept or fitting if answer.heard_s is not None]
        return next(iter(heard or kept or fitting), None)

    @property
    def premature_answers(self) -> int:
        return sum(1 for answer in self.answers if self.is_premature(answer))

    def finished(self, now_s: float) -> bool:
        """The answer has been given and played to its end."""
        if self.last_voiced_s is None or not self.answers or not all(answer.done for answer in self.answers):
            return False
        newest = self.answers[-1]
        if newest.cancelled or not newest.player.is_idle(now_s):
            return False
        return not self.is_premature(newest) or now_s >= self.last_voiced_s + SETTLE_S


class CallLog:
    """The caller's side of one call."""

    def __init__(self) -> None:
        self.session_id = ""
        self.persona = ""
        self.output_rate_hz = 24_000
        self.ready = False
        """The server has said which session this is."""
        self.turns: list[Turn] = []
        self._by_response: dict[str, Answer] = {}
        self._by_generation: dict[int, Answer] = {}
        self._flushed_below = 0

    def begin_turn(self, label: str, now_s: float) -> Turn:
        turn = Turn(label, now_s)
        self.turns.append(turn)
        return turn

    def on_message(self, message: Message, now_s: float) -> list[dict[str, object]]:
        """Take in an event; returns what to send in reply."""
        kind = text_field(message, "type")
        if kind == "duolog.flush":
            return self._flush(message, now_s)
        if kind in ("session.created", "duolog.session"):
            self._take_session(kind, message)
        elif self.turns:
            self._take_input(kind, message, now_s)
            self._take_answer(kind, message, now_s)
        return []

    def on_speech(self, frame: SpeechFrame, now_s: float) -> None:
        """Take in a binary frame: it is played behind what is queued, unless a flush has overtaken it."""
        answer = self._by_generation.get(frame.generation)
        if answer is None or answer.player.stopped or frame.generation < self._flushed_below:
            return
        heard_from_s = answer.player.receive(len(frame.samples), now_s)
        answer.chunks.append(frame.samples)
        answer.last_sign_s = heard_from_s + len(frame.samples) / answer.player.rate_hz
        answer.first_frame_s = now_s if answer.first_frame_s is None else answer.first_frame_s
        audible = first_audible_sample(frame.samples)
        if answer.heard_s is None and audible is not None:
            answer.heard_s = heard_from_s + audible / answer.player.rate_hz

    def playout_reports(self, now_s: float) -> list[dict[str, object]]:
        """What to report about the generations that are playing, and once about each that has ended."""
        reports = []
        for answer in self._by_generation.values():
            if answer.end_reported or not answer.player.received_samples:
                continue
            answer.end_reported = answer.all_sent and answer.player.is_idle(now_s)
            reports.append(_report(answer, now_s, ended=answer.end_reported))
        return reports

    def _take_session(self, kind: str, message: Message) -> None:
        if kind == "session.created":
            self.session_id = text_field(message, "session", "id")
            return
        self.ready = True
        self.persona = text_field(message, "persona")
        self.output_rate_hz = int(number_field(message, "output_rate_hz") or self.output_rate_hz)

    def _take_input(self, kind: str, message: Message, now_s: float) -> None:
        turn = self.turns[-1]
        match kind:
            case "input_audio_buffer.speech_stopped":
                turn.stopped_s = now_s
            case "conversation.item.input_audio_transcription.delta":
                turn.caption += text_field(message, "delta")
            case "conversation.item.input_audio_transcription.completed":
                turn.transcript = f"{turn.transcript} {text_field(message, 'transcript')}".strip()
                turn.transcript_s = now_s
            case "conversation.item.input_audio_transcription.failed" | "error":
                turn.problems.append(text_field(message, "error", "message") or kind)

    def _take_answer(self, kind: str, message: Message, now_s: float) -> None:
        if kind == "response.created":
            self._begin_answer(text_field(message, "response", "id"), now_s)
            return
        answer = self._by_response.get(text_field(message, "response_id") or text_field(message, "response", "id"))
        if answer is None:
            return
        answer.last_sign_s = max(answer.last_sign_s, now_s)
        match kind:
            case "duolog.speech.started":
                self._begin_speech(answer, message)
            case "response.output_audio_transcript.delta" | "response.output_text.delta":
                answer.text += text_field(message, "delta")
                answer.first_text_s = now_s if answer.first_text_s is None else answer.first_text_s
            case "response.output_audio_transcript.done":
                answer.text = text_field(message, "transcript") or answer.text
            case "response.output_text.done":
                answer.text = text_field(message, "text") or answer.text
            case "response.output_audio.done":
                answer.all_sent = True
            case "duolog.turn.timings":
                answer.timings = message
            case "response.done":
                self._end_answer(answer, message)

    def _begin_answer(self, response_id: str, now_s: float) -> None:
        answer = Answer(response_id, now_s, now_s, VirtualPlayer(self.output_rate_hz))
        self._by_response[response_id] = answer
        self.turns[-1].answers.append(answer)

    def _begin_speech(self, answer: Answer, message: Message) -> None:
        answer.generation = int(number_field(message, "generation") or 0)
        answer.player = VirtualPlayer(int(number_field(message, "sample_rate_hz") or self.output_rate_hz))
        self._by_generation[answer.generation] = answer

    def _end_answer(self, answer: Answer, message: Message) -> None:
        answer.status = text_field(message, "response", "status") or "completed"
        answer.all_sent = True
        details = ("response", "status_details")
        answer.reason = text_field(message, *details, "error", "message") or text_field(message, *details, "reason")

    def _flush(self, message: Message, now_s: float) -> list[dict[str, object]]:
        self._flushed_below = max(self._flushed_below, int(number_field(message, "generation") or 0))
        replies = []
        for generation, answer in self._by_generation.items():
            if generation < self._flushed_below and not answer.end_reported:
                answer.player.stop(now_s)
                answer.end_reported = True
                replies.append(_report(answer, now_s, ended=True))
        return replies


def _report(answer: Answer, now_s: float, *, ended: bool) -> dict[str, object]:
    return {
        "type": "duolog.playout.report",
        "generation": answer.generation,
        "played_samples": answer.player.played_samples(now_s),
        "ended": ended,
    }
