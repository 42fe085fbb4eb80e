"""What became of planned turns and calls. Values, and the judgement of one turn; pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from duolog.loadtest.call_log import Answer, Turn
from duolog.loadtest.call_plan import TurnKind
from duolog.loadtest.wire_text import number_field


class TurnEnding(StrEnum):
    ANSWERED = "answered"
    MISSED = "missed"
    CUT_OFF = "cut_off"
    """Answered before the caller had finished: a matter of turn taking, not of load; no latency."""
    QUIET = "quiet"
    """A silence or a noise that was not answered, as it should be."""
    PHANTOM = "phantom"
    """One that was."""


class Miss(StrEnum):
    """Why a turn was missed."""

    NO_ANSWER = "no answer came"
    NOT_HEARD = "an answer began and was not heard in time"
    ANSWER_FAILED = "the answer failed"
    CALL_FAILED = "the call had failed"


@dataclass(frozen=True, slots=True)
class TurnOutcome:
    call: int
    number: int
    kind: TurnKind
    end_s: float
    """Scheduled end of what was said, after the run began."""
    deadline_s: float
    ending: TurnEnding
    latency_ms: float | None = None
    """From the scheduled end to the first audible sample, in text mode to the first text."""
    miss: Miss | None = None
    late_ms: float = 0.0
    """How late the caller itself began: the tool's own share."""
    stalled_ms: float = 0.0
    """How long the answer stood still for want of sound."""
    barge_in_stop_ms: float | None = None
    """From the scheduled first word of an interruption to the flush that silenced the answer."""
    interrupted: bool = False
    """An answer was being heard when this turn began."""
    marks_ms: Mapping[str, float] = field(default_factory=dict)
    """Stages of an answered turn, after the last voiced sample was really sent."""


class CallEnding(StrEnum):
    ON_THE_LINE = "on the line"
    """Not ended when the test was stopped."""
    COMPLETED = "completed"
    REFUSED = "refused"
    FAILED = "failed"


@dataclass(slots=True)
class CallRecord:
    """One call, written while it goes on, so that a test that is stopped knows what was measured."""

    index: int
    arrived_s: float
    ending: CallEnding = CallEnding.ON_THE_LINE
    reason: str = ""
    """A refusal's code, a failure's sentence."""
    told_ms: float | None = None
    """How long a refused caller waited to be told."""
    connected_ms: float | None = None
    """How long it took until the call was up."""
    ended_s: float | None = None
    worst_frame_ms: float = 0.0
    """How far the most delayed microphone frame was behind."""
    turns: list[TurnOutcome] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class HeardBy:
    """Until when an answer counts, on the caller's clock, and to which speech it must belong."""

    deadline_s: float
    first_sample: int
    """Of the turn, among all the call's microphone samples."""
    expects_text: bool


def counted_answer(turn: Turn, by: HeardBy) -> tuple[Answer, float] | None:
    """The first answer to this turn that was heard (read) in time, and when. An answer to something said before, which
    came so late that it began after this turn, is not this turn's."""
    for answer in turn.answers:
        seen_s = answer.first_text_s if by.expects_text else answer.heard_s
        if seen_s is None or seen_s > by.deadline_s or turn.is_premature(answer) or _of_earlier_speech(answer, by):
            continue
        return answer, seen_s
    return None


def why_missed(turn: Turn) -> Miss:
    if any(answer.status == "failed" for answer in turn.answers):
        return Miss.ANSWER_FAILED
    return Miss.NOT_HEARD if any(not turn.is_premature(answer) for answer in turn.answers) else Miss.NO_ANSWER


def was_cut_off(turn: Turn) -> bool:
    """Heard an answer to half of it, and none to the whole."""
    return any(turn.is_premature(answer) and answer.heard_s is not None for answer in turn.answers)


def _of_earlier_speech(answer: Answer, by: HeardBy) -> bool:
    spoken_at = None if answer.timings is None else number_field(answer.timings, "speech_end_sample")
    return spoken_at is not None and not by.expects_text and spoken_at < by.first_sample
