"""The life of one response as clients see it: begins once, ends in exactly one ResponseDone, nothing after it.

Keeps the conversation's answer item and the events about it in step. Never waits, except for audio to leave.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from duolog.ports.llm import TokenUsage
from duolog.session.config import Modality, ResponseOptions
from duolog.session.events import (
    AudioDelta,
    AudioDone,
    ContentPartAdded,
    ContentPartDone,
    OutputItemAdded,
    OutputItemDone,
    ResponseCreated,
    ResponseDone,
    ResponseInfo,
    ResponseStatus,
    SpeechAnnounced,
    TextDelta,
    TextDone,
)
from duolog.session.outbox import Outbox
from duolog.session.playing import Playback
from duolog.turns.conversation import ContentPart, Conversation, Item, ItemRole, ItemStatus, PartKind

FRAME_MS = 100
"""Audio leaves in frames of at most this length, so that a flush has little to overtake."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a response ended."""

    status: ResponseStatus
    reason: str | None = None
    error: str | None = None
    usage: TokenUsage = field(default_factory=TokenUsage)


class Response:
    """One answer on its way to the client."""

    def __init__(
        self, response_id: str, item_id: str, options: ResponseOptions, modality: Modality, max_tokens: int
    ) -> None:
        self.id = response_id
        self.item_id = item_id
        self.options = options
        self.modality = modality
        self.playback: Playback | None = None
        self.begun = False
        self.done = False
        self._max_tokens = max_tokens
        self._text = ""
        self._opened = False
        self._previous: str | None = None
        kind = PartKind.OUTPUT_AUDIO if modality is Modality.AUDIO else PartKind.OUTPUT_TEXT
        self._kind = kind

    @property
    def text(self) -> str:
        return self._text

    def begin(self, outbox: Outbox) -> None:
        self.begun = True
        outbox.put(ResponseCreated(self._info(Outcome(ResponseStatus.IN_PROGRESS))))

    def add_text(self, delta: str, outbox: Outbox, conversation: Conversation) -> None:
        """Text of the answer, or the transcript of what is about to be said."""
        self._open(outbox, conversation)
        self._text += delta
        cut = self.playback is not None and self.playback.cut
        if not self.options.out_of_band and self.item_id in conversation and not cut:
            conversation.set_text(self.item_id, self._text)
        outbox.put(TextDelta(self.id, self.item_id, self._kind, delta))

    def announce(self, playback: Playback, outbox: Outbox, conversation: Conversation) -> None:
        """The first audio of this answer is about to leave."""
        self._open(outbox, conversation)
        self.playback = playback
        ledger = playback.ledger
        outbox.put(SpeechAnnounced(ledger.generation, self.id, self.item_id, ledger.rate_hz))

    async def add_audio(self, samples: NDArray[np.int16], outbox: Outbox) -> bool:
        """Send sound in frames. False as soon as the generation has been flushed."""
        playback = self.playback
        if playback is None:
            raise RuntimeError("audio before it was announced")
        ledger = playback.ledger
        frame = ledger.rate_hz * FRAME_MS // 1000
        for start in range(0, len(samples), frame):
            part = samples[start : start + frame]
            position = ledger.sent_samples
            delta = AudioDelta(self.id, self.item_id, ledger.generation, position, part, ledger.rate_hz)
            if not await outbox.put_audio(delta):
                return False
            playback.note_sent(len(part))
        return True

    def finish(self, outcome: Outcome, outbox: Outbox, conversation: Conversation) -> None:
        """End it; a second call does nothing."""
        if self.done or not self.begun:
            return
        self.done = True
        item = self._close(outcome, outbox, conversation) if self._opened else None
        info = replace(self._info(outcome), items=(item,) if item else ())
        outbox.put(ResponseDone(info))

    def _open(self, outbox: Outbox, conversation: Conversation) -> None:
        if self._opened:
            return
        self._opened = True
        item = Item(self.item_id, ItemRole.ASSISTANT, (), ItemStatus.IN_PROGRESS)
        if not self.options.out_of_band:
            stored = replace(item, parts=(ContentPart(self._kind, ""),))
            self._previous = conversation.add(stored)
        outbox.put(OutputItemAdded(self.id, item, self._previous, self.options.out_of_band))
        outbox.put(ContentPartAdded(self.id, self.item_id, self._kind))

    def _close(self, outcome: Outcome, outbox: Outbox, conversation: Conversation) -> Item:
        complete = outcome.status is ResponseStatus.COMPLETED
        status = ItemStatus.COMPLETED if complete else ItemStatus.INCOMPLETE
        item = Item(self.item_id, ItemRole.ASSISTANT, (ContentPart(self._kind, self._text),), status)
        cancelled = outcome.status is ResponseStatus.CANCELLED
        if self.playback is not None:
            ledger = self.playback.ledger
            ledger.complete = not cancelled  # a phrase whose text is known may not have been spoken yet
            outbox.put(AudioDone(self.id, self.item_id, ledger.generation, ledger.sent_samples))
        outbox.put(TextDone(self.id, self.item_id, self._kind, self._text))
        outbox.put(ContentPartDone(self.id, self.item_id, self._kind, self._text))
        if self.item_id in conversation:
            kept = conversation.get(self.item_id)
            unheard = cancelled and self.modality is Modality.AUDIO and self.playback is None
            conversation.replace(replace(kept, status=status, interrupted=kept.interrupted or unheard))
            if unheard:
                conversation.set_text(self.item_id, "")
        outbox.put(OutputItemDone(self.id, item, self._previous, self.options.out_of_band))
        return item

    def _info(self, outcome: Outcome) -> ResponseInfo:
        return ResponseInfo(
            id=self.id,
            status=outcome.status,
            modality=self.modality,
            metadata=self.options.metadata,
            usage=outcome.usage,
            reason=outcome.reason,
            error=outcome.error,
            out_of_band=self.options.out_of_band,
            max_output_tokens=self._max_tokens,
            asked_by=self.options.asked_by,
        )
