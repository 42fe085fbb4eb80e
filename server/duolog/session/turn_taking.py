"""Who speaks when: carries out what the turn machine decides, for one call."""

from __future__ import annotations

from collections.abc import Callable

import anyio
import numpy as np
from anyio.abc import TaskGroup
from numpy.typing import NDArray

from duolog.ports.errors import RequestRefused
from duolog.session.barge_in import BargeIn
from duolog.session.config import ResponseOptions, SemanticVad, ServerVad, SessionConfig
from duolog.session.context import CallContext, new_id
from duolog.session.events import (
    InputCleared,
    InputCommitted,
    InputTimedOut,
    ItemAdded,
    ItemDone,
    SpeechStarted,
    SpeechStopped,
    StateChanged,
)
from duolog.session.listening import Ear, Utterance
from duolog.session.pause_watch import PauseWatch, first_delay_ms
from duolog.session.runner import TurnRunner
from duolog.session.turn import Marks, Turn, TurnEnd
from duolog.session.understanding import Understanding
from duolog.telemetry import metrics
from duolog.turns.activity import SAMPLES_PER_MS, ActivityOptions, VoiceEvent, VoiceEventKind
from duolog.turns.conversation import ContentPart, Item, ItemRole, ItemStatus, PartKind
from duolog.turns.machine import Bot, Floor, TurnAction, TurnEvent, User, advance
from duolog.turns.overlap import Overlap

IDLE_NOTE = "The user has said nothing for a while. Ask in one short sentence whether they are still there."
MIN_COMMIT_MS = 100
"""Shortest audio a client may commit by hand, as the OpenAI API has it."""

CALM_MS = 600
"""A sound over the bot this long without words no longer lowers the answer; it may still turn into words."""

_TURN_EVENTS = {
    VoiceEventKind.ONSET: TurnEvent.VOICE_ONSET,
    VoiceEventKind.CONFIRMED: TurnEvent.VOICE_CONFIRMED,
    VoiceEventKind.PAUSE: TurnEvent.VOICE_PAUSE,
    VoiceEventKind.ENDPOINT: TurnEvent.VOICE_ENDPOINT,
    VoiceEventKind.FADED: TurnEvent.VOICE_FADED,
}


