"""What the user said: live captions while they speak, the final transcript, and the gate that drops phantoms."""

from __future__ import annotations

from collections.abc import Callable

import anyio
import numpy as np
import structlog
from numpy.typing import NDArray

from duolog.audio.levels import quietest_point
from duolog.ports.asr import SAMPLE_RATE_HZ, Transcript, TranscriptionRequest
from duolog.ports.errors import EngineError
from duolog.session.context import CallContext
from duolog.session.events import ItemDeleted, TranscriptCompleted, TranscriptDelta, TranscriptFailed
from duolog.session.gate import evidence_of
from duolog.session.listening import Utterance
from duolog.session.prefilling import Prefilling
from duolog.session.turn import Turn
from duolog.telemetry import metrics
from duolog.turns.agreement import StableWords
from duolog.turns.conversation import UnknownItem
from duolog.turns.hallucination import judge

log = structlog.get_logger(__name__)

MAX_CAPTION_S = 10.0
"""Sound that one caption decodes at most; beyond it the older part is settled."""
SETTLE_FROM_S, SETTLE_TO_S = 5.0, 9.0
"""Where it may be cut."""
QUIET_S = 0.2
LANGUAGE_FROM_S = 1.0
"""The language of a caption of so much sound is the utterance's, and is not looked for again."""


class Understanding:
    """The transcripts of one call."""

    def __init__(self, context: CallContext, prefilling: Prefilling) -> None:
        self._context = context
        self._prefilling = prefilling
        self._caption = StableWords()
        self._caption_item = ""
        self._partial_running = False
        self._captioned_samples = 0
        self._settled_samples = 0
        """Sound whose words are out for good, and which is decoded no more."""
        self._language: str | None = None
        """Of the utterance, where the call leaves it open and a caption has found it."""

    def begin_caption(self, item_id: str) -> None:
        """A new utterance: captions start afresh."""
        self._caption = StableWords()
        self._caption_item = item_id
        self._captioned_samples = 0
        self._settled_samples = 0
        self._language = None
        self._prefilling.history_changed()

    def wants_partial(self, available_samples: int) -> bool:
        """True where enough new audio came and the recognizer has time for it."""
        if self._partial_running or not self._context.config.transcribe:
            return False
        new_s = (available_samples - self._captioned_samples) / SAMPLE_RATE_HZ
        return self._context.engines.recognizer.may_start_partial(self._context.session_id, new_s)

    async def caption(self, utterance: Utterance, still_wanted: Callable[[str], bool]) -> None:
        """Decode what there is so far and publish the words that are stable.

        Of a long utterance the older part is settled, at a quiet place, so that a decode never gets long.
        """
        self._partial_running = True
        self._captioned_samples = len(utterance.samples)
        open_samples = utterance.samples[self._settled_samples :]
        settled = _settling_point(open_samples)
        try:
            request = self._request(utterance.item_id, open_samples[:settled], partial=True)
            transcript = await self._context.engines.recognizer.transcribe(self._context.session_id, request)
        except EngineError as error:
            log.warning("partial transcript failed", error=str(error))
            return
        finally:
            self._partial_running = False
        if transcript is None or utterance.item_id != self._caption_item or not still_wanted(utterance.item_id):
            return
        reason = judge(evidence_of(transcript, utterance.voiced_ms))
        if settled is None and reason is not None:  # a later caption, or the final transcript, knows more
            metrics.DROPS.labels("caption", reason.value).inc()
            return
        if self._language is None and transcript.audio_s >= LANGUAGE_FROM_S:
            self._language = transcript.language
        if settled is None:
            delta = self._caption.push(transcript.text)
        else:
            self._settled_samples += settled
            delta = self._caption.settle(transcript.text)
        if delta:
            self._context.outbox.put(TranscriptDelta(utterance.item_id, delta))
            self._prefilling.caption(self._caption.text)

    async def final(self, turn: Turn, utterance: Utterance) -> bool:
        """Transcribe the turn. True where something was said that may be answered.

        A failed recognizer is told to the client, and the turn goes on with the persona's apology.
        """
        request = self._request(utterance.item_id, utterance.samples, partial=False)
        try:
            transcript = await self._context.engines.recognizer.transcribe(self._context.session_id, request)
        except EngineError as error:
            log.warning("transcript failed", error=str(error))
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

    def _request(self, item_id: str, samples: NDArray[np.float32], *, partial: bool) -> TranscriptionRequest:
        """Where the call leaves the language open, it is what an earlier caption found, or one of the persona's."""
        found = self._language if item_id == self._caption_item else None
        language = self._context.config.language or found
        return TranscriptionRequest(samples, language, partial, expected=self._context.persona.languages)

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
        reason = judge(evidence_of(transcript, utterance.voiced_ms))
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


def _settling_point(samples: NDArray[np.float32]) -> int | None:
    """Where to cut sound that has grown too long for one caption; None: it has not."""
    if len(samples) <= MAX_CAPTION_S * SAMPLE_RATE_HZ:
        return None
    start, end, window = (int(seconds * SAMPLE_RATE_HZ) for seconds in (SETTLE_FROM_S, SETTLE_TO_S, QUIET_S))
    return quietest_point(samples, start, end, window)
