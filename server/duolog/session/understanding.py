"""What the user said: live captions while they speak, the final transcript, and the gate that drops phantoms."""

from __future__ import annotations

from collections.abc import Callable

import anyio
import structlog

from duolog.ports.asr import Transcript, TranscriptionRequest
from duolog.ports.errors import EngineError
from duolog.session.context import CallContext
from duolog.session.events import ItemDeleted, TranscriptCompleted, TranscriptDelta, TranscriptFailed
from duolog.session.listening import Utterance
from duolog.session.prefilling import Prefilling
from duolog.session.turn import Turn
from duolog.telemetry import metrics
from duolog.turns.agreement import StableWords
from duolog.turns.conversation import UnknownItem
from duolog.turns.hallucination import Evidence, judge

log = structlog.get_logger(__name__)


class Understanding:
    """The transcripts of one call."""

    def __init__(self, context: CallContext, prefilling: Prefilling) -> None:
        self._context = context
        self._prefilling = prefilling
        self._caption = StableWords()
        self._caption_item = ""
        self._partial_running = False
        self._captioned_samples = 0

    def begin_caption(self, item_id: str) -> None:
        """A new utterance: captions start afresh."""
        self._caption = StableWords()
        self._caption_item = item_id
        self._captioned_samples = 0
        self._prefilling.history_changed()

    def wants_partial(self, available_samples: int) -> bool:
        """True where enough new audio came and the recognizer has time for it."""
        if self._partial_running or not self._context.config.transcribe:
            return False
        new_s = (available_samples - self._captioned_samples) / 16_000
        return self._context.engines.recognizer.may_start_partial(self._context.session_id, new_s)

    async def caption(self, utterance: Utterance, still_wanted: Callable[[str], bool]) -> None:
        """Decode what there is so far and publish the words that are stable."""
        self._partial_running = True
        self._captioned_samples = len(utterance.samples)
        try:
            request = self._request(utterance, partial=True)
            transcript = await self._context.engines.recognizer.transcribe(self._context.session_id, request)
        except EngineError as error:
            log.warning("partial transcript failed", error=str(error))
            return
        finally:
            self._partial_running = False
        if transcript is None or utterance.item_id != self._caption_item or not still_wanted(utterance.item_id):
            return
        delta = self._caption.push(transcript.text)
        if delta:
            self._context.outbox.put(TranscriptDelta(utterance.item_id, delta))
            self._prefilling.caption(self._caption.text)

    async def final(self, turn: Turn, utterance: Utterance) -> bool:
        """Transcribe the turn. True where something was said that may be answered.

        A failed recognizer is told to the client, and the turn goes on with the persona's apology.
        """
        request = self._request(utterance, partial=False)
        try:
            transcript = await self._context.engines.recognizer.transcribe(self._context.session_id, request)
        except EngineError as error:
            log.warning("transcript failed", error=str(error))
            metrics.ENGINE_ERRORS.labels(error.engine, type(error).__name__).inc()
            await turn.committed.wait()
            self._context.outbox.put(TranscriptFailed(utterance.item_id, "transcription_failed", str(error)))
            turn.spoken_text = self._context.persona.apology
            return True
        if transcript is None:
            raise RuntimeError("a final transcript was superseded")
        turn.marks.transcript = anyio.current_time()
        turn.transcript = self._gate(transcript, utterance)
        if turn.committed.is_set():
            self.publish(turn)
        if turn.transcript.text:
            return True
        await turn.committed.wait()
        return False

    def _request(self, utterance: Utterance, *, partial: bool) -> TranscriptionRequest:
        """Where the client leaves the language open, it is one of the persona's."""
        return TranscriptionRequest(
            utterance.samples, self._context.config.language, partial, expected=self._context.persona.languages
        )

    def publish(self, turn: Turn) -> None:
        """Tell the client the final transcript, once, when the turn is committed and the transcript is there."""
        if turn.transcript is None or turn.utterance is None or turn.transcript_published:
            return
        turn.transcript_published = True
        item_id, text = turn.utterance.item_id, turn.transcript.text
        conversation = self._context.items.conversation
        try:
            conversation.set_text(item_id, text)
        except UnknownItem:
            return
        if self._context.config.transcribe:
            self._context.outbox.put(TranscriptCompleted(item_id, text, turn.transcript.audio_s))
        if not text:
            conversation.delete(item_id)
            self._context.outbox.put(ItemDeleted(item_id))

    def _gate(self, transcript: Transcript, utterance: Utterance) -> Transcript:
        evidence = Evidence(
            text=transcript.text,
            voiced_ms=utterance.voiced_ms,
            audio_s=transcript.audio_s,
            mean_logprob=transcript.mean_logprob,
            no_speech_prob=transcript.no_speech_prob,
            compression_ratio=transcript.compression_ratio,
        )
        reason = judge(evidence)
        if reason is None:
            return transcript
        metrics.DROPS.labels("transcript", reason.value).inc()
        log.info("transcript dropped", reason=reason.value, voiced_ms=utterance.voiced_ms)
        return Transcript(
            text="",
            language=transcript.language,
            mean_logprob=transcript.mean_logprob,
            no_speech_prob=transcript.no_speech_prob,
            compression_ratio=transcript.compression_ratio,
            audio_s=transcript.audio_s,
        )