class TurnTaking:
    """The floor of one call."""

    def __init__(
        self, context: CallContext, understanding: Understanding, runner: TurnRunner, tasks: TaskGroup
    ) -> None:
        self._context = context
        self._understanding = understanding
        self._runner = runner
        self._tasks = tasks
        self._floor = Floor()
        self._item_id = ""
        self._turn: Turn | None = None
        """Begun ahead of the end of the utterance that is running."""
        self._speculations = 0
        self._announced = "listening"
        self._quiet_since: float | None = anyio.current_time()
        """None while somebody speaks or an answer is made."""
        self._idle_prompted = False
        self._speech_announced = True
        self._speech_start = 0
        self._voice_event = VoiceEvent(VoiceEventKind.ONSET, 0)
        self._do: dict[TurnAction, Callable[[], object]] = {
            TurnAction.BEGIN_UTTERANCE: self._begin_utterance,
            TurnAction.BEGIN_TURN: self._begin_turn,
            TurnAction.DROP_TURN: self._drop_turn,
            TurnAction.COMMIT_TURN: self._commit_turn,
            TurnAction.DISCARD_UTTERANCE: self._discard_utterance,
            TurnAction.INTERRUPT: self.interrupt,
        }
        config = context.config
        self.ear = Ear(context.engines.vad(), self._activity(config), config.input_rate_hz, self._preroll_ms(config))
        self.ear.keep_all = self._manual
        self._pauses = PauseWatch(context, self.ear.activity, tasks)
        self._barge_in = BargeIn(context, tasks, self._overlap_judged)
        self._calm = False
        """The sound over the bot has no words so far: the answer is not lowered any more."""
        self._answer_owed = False
        """A voice stopped an answer before it was heard. If it said nothing, the question stands."""

    @property
    def _manual(self) -> bool:
        return self._context.config.turn_detection is None

    def reconfigure(self) -> None:
        """The session's configuration changed."""
        config = self._context.config
        self.ear.configure(self._activity(config), config.input_rate_hz, self._preroll_ms(config))
        if self.ear.keep_all != self._manual:
            self.clear()
            self.ear.keep_all = self._manual

    def hear(self, samples: NDArray[np.int16]) -> None:
        """Microphone audio, in order."""
        self._pauses.consider(self._turn, self._sound)
        for event in self.ear.hear(samples, anyio.current_time()):
            if not self._manual:
                self._on_voice(event)
        if self._overlapping:
            paused = self._floor.user is User.PAUSED
            self._barge_in.consider(self.ear.activity.voiced_ms, self._sound_over_the_bot, paused=paused)
            self._announce_state()
        if not self._may_caption:
            return
        if self._understanding.wants_partial(self.ear.kept_samples):
            utterance = self.ear.utterance(self._item_id)
            self._tasks.start_soon(self._understanding.caption, utterance, self._still_speaking)

    @property
    def _may_caption(self) -> bool:
        """Not once the voice falls silent: the caption would hold the engine when the final wants it."""
        return self._speech_announced and self._floor.user is User.SPEAKING and self.ear.activity.voiced

    @property
    def _interruptible(self) -> bool:
        detection = self._context.config.turn_detection
        return detection is not None and detection.interrupt_response

    @property
    def _overlapping(self) -> bool:
        """There is a sound over the bot's speech, and it may be an interruption."""
        return self._barge_in.open and self._floor.bot is Bot.SPEAKING and self._interruptible

    def input_stalled(self) -> None:
        """No audio arrives any more: end the utterance that is running."""
        for event in self.ear.activity.force_endpoint():
            self._on_voice(event)

    def commit(self) -> str:
        """End the user's turn by hand; the id of its item. Raises RequestRefused where there is nothing to commit."""
        if not self._manual:
            if not self.ear.activity.in_utterance:
                raise _nothing_to_commit()
            item_id = self._item_id
            self._commit_running()
            return item_id
        if self.ear.kept_samples < MIN_COMMIT_MS * SAMPLES_PER_MS:
            raise _nothing_to_commit()
        self._item_id = new_id("item")
        turn = self._new_turn(self.ear.utterance(self._item_id))
        turn.answer = False
        self._publish_item(turn, self._item_id)
        self._runner.submit(turn)
        self.ear.end_utterance()
        return self._item_id

    def _commit_running(self) -> None:
        """However short it is, and whatever it would have been over the bot: the client knows better."""
        self._barge_in.end()
        for event in self.ear.activity.force_endpoint():
            ends = event.kind is VoiceEventKind.FADED
            self._on_voice(VoiceEvent(VoiceEventKind.ENDPOINT, event.at_sample) if ends else event)

    def clear(self) -> None:
        """Forget audio that is not committed."""
        self._answer_owed = False
        self._advance(TurnEvent.INPUT_CLEARED)
        self.ear.end_utterance()
        self._context.outbox.put(InputCleared())

    def request_answer(self, options: ResponseOptions) -> None:
        """The client asks for an answer. Raises RequestRefused while one is being made."""
        self._refuse_while_answering()
        waiting = [turn for turn in self._runner.turns() if not turn.answer and turn.committed.is_set()]
        if waiting:
            waiting[-1].answer, waiting[-1].options = True, options
            self._drop_turn()
            self.answer_begun()
            return
        self._answer(Turn(self._context.session_id, options))

    def prompt_if_idle(self) -> None:
        """Speak up, once until the user says something, where nobody has spoken for as long as the session says."""
        timeout_ms = self._idle_timeout_ms()
        if timeout_ms is None or self._quiet_since is None or self._idle_prompted:
            return
        if (anyio.current_time() - self._quiet_since) * 1000 < timeout_ms:
            return
        self._idle_prompted = True
        now_ms = self.ear.heard_ms
        self._context.outbox.put(InputTimedOut(new_id("item"), max(0, now_ms - timeout_ms), now_ms))
        instructions = f"{self._context.config.instructions}\n{IDLE_NOTE}"
        self._answer(Turn(self._context.session_id, ResponseOptions(instructions=instructions)))

    def _idle_timeout_ms(self) -> int | None:
        detection = self._context.config.turn_detection
        if isinstance(detection, ServerVad) and detection.idle_timeout_ms is not None:
            return detection.idle_timeout_ms
        idle_s = self._context.persona.turn_taking.idle_prompt_s
        return None if idle_s is None or detection is None else int(idle_s * 1000)

    def say(self, text: str) -> None:
        """Speak a fixed text as the bot's own turn. Raises RequestRefused while an answer is being made."""
        self._refuse_while_answering()
        self._answer(Turn(self._context.session_id, ResponseOptions(), spoken_text=text))

    def _refuse_while_answering(self) -> None:
        if any(turn.answer and turn.committed.is_set() and turn.end is None for turn in self._runner.turns()):
            raise RequestRefused(
                "The conversation already has an answer in progress; wait for response.done or cancel it first.",
                code="conversation_already_has_active_response",
            )

    def interrupt(self, why: TurnEnd = TurnEnd.TURN_DETECTED) -> bool:
        """Silence the bot. False where it was not busy."""
        turns = [turn for turn in self._runner.turns() if turn.committed.is_set() and turn.answer]
        playing = self._context.playbacks.unfinished()
        if why is TurnEnd.TURN_DETECTED:
            self._announce_speech()
            self._answer_owed = bool(turns) and not playing
        if playing:
            metrics.BARGE_INS.labels("interrupted").inc()
            self._context.outbox.flush(self._context.playbacks.generation + 1)
        for playback in playing:
            playback.update_by_clock()
            playback.over.set()
            self._context.items.cut(playback)
        for turn in turns:
            self._stop_answer(turn, why)
        self._advance(TurnEvent.ANSWER_ENDED)
        return bool(turns or playing)

    def _stop_answer(self, turn: Turn, why: TurnEnd) -> None:
        """What the user said is transcribed all the same: the next answer is to it, too."""
        if turn.utterance is not None and turn.transcript is None and turn.response is None:
            turn.answer = False
        else:
            self._runner.cancel(turn, why)

    def answer_begun(self) -> None:
        self._answer_owed = False
        self._advance(TurnEvent.ANSWER_BEGUN)

    def answer_audible(self) -> None:
        self._barge_in.bot_audible()
        self._advance(TurnEvent.ANSWER_AUDIBLE)

    @property
    def answer_owed(self) -> bool:
        """A turn that turns out to be nothing is to answer the question it interrupted."""
        return self._answer_owed

    def answer_ended(self) -> None:
        """Heard to its end, or given up."""
        self._advance(TurnEvent.ANSWER_ENDED)

    @property
    def bot(self) -> Bot:
        return self._floor.bot

    def _on_voice(self, event: VoiceEvent) -> None:
        self._voice_event = event
        self._pauses.on_voice(event)
        if event.kind is VoiceEventKind.ENDPOINT and self._overlapping and not self._barge_in.warming_up:
            self._advance(TurnEvent.WORDS_HEARD)  # nobody could say in time what it was: rather stop than talk on
        self._advance(_TURN_EVENTS[event.kind])

    def _overlap_judged(self, overlap: Overlap) -> None:
        if not self._overlapping:
            return
        if overlap is Overlap.WORDS:
            self._advance(TurnEvent.WORDS_HEARD)
            return
        voiced_ms = self.ear.activity.voiced_ms
        self._calm = voiced_ms >= CALM_MS
        if self._barge_in.judged(voiced_ms):
            self._advance(TurnEvent.NO_WORDS_HEARD)
        self._announce_state()

    def _advance(self, event: TurnEvent) -> None:
        self._floor, actions = advance(self._floor, event, interruptible=self._interruptible)
        for action in actions:
            self._do[action]()
        self._announce_state()

    def _announce_state(self) -> None:
        if self._floor.user is not User.QUIET and self._lowers_answer:
            state = "hearing"
        elif self._floor.bot is Bot.SPEAKING:
            state = "speaking"
        else:
            state = "thinking" if self._floor.bot is Bot.THINKING else "listening"
        if state != self._announced:
            self._announced = state
            self._quiet_since = anyio.current_time() if state == "listening" else None
            self._context.outbox.put(StateChanged(state))

    @property
    def _lowers_answer(self) -> bool:
        """Pages lower the answer and then hold it while it is open whether the user interrupts; echo must not."""
        if self._floor.bot is not Bot.SPEAKING:
            return True
        return self._interruptible and not self._calm and not self._barge_in.warming_up

    def _begin_utterance(self) -> None:
        self._item_id = new_id("item")
        self._idle_prompted = False
        self._turn = None
        self._speculations = 0
        self._speech_start = self.ear.begin_utterance(self._voice_event.at_sample)
        self._speech_announced = self._calm = False
        self._understanding.begin_caption(self._item_id)
        if self._floor.bot_busy:
            self._barge_in.begin(self._item_id)
        else:
            self._announce_speech()

    def _announce_speech(self) -> None:
        """Tell the client that speech began. Over the bot only once it is confirmed: clients stop playing on it."""
        self._barge_in.end()
        if not self._speech_announced:
            self._speech_announced = True
            self._context.outbox.put(SpeechStarted(self._item_id, self._speech_start // SAMPLES_PER_MS))

    def _begin_turn(self) -> None:
        self._announce_speech()
        self._drop_turn()
        if self._speculations >= self._context.options.max_speculations:
            return
        if not self._context.engines.limits.may_speculate:
            metrics.SPECULATIONS.labels("skipped").inc()
            return
        self._speculations += 1
        self._turn = self._new_turn(self.ear.utterance(self._item_id))
        self._turn.speculative = True
        detection = self._context.config.turn_detection
        self._turn.answer = detection is not None and detection.create_response
        self._runner.submit(self._turn)

    def _drop_turn(self) -> None:
        if self._turn is not None:
            metrics.SPECULATIONS.labels("wasted").inc()
            self._runner.cancel(self._turn, TurnEnd.DROPPED)
            self._turn = None

    def _commit_turn(self) -> None:
        if self._turn is None:
            self._begin_turn_at_end()
        turn, self._turn = self._turn, None
        if turn is None:
            return
        turn.wasted_speculations = self._speculations - turn.speculative
        if turn.speculative:
            metrics.SPECULATIONS.labels("used").inc()
        self._announce_speech()
        self._tell_speech_stopped()
        self._publish_item(turn, self._item_id)
        self.ear.end_utterance()

    def _begin_turn_at_end(self) -> None:
        self._turn = self._new_turn(self.ear.utterance(self._item_id))
        detection = self._context.config.turn_detection
        self._turn.answer = detection is not None and detection.create_response
        self._runner.submit(self._turn)

    def _publish_item(self, turn: Turn, item_id: str) -> None:
        part = ContentPart(PartKind.INPUT_AUDIO, None)
        item = Item(item_id, ItemRole.USER, (part,), ItemStatus.COMPLETED)
        previous = self._context.items.conversation.add(item)
        outbox = self._context.outbox
        outbox.put(InputCommitted(item_id, previous))
        outbox.put(ItemAdded(item, previous))
        outbox.put(ItemDone(item, previous))
        turn.marks.endpoint = anyio.current_time()
        turn.silence_wait_ms = self._pauses.waited_ms
        turn.committed.set()
        if turn.speculative and turn.response is not None:
            self._context.engines.batcher.promote(turn.response.id)
        self._understanding.publish(turn)

    def _tell_speech_stopped(self) -> None:
        self._context.outbox.put(SpeechStopped(self._item_id, self._voice_event.at_sample // SAMPLES_PER_MS))

    def _discard_utterance(self) -> None:
        self._drop_turn()
        if self._floor.bot_busy:
            metrics.BARGE_INS.labels(self._barge_in.verdict or "ignored").inc()
        self._barge_in.end()
        if self._speech_announced:
            self._tell_speech_stopped()
        self.ear.end_utterance()

    def _answer(self, turn: Turn) -> None:
        self._drop_turn()
        turn.committed.set()
        self._runner.submit(turn)
        self.answer_begun()

    def _new_turn(self, utterance: Utterance) -> Turn:
        return Turn(
            self._context.session_id, ResponseOptions(), utterance=utterance, marks=Marks(heard=utterance.heard_at)
        )

    def _sound_over_the_bot(self) -> Utterance:
        return self.ear.utterance(self._item_id)

    def _sound(self) -> NDArray[np.float32]:
        return self.ear.utterance(self._item_id).samples

    def _still_speaking(self, item_id: str) -> bool:
        return self._speech_announced and self._floor.user is not User.QUIET and item_id == self._item_id

    def _activity(self, config: SessionConfig) -> ActivityOptions:
        detection = config.turn_detection
        patience_ms = self._context.persona.turn_taking.silence_ms
        threshold = self._context.options.vad_threshold
        if isinstance(detection, ServerVad):
            patience_ms, threshold = detection.silence_duration_ms, detection.threshold
        elif isinstance(detection, SemanticVad):
            patience_ms = first_delay_ms(self._context)
        return ActivityOptions(
            on_probability=threshold,
            off_probability=min(threshold, max(0.05, threshold - 0.15)),
            confirm_ms=self._context.options.confirm_ms,
            pause_ms=min(self._context.options.speculate_after_ms, patience_ms),
            endpoint_ms=patience_ms,
            max_utterance_ms=int(self._context.persona.turn_taking.max_turn_s * 1000),
        )

    def _preroll_ms(self, config: SessionConfig) -> int:
        detection = config.turn_detection
        return (
            detection.prefix_padding_ms if isinstance(detection, ServerVad) else self._context.options.prefix_padding_ms
        )


def _nothing_to_commit() -> RequestRefused:
    return RequestRefused(
        f"The input audio buffer holds less than {MIN_COMMIT_MS} ms of audio; append audio before committing it.",
        code="input_audio_buffer_commit_empty",
    )
