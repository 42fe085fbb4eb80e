"""A scripted call: answers every request with the events a real one would emit, at once and always the same."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator
from dataclasses import replace

import anyio
import anyio.lowlevel
import numpy as np
from numpy.typing import NDArray

from duolog.ports.errors import RequestRefused
from duolog.ports.llm import Sampling, TokenUsage
from duolog.session.config import Modality, ResponseOptions, SessionConfig
from duolog.session.control import PlayoutReport
from duolog.session.events import (
    AudioDelta,
    AudioDone,
    CallEvent,
    ContentPartAdded,
    ContentPartDone,
    InputCleared,
    InputCommitted,
    ItemAdded,
    ItemDeleted,
    ItemDone,
    ItemRetrieved,
    ItemTruncated,
    OutputItemAdded,
    OutputItemDone,
    ResponseCreated,
    ResponseDone,
    ResponseInfo,
    ResponseStatus,
    SessionCreated,
    SessionUpdated,
    SpeechAnnounced,
    TextDelta,
    TextDone,
    TranscriptCompleted,
)
from duolog.turns.conversation import (
    ContentPart,
    Conversation,
    DuplicateItem,
    Item,
    ItemRole,
    ItemStatus,
    PartKind,
    UnknownItem,
)

ANSWER = "Hello there."
AUDIO = np.arange(2_400, dtype=np.int16)
"""100 ms at 24 kHz."""

CONFIG = SessionConfig(
    persona="ava",
    instructions="Be brief.",
    voice="joe",
    language="en",
    sampling=Sampling(),
    greeting="Hi, I am Ava.",
)


class FakeCall:
    """`asked` lists what was asked for, in order."""

    session_id = "sess_fake"

    def __init__(self, config: SessionConfig = CONFIG, *, hold_responses: bool = False) -> None:
        self.config = config
        self.asked: list[tuple[object, ...]] = []
        self.heard: list[NDArray[np.int16]] = []
        self.conversation = Conversation()
        self.broken: Exception | None = None
        """Raised by `append_audio` and by `events`."""
        self._hold_responses = hold_responses
        self._active: tuple[ResponseInfo, Item, str | None] | None = None
        self._numbers = 0
        self._waiting: deque[CallEvent] = deque([SessionCreated(config, resumed=False)])
        self._more = anyio.Event()
        self._ended = False

    def say(self, *events: CallEvent) -> None:
        self._waiting.extend(events)
        self._more.set()

    @property
    def unsent(self) -> int:
        return len(self._waiting)

    def end(self) -> None:
        self._ended = True
        self._more.set()

    async def events(self) -> AsyncGenerator[CallEvent, None]:
        while True:
            while self._waiting:
                yield self._waiting.popleft()
            if self.broken is not None:
                raise self.broken
            if self._ended:
                return
            self._more = anyio.Event()
            await self._more.wait()

    def update(self, config: SessionConfig) -> None:
        self.config = config
        self.asked.append(("update", config))
        self.say(SessionUpdated(config))

    async def append_audio(self, samples: NDArray[np.int16]) -> None:
        await anyio.lowlevel.checkpoint()
        if self.broken is not None:
            raise self.broken
        self.heard.append(samples)

    def commit_audio(self) -> str:
        if not self.heard:
            raise RequestRefused("The input buffer is empty.", code="input_audio_buffer_commit_empty")
        duration_s = sum(map(len, self.heard)) / self.config.input_rate_hz
        self.heard = []
        item = Item(self._id("item"), ItemRole.USER, (ContentPart(PartKind.INPUT_AUDIO, None),))
        previous = self.conversation.add(item)
        heard = self.conversation.set_text(item.id, "What time is it?")
        self.say(
            InputCommitted(item.id, previous),
            ItemAdded(item, previous),
            ItemDone(item, previous),
            TranscriptCompleted(item.id, heard.text, duration_s),
        )
        return item.id

    def clear_audio(self) -> None:
        self.heard = []
        self.say(InputCleared())

    def create_item(self, item: Item, after: str | None) -> str | None:
        try:
            previous = self.conversation.add(item, after)
        except DuplicateItem as error:
            raise RequestRefused("There is one.", code="item_id_already_exists", param="item.id") from error
        except UnknownItem as error:
            raise RequestRefused("There is none.", code="item_not_found", param="previous_item_id") from error
        self.say(ItemAdded(item, previous), ItemDone(item, previous))
        return previous

    def delete_item(self, item_id: str) -> None:
        self._find(item_id)
        self.conversation.delete(item_id)
        self.say(ItemDeleted(item_id))

    def retrieve_item(self, item_id: str) -> None:
        self.say(ItemRetrieved(self._find(item_id)))

    def truncate_item(self, item_id: str, content_index: int, audio_end_ms: int) -> None:
        self._find(item_id)
        self.asked.append(("truncate", item_id, content_index, audio_end_ms))
        self.say(ItemTruncated(item_id, content_index, audio_end_ms))

    def create_response(self, options: ResponseOptions) -> None:
        if self._active is not None:
            message = "An answer is in progress."
            raise RequestRefused(message, code="conversation_already_has_active_response")
        self.asked.append(("respond", options))
        modality = options.output_modality or self.config.output_modality
        response = ResponseInfo(
            self._id("resp"),
            ResponseStatus.IN_PROGRESS,
            modality,
            metadata=options.metadata,
            out_of_band=options.out_of_band,
            max_output_tokens=options.max_output_tokens,
            asked_by=options.asked_by,
        )
        kind = PartKind.OUTPUT_AUDIO if modality is Modality.AUDIO else PartKind.OUTPUT_TEXT
        item = Item(self._id("item"), ItemRole.ASSISTANT, (), ItemStatus.IN_PROGRESS)
        previous = None if options.out_of_band else self.conversation.add(item)
        self.say(
            ResponseCreated(response),
            OutputItemAdded(response.id, item, previous, options.out_of_band),
            ContentPartAdded(response.id, item.id, kind),
            TextDelta(response.id, item.id, kind, ANSWER),
        )
        if modality is Modality.AUDIO:
            rate_hz = self.config.output_rate_hz
            self.say(
                SpeechAnnounced(1, response.id, item.id, rate_hz),
                AudioDelta(response.id, item.id, 1, 0, AUDIO, rate_hz),
            )
        self._active = (response, replace(item, parts=(ContentPart(kind, ANSWER),)), previous)
        if not self._hold_responses:
            self._finish(ResponseStatus.COMPLETED, None)

    def cancel_response(self, response_id: str | None) -> None:
        if self._active is None:
            raise RequestRefused("No answer is in progress.", code="response_cancel_not_active")
        self.asked.append(("cancel", response_id))
        self._finish(ResponseStatus.CANCELLED, "client_cancelled")

    def report_playout(self, report: PlayoutReport) -> None:
        self.asked.append(("playout", report))

    def set_muted(self, muted: bool) -> None:
        self.asked.append(("muted", muted))

    def greet(self) -> None:
        self.asked.append(("greet",))

    def _finish(self, status: ResponseStatus, reason: str | None) -> None:
        assert self._active is not None
        response, item, previous = self._active
        self._active = None
        whole = ItemStatus.COMPLETED if status is ResponseStatus.COMPLETED else ItemStatus.INCOMPLETE
        done = replace(item, status=whole)
        kind = item.parts[0].kind
        if kind is PartKind.OUTPUT_AUDIO:
            self.say(AudioDone(response.id, item.id, 1, len(AUDIO)))
        self.say(
            TextDone(response.id, item.id, kind, ANSWER),
            ContentPartDone(response.id, item.id, kind, ANSWER),
            OutputItemDone(response.id, done, previous, response.out_of_band),
            ResponseDone(replace(response, status=status, reason=reason, items=(done,), usage=TokenUsage(40, 32, 4))),
        )
        if not response.out_of_band:
            self.conversation.replace(done)

    def _find(self, item_id: str) -> Item:
        try:
            return self.conversation.get(item_id)
        except UnknownItem as error:
            raise RequestRefused("There is none.", code="item_not_found", param="item_id") from error

    def _id(self, prefix: str) -> str:
        self._numbers += 1
        return f"{prefix}_{self._numbers}"
