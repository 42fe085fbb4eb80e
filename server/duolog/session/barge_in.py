"""Is the sound over the bot's speech an interruption? Has it recognised while it goes on, for one call.

    onset ──288 ms of voice──▶ look ──each 224 ms more, and at a pause──▶ look … ──▶ Overlap
                                 └─ none for 1.5 s of voice: the sound is taken for words

Decides nothing itself: every verdict goes to `on_judged`. Looks are partials of the shared recognizer, one at a time.
"""

from __future__ import annotations

from collections.abc import Callable

import anyio
import structlog
from anyio.abc import TaskGroup

from duolog.ports.asr import Transcript, TranscriptionRequest
from duolog.ports.errors import EngineError
from duolog.session.context import CallContext
from duolog.session.gate import evidence_of
from duolog.session.listening import Utterance
from duolog.telemetry import metrics
from duolog.turns.hallucination import MIN_VOICED_MS, judge
from duolog.turns.overlap import Overlap, judge_overlap

log = structlog.get_logger(__name__)

FIRST_LOOK_MS = 288
"""Voice before the first look; a short word is whole in it."""
LOOK_EVERY_MS = 224
TOO_LONG_MS = 1_500
"""Voice that no look has covered: the recognizer is too busy to say, and no cough is so long."""
ECHO_WARM_UP_S = 3.0
"""From the bot's first sound: echo cancellers need it to converge."""
SAID_BEFORE_S, SAID_AFTER_S = 4.0, 0.5
"""Around the playback's position: the words an echo may hold."""


class BargeIn:
    """The sound over the bot that is running, if any."""

    def __init__(self, context: CallContext, tasks: TaskGroup, on_judged: Callable[[Overlap], None]) -> None:
        self._context = context
        self._tasks = tasks
        self._on_judged = on_judged
        self._item_id = ""
        self._warm_at: float | None = None
        self.warming_up = False
        """It began in the first seconds of the bot's first speech, where it may be the bot's own: only words count."""
        self._looking = False
        self._looked_ms = 0
        """Voice that was given to a look."""
        self._judged_ms = 0
        """Voice that the last verdict is about."""
        self.verdict: Overlap | None = None

    @property
    def open(self) -> bool:
        """A sound began over the bot, and it is not decided what it is."""
        return bool(self._item_id)

    def bot_audible(self) -> None:
        """An answer begins to be heard."""
        if self._warm_at is None:
            self._warm_at = anyio.current_time() + ECHO_WARM_UP_S

    def begin(self, item_id: str) -> None:
        """A sound begins while the bot has the floor."""
        self._item_id, self.verdict = item_id, None
        self.warming_up = self._warm_at is None or anyio.current_time() < self._warm_at
        self._looked_ms = self._judged_ms = 0

    def end(self) -> None:
        """It is decided, or gone."""
        self._item_id, self.verdict = "", None

    def judged(self, voiced_ms: int) -> bool:
        """True where the verdict is about all of the voice so far."""
        return self.verdict is not None and self._judged_ms >= voiced_ms

    def consider(self, voiced_ms: int, utterance: Callable[[], Utterance], *, paused: bool) -> None:
        """Between two pieces of audio, while the sound is open and the bot is heard."""
        if paused and self.verdict is not None and self.judged(voiced_ms):
            self._on_judged(self.verdict)
        elif paused and voiced_ms < MIN_VOICED_MS:
            self._judge(Overlap.NOISE, voiced_ms)
        elif voiced_ms - self._judged_ms >= TOO_LONG_MS and not self.warming_up:
            self._judge(Overlap.WORDS, voiced_ms)
        elif not self._looking and self._wants_look(voiced_ms, paused=paused):
            self._looking, self._looked_ms = True, voiced_ms
            self._tasks.start_soon(self._look, utterance(), voiced_ms)

    def _wants_look(self, voiced_ms: int, *, paused: bool) -> bool:
        if paused:
            return voiced_ms > self._looked_ms
        return voiced_ms >= (self._looked_ms + LOOK_EVERY_MS if self._looked_ms else FIRST_LOOK_MS)

    async def _look(self, utterance: Utterance, voiced_ms: int) -> None:
        config, persona = self._context.config, self._context.persona
        request = TranscriptionRequest(utterance.samples, config.language, True, expected=persona.languages)
        try:
            transcript = await self._context.engines.recognizer.transcribe(self._context.session_id, request)
        except EngineError as error:
            log.warning("sound over the answer not recognised", error=str(error))
            return
        finally:
            self._looking = False
        if utterance.item_id != self._item_id:
            return
        if transcript is None:  # a final wanted the engine: look again
            self._looked_ms = self._judged_ms
            return
        self._judge(self._overlap(transcript, utterance), voiced_ms)

    def _overlap(self, transcript: Transcript, utterance: Utterance) -> Overlap:
        if (reason := judge(evidence_of(transcript, utterance.voiced_ms))) is not None:
            metrics.DROPS.labels("interruption", reason.value).inc()
            return Overlap.NOISE
        said = self._context.playbacks.said_around_now(SAID_BEFORE_S, SAID_AFTER_S)
        return judge_overlap(transcript.text, said, warming_up=self.warming_up)

    def _judge(self, verdict: Overlap, voiced_ms: int) -> None:
        self.verdict, self._judged_ms = verdict, voiced_ms
        self._on_judged(verdict)
