"""How long each pause of one call is waited: gathers the evidence while the pause runs, and sets the voice's endpoint.

    PAUSE ──▶ transcript (the turn that was begun ahead) ──┬──▶ chat model ──┐
      └─ 200 ms of silence ──▶ end-of-turn model ──────────┴─────────────────┴──▶ endpoint_delay_ms ──▶ VoiceActivity

Where turns end after a fixed silence it only watches the speaker's habits. It never waits for anything itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import anyio
import numpy as np
from anyio.abc import TaskGroup
from numpy.typing import NDArray

from duolog.serving.sentence_judge import SentenceJudge
from duolog.session.config import Eagerness, SemanticVad
from duolog.session.context import CallContext
from duolog.session.turn import Turn
from duolog.turns.activity import SAMPLES_PER_MS, VoiceActivity, VoiceEvent, VoiceEventKind
from duolog.turns.endpointing import Patience, PauseEvidence, SpeakerHabit, endpoint_delay_ms, is_worth_reading

EAGERNESS_FACTOR = {Eagerness.LOW: 1.6, Eagerness.MEDIUM: 1.0, Eagerness.HIGH: 0.7, Eagerness.AUTO: 1.0}
WENT_ON_MS = 1_500
"""Who speaks again so soon after the last word was going on; the answer has hardly begun."""


class PauseWatch:
    """The pauses of one call."""

    def __init__(self, context: CallContext, activity: VoiceActivity, tasks: TaskGroup) -> None:
        self._context = context
        self._activity = activity
        self._tasks = tasks
        self._habit = SpeakerHabit()
        self._pause_end: int | None = None
        """Last voiced sample before the pause that runs."""
        self._turn_end: int | None = None
        """Last voiced sample of the turn before, until the speaker is heard again."""
        self._probability: float | None = None
        self._asked = False
        self._read_text: str | None = None
        """What the chat model was asked about in this pause."""
        self._sentence_end: float | None = None
        self._reading = False
        """It has not answered yet."""
        self._reads = anyio.CancelScope()
        self._judging = anyio.CancelScope()
        self._decided_at_ms = 0
        self.waited_ms = activity.endpoint_ms
        """The delay that ended the last turn: what was decided, or when, where that came later."""

    @property
    def _semantic(self) -> bool:
        return isinstance(self._context.config.turn_detection, SemanticVad)

    def on_voice(self, event: VoiceEvent) -> None:
        """Every voice event of the call, before it is acted on."""
        if event.kind is VoiceEventKind.PAUSE:
            self._begin(event.at_sample)
        elif event.kind is VoiceEventKind.ONSET:
            self._learn(event.at_sample)
            self._end()
        elif event.kind in (VoiceEventKind.ENDPOINT, VoiceEventKind.FADED):
            self.waited_ms = max(self._activity.endpoint_ms, self._decided_at_ms)
            self._turn_end = event.at_sample
            self._habit.turn_ended()
            self._end()

    def consider(self, turn: Turn | None, sound: Callable[[], NDArray[np.float32]]) -> None:
        """Between two pieces of audio: look at the evidence, ask the model when its time has come.

        `turn`: the one begun ahead in this pause. `sound`: the utterance so far, with its silence.
        """
        silence_ms = self._activity.silence_ms
        if self._pause_end is not None and not silence_ms:
            self._end()  # ended from outside: committed by hand, cleared
        if self._pause_end is None or not self._semantic:
            return
        judge = self._context.engines.turn_judge
        if judge is not None and not self._asked and silence_ms >= self._context.options.judge_after_ms:
            self._asked = True
            self._tasks.start_soon(self._ask, sound(), self._judging)
        evidence = self._evidence(turn)
        self._read(evidence)
        evidence = replace(evidence, sentence_end=self._sentence_end, awaits_sentence_end=self._reading)
        delay_ms = endpoint_delay_ms(evidence, patience_of(self._context), self._habit)
        if delay_ms != self._activity.endpoint_ms:
            self._activity.endpoint_ms, self._decided_at_ms = delay_ms, silence_ms

    def _begin(self, at_sample: int) -> None:
        self._pause_end, self._asked, self._probability = at_sample, False, None
        self._read_text, self._sentence_end, self._reading = None, None, False
        self._judging, self._reads = anyio.CancelScope(), anyio.CancelScope()
        self._decided_at_ms = 0

    def _end(self) -> None:
        """The next pause begins with nothing known of it."""
        self._pause_end = None
        self._decided_at_ms = 0
        self._judging.cancel()
        self._reads.cancel()
        if self._semantic:
            self._activity.endpoint_ms = endpoint_delay_ms(PauseEvidence(), patience_of(self._context), self._habit)

    def _learn(self, onset_sample: int) -> None:
        if self._pause_end is not None:
            self._habit.went_on((onset_sample - self._pause_end) // SAMPLES_PER_MS)
        elif self._turn_end is not None:
            silence_ms = (onset_sample - self._turn_end) // SAMPLES_PER_MS
            if silence_ms <= WENT_ON_MS:
                self._habit.was_cut(silence_ms)
        self._turn_end = None

    def _read(self, evidence: PauseEvidence) -> None:
        """Ask the chat model about a text once; about another one again."""
        judge, text = self._context.engines.sentence_judge, evidence.text
        if judge is None or not judge.asks or not self._context.engines.limits.may_speculate:
            return
        if text is not None and text != self._read_text and is_worth_reading(evidence):
            self._reads.cancel()
            self._reads = anyio.CancelScope()
            self._read_text, self._sentence_end, self._reading = text, None, True
            self._tasks.start_soon(self._ask_reader, judge, text, self._reads)

    async def _ask_reader(self, judge: SentenceJudge, text: str, scope: anyio.CancelScope) -> None:
        with scope:
            sentence_end = await judge.judge(text)
            if scope is self._reads:
                self._sentence_end, self._reading = sentence_end, False

    async def _ask(self, sound: NDArray[np.float32], scope: anyio.CancelScope) -> None:
        judge = self._context.engines.turn_judge
        with scope:
            probability = await judge.judge(sound) if judge is not None else None
            if scope is self._judging:
                self._probability = probability

    def _evidence(self, turn: Turn | None) -> PauseEvidence:
        transcript = turn.transcript if turn is not None else None
        if transcript is None:
            return PauseEvidence(self._probability)
        return PauseEvidence(self._probability, transcript.text, self._context.config.language or transcript.language)


def patience_of(context: CallContext) -> Patience:
    """The persona's bounds, stretched by the eagerness the client asked for."""
    bounds, detection = context.persona.turn_taking, context.config.turn_detection
    factor = EAGERNESS_FACTOR[detection.eagerness] if isinstance(detection, SemanticVad) else 1.0
    return Patience(round(bounds.shortest_wait_ms * factor), round(bounds.longest_wait_ms * factor), factor)


def first_delay_ms(context: CallContext) -> int:
    """The delay of a pause of which nothing is known, where turns end by what is said."""
    return endpoint_delay_ms(PauseEvidence(), patience_of(context), SpeakerHabit())
