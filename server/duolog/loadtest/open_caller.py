"""A caller that keeps to its plan whatever the server does, and judges each turn at the moment it goes on.

Knows no socket: a Line is handed in, so that plans can be acted out in virtual time.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import Protocol

import anyio
import numpy as np
from numpy.typing import NDArray

from duolog.loadtest.call_log import CallLog, Turn
from duolog.loadtest.call_plan import CallPlan, TurnKind, TurnPlan
from duolog.loadtest.failures import CallFailed, CallRefused
from duolog.loadtest.outcomes import (
    CallEnding,
    CallRecord,
    HeardBy,
    Miss,
    TurnEnding,
    TurnOutcome,
    counted_answer,
    was_cut_off,
    why_missed,
)
from duolog.loadtest.pacing import FRAME_SAMPLES, SentFrames
from duolog.loadtest.timeline import TurnTimeline
from duolog.loadtest.wire_text import Message, text_field


class Line(Protocol):
    """A call that is up; `wire_client.Call` is one."""

    log: CallLog

    @property
    def sent(self) -> SentFrames: ...
    def speak(self, samples: NDArray[np.int16], label: str) -> Turn: ...
    async def send_text(self, text: str) -> Turn: ...
    async def stay_until(self, at_s: float) -> None: ...
    def timeline(self, turn: Turn) -> TurnTimeline | None: ...


Dial = Callable[[Callable[[Message], None]], AbstractAsyncContextManager[Line]]
"""Places a call; its observer sees every event. Raises CallFailed, CallRefused."""


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """When the run began on the loop's clock, and after how long no new turn is begun."""

    origin_s: float
    ends_s: float


async def act_out(dial: Dial, plan: CallPlan, run: Rehearsal, record: CallRecord) -> None:
    """Place the call now and go through its plan. Never raises for what the server does: it is written down."""
    performance = _Performance(plan, run, record)
    try:
        async with dial(performance.observe) as line:
            record.connected_ms = performance.since_arrival_ms()
            await performance.go_through(line)
        record.ending = CallEnding.COMPLETED
    except CallRefused as refusal:
        record.ending, record.reason = CallEnding.REFUSED, refusal.code
        record.told_ms = performance.since_arrival_ms()
    except CallFailed as failure:
        record.ending, record.reason = CallEnding.FAILED, str(failure)
        performance.miss_the_rest()
    record.ended_s = anyio.current_time() - run.origin_s


class _Performance:
    """One call's progress through its plan."""

    def __init__(self, plan: CallPlan, run: Rehearsal, record: CallRecord) -> None:
        self._plan = plan
        self._run = run
        self._record = record
        self._arrived_s = run.origin_s + plan.arrives_s
        self._flushed_s: list[float] = []
        self._before_was_missed = False

    def observe(self, message: Message) -> None:
        if text_field(message, "type") == "duolog.flush":
            self._flushed_s.append(anyio.current_time())

    def since_arrival_ms(self) -> float:
        return (anyio.current_time() - self._arrived_s) * 1000

    async def go_through(self, line: Line) -> None:
        for number, plan in enumerate(self._plan.turns):
            if self._is_after_the_end(plan):
                return
            await line.stay_until(self._arrived_s + plan.start_s)
            outcome = await self._perform(line, number, plan)
            self._record.turns.append(outcome)
            self._record.worst_frame_ms = line.sent.worst_lateness_ms()
            self._before_was_missed = outcome.ending is TurnEnding.MISSED

    def miss_the_rest(self) -> None:
        """The caller would have said the rest at its time: nobody was there to answer."""
        for number, plan in enumerate(self._plan.turns[len(self._record.turns) :], len(self._record.turns)):
            if not self._is_after_the_end(plan) and plan.kind.expects_answer:
                self._record.turns.append(self._outcome(number, plan, TurnEnding.MISSED, miss=Miss.CALL_FAILED))

    def _is_after_the_end(self, plan: TurnPlan) -> bool:
        return self._plan.arrives_s + plan.end_s >= self._run.ends_s

    async def _perform(self, line: Line, number: int, plan: TurnPlan) -> TurnOutcome:
        began_s = anyio.current_time()
        late_ms = max(0.0, (began_s - self._arrived_s - plan.start_s) * 1000)
        interrupted = _is_heard_now(line.log, began_s)
        first_sample = len(line.sent) * FRAME_SAMPLES
        turn = await _begin(line, plan)
        await line.stay_until(self._arrived_s + plan.deadline_s)
        by = HeardBy(self._arrived_s + plan.deadline_s, first_sample, expects_text=plan.kind is TurnKind.TYPED)
        outcome = self._judge(line, turn, by, number)
        stop_ms = self._stop_ms(plan, began_s) if interrupted else None
        return replace(outcome, late_ms=late_ms, interrupted=interrupted, barge_in_stop_ms=stop_ms)

    def _judge(self, line: Line, turn: Turn, by: HeardBy, number: int) -> TurnOutcome:
        plan = self._plan.turns[number]
        if not plan.kind.expects_answer:
            spoke = any(answer.heard_s is not None for answer in turn.answers) and not self._before_was_missed
            return self._outcome(number, plan, TurnEnding.PHANTOM if spoke else TurnEnding.QUIET)
        found = counted_answer(turn, by)
        if found is None and was_cut_off(turn):
            return self._outcome(number, plan, TurnEnding.CUT_OFF)
        if found is None:
            return self._outcome(number, plan, TurnEnding.MISSED, miss=why_missed(turn))
        answer, seen_s = found
        timeline = line.timeline(turn)
        outcome = self._outcome(number, plan, TurnEnding.ANSWERED)
        latency_ms = (seen_s - self._arrived_s - plan.end_s) * 1000
        marks_ms = {} if timeline is None else dict(timeline.marks())
        return replace(outcome, latency_ms=latency_ms, stalled_ms=answer.player.stalled_ms, marks_ms=marks_ms)

    def _stop_ms(self, plan: TurnPlan, began_s: float) -> float | None:
        """From the first word of the interruption, as planned, to the flush it brought about."""
        stopped_s = next((at_s for at_s in self._flushed_s if at_s >= began_s), None)
        return None if stopped_s is None else (stopped_s - self._arrived_s - plan.voiced_from_s) * 1000

    def _outcome(self, number: int, plan: TurnPlan, ending: TurnEnding, miss: Miss | None = None) -> TurnOutcome:
        arrives_s = self._plan.arrives_s
        return TurnOutcome(
            call=self._plan.index,
            number=number,
            kind=plan.kind,
            end_s=arrives_s + plan.end_s,
            deadline_s=arrives_s + plan.deadline_s,
            ending=ending,
            miss=miss,
        )


async def _begin(line: Line, plan: TurnPlan) -> Turn:
    if plan.kind is TurnKind.TYPED:
        return await line.send_text(plan.label)
    if plan.parts:
        return line.speak(plan.samples(), plan.label)
    return line.log.begin_turn(plan.label, anyio.current_time())


def _is_heard_now(log: CallLog, now_s: float) -> bool:
    """An answer is being played."""
    return any(
        answer.heard_s is not None and not answer.player.is_idle(now_s) for turn in log.turns for answer in turn.answers
    )
