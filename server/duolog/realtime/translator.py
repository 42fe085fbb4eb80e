"""What a call says → what its client is sent. No socket, no clock: one event in, zero or more frames out, in order.

What all clients rely on, and what is kept here: every event has an `event_id`; items are announced by
`conversation.item.added` and `.done`, never by `.created`; `previous_item_id` names an item the client was told of, or
is null; nothing of `duolog.*` reaches a client that did not ask for it.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import singledispatchmethod
from itertools import count

from duolog.realtime.audio_format import AudioFormat, pcm16_bytes
from duolog.realtime.extensions import (
    playout_heard_message,
    session_message,
    speech_started_message,
    turn_timings_message,
)
from duolog.realtime.frames import Frame, pack_speech
from duolog.realtime.rendering import error_json, item_json, part_json, response_json
from duolog.realtime.server_messages import PartAddress, ResponseJson, ServerMessage
from duolog.realtime.session_update import EffectiveSession
from duolog.realtime.wire_session import session_json
from duolog.session.events import (
    AudioDelta,
    AudioDone,
    CallErrorRaised,
    CallEvent,
    ContentPartAdded,
    ContentPartDone,
    InputCleared,
    InputCommitted,
    InputTimedOut,
    ItemAdded,
    ItemDeleted,
    ItemDone,
    ItemRetrieved,
    ItemTruncated,
    OutputItemAdded,
    OutputItemDone,
    PlayoutFlush,
    PlayoutHeard,
    ResponseCreated,
    ResponseDone,
    ResponseInfo,
    SessionCreated,
    SessionUpdated,
    SpeechAnnounced,
    SpeechStarted,
    SpeechStopped,
    StateChanged,
    TextDelta,
    TextDone,
    TranscriptCompleted,
    TranscriptDelta,
    TranscriptFailed,
    TurnTimings,
)
from duolog.turns.conversation import Item, PartKind

MAX_FRAME_AUDIO_MS = 200
"""Longer speech is cut into frames of this length, so that a flush never waits behind a long one."""

CONTENT_INDEX = 0
"""Every item a call makes has one part."""


class Translator:
    """Speaks to one client."""

    def __init__(self, session: EffectiveSession, *, extensions: bool) -> None:
        self.session = session
        """What holds now; the connection replaces it when an update is accepted."""
        self._extensions = extensions
        self._event_numbers = count(1)
        self._announced: set[str] = set()
        self._formats: dict[str, AudioFormat] = {}
        """Output format of each open response: an update holds from the next one on."""
        self._outputs: dict[str, list[str]] = {}
        """Ids of the items of each open response, in order."""

    def translate(self, event: CallEvent) -> list[Frame]:
        """The frames that tell the client of the event."""
        return list(self._frames(event))

    def frame(self, message: ServerMessage, generation: int | None = None) -> Frame:
        """The message with its event id."""
        return Frame({"event_id": self._next_event_id(), **message}, generation)

    def again(self, message: Mapping[str, object]) -> Frame:
        """A message that a client of this session was sent before, with an event id of its own."""
        previous = message.get("previous_item_id")
        known = {"previous_item_id": self._known(previous if isinstance(previous, str) else None)}
        named = known if "previous_item_id" in message else {}
        return Frame({**message, **named, "event_id": self._next_event_id()})

    def _next_event_id(self) -> str:
        return f"event_{self.session.wire.id.removeprefix('sess_')}_{next(self._event_numbers)}"

    def _extension(self, message: ServerMessage) -> Iterator[Frame]:
        if self._extensions:
            yield self.frame(message)

    @singledispatchmethod
    def _frames(self, event: CallEvent) -> Iterator[Frame]:
        raise TypeError(f"no translation for {type(event).__name__}")

    # Session

    @_frames.register
    def _(self, event: SessionCreated) -> Iterator[Frame]:
        self.session = replace(self.session, config=event.config)
        yield self.frame({"type": "session.created", "session": session_json(event.config, self.session.wire)})
        yield from self._extension(session_message(event))

    @_frames.register
    def _(self, event: SessionUpdated) -> Iterator[Frame]:
        self.session = replace(self.session, config=event.config)
        yield self.frame({"type": "session.updated", "session": session_json(event.config, self.session.wire)})

    @_frames.register
    def _(self, event: CallErrorRaised) -> Iterator[Frame]:
        # Plain clients are told by what failed (`response.done`, `…transcription.failed`): some hang up on any `error`.
        if self._extensions:
            yield self.frame(error_json(event.message, code=event.code, kind=event.kind))

    # Input audio

    @_frames.register
    def _(self, event: SpeechStarted) -> Iterator[Frame]:
        yield self.frame(
            {
                "type": "input_audio_buffer.speech_started",
                "audio_start_ms": event.audio_start_ms,
                "item_id": event.item_id,
            }
        )

    @_frames.register
    def _(self, event: SpeechStopped) -> Iterator[Frame]:
        yield self.frame(
            {"type": "input_audio_buffer.speech_stopped", "audio_end_ms": event.audio_end_ms, "item_id": event.item_id}
        )

    @_frames.register
    def _(self, event: InputCommitted) -> Iterator[Frame]:
        yield self.frame(
            {
                "type": "input_audio_buffer.committed",
                "item_id": event.item_id,
                "previous_item_id": self._known(event.previous_item_id),
            }
        )

    @_frames.register
    def _(self, _event: InputCleared) -> Iterator[Frame]:
        yield self.frame({"type": "input_audio_buffer.cleared"})

    @_frames.register
    def _(self, event: InputTimedOut) -> Iterator[Frame]:
        yield self.frame(
            {
                "type": "input_audio_buffer.timeout_triggered",
                "audio_start_ms": event.audio_start_ms,
                "audio_end_ms": event.audio_end_ms,
                "item_id": event.item_id,
            }
        )

    # Conversation

    @_frames.register
    def _(self, event: ItemAdded) -> Iterator[Frame]:
        yield self._item_added(event.item, event.previous_item_id)

    @_frames.register
    def _(self, event: ItemDone) -> Iterator[Frame]:
        yield self._item_done(event.item, event.previous_item_id)

    @_frames.register
    def _(self, event: ItemDeleted) -> Iterator[Frame]:
        self._announced.discard(event.item_id)
        yield self.frame({"type": "conversation.item.deleted", "item_id": event.item_id})

    @_frames.register
    def _(self, event: ItemTruncated) -> Iterator[Frame]:
        yield self.frame(
            {
                "type": "conversation.item.truncated",
                "item_id": event.item_id,
                "content_index": event.content_index,
                "audio_end_ms": event.audio_end_ms,
            }
        )

    @_frames.register
    def _(self, event: ItemRetrieved) -> Iterator[Frame]:
        yield self.frame({"type": "conversation.item.retrieved", "item": item_json(event.item)})

    @_frames.register
    def _(self, event: TranscriptDelta) -> Iterator[Frame]:
        if self.session.config.transcribe:
            yield self.frame(
                {
                    "type": "conversation.item.input_audio_transcription.delta",
                    "item_id": event.item_id,
                    "content_index": CONTENT_INDEX,
                    "delta": event.delta,
                }
            )

    @_frames.register
    def _(self, event: TranscriptCompleted) -> Iterator[Frame]:
        if self.session.config.transcribe:
            yield self.frame(
                {
                    "type": "conversation.item.input_audio_transcription.completed",
                    "item_id": event.item_id,
                    "content_index": CONTENT_INDEX,
                    "transcript": event.transcript,
                    "usage": {"type": "duration", "seconds": event.audio_s},
                }
            )

    @_frames.register
    def _(self, event: TranscriptFailed) -> Iterator[Frame]:
        if self.session.config.transcribe:
            yield self.frame(
                {
                    "type": "conversation.item.input_audio_transcription.failed",
                    "item_id": event.item_id,
                    "content_index": CONTENT_INDEX,
                    "error": {
                        "type": "transcription_error",
                        "code": event.code,
                        "message": event.message,
                        "param": None,
                    },
                }
            )

    # Responses

    @_frames.register
    def _(self, event: ResponseCreated) -> Iterator[Frame]:
        self._formats[event.response.id] = self.session.wire.output_format
        self._outputs[event.response.id] = []
        yield self.frame({"type": "response.created", "response": self._response(event.response)})

    @_frames.register
    def _(self, event: OutputItemAdded) -> Iterator[Frame]:
        self._outputs.setdefault(event.response_id, []).append(event.item.id)
        yield self.frame(
            {
                "type": "response.output_item.added",
                "response_id": event.response_id,
                "output_index": self._output_index(event.response_id, event.item.id),
                "item": item_json(event.item),
            }
        )
        if not event.out_of_band:
            yield self._item_added(event.item, event.previous_item_id)

    @_frames.register
    def _(self, event: ContentPartAdded) -> Iterator[Frame]:
        where = self._address(event.response_id, event.item_id)
        yield self.frame({"type": "response.content_part.added", **where, "part": part_json(event.kind, "")})

    @_frames.register
    def _(self, event: TextDelta) -> Iterator[Frame]:
        where = self._address(event.response_id, event.item_id)
        if event.kind is PartKind.OUTPUT_AUDIO:
            yield self.frame({"type": "response.output_audio_transcript.delta", **where, "delta": event.delta})
        else:
            yield self.frame({"type": "response.output_text.delta", **where, "delta": event.delta})

    @_frames.register
    def _(self, event: AudioDelta) -> Iterator[Frame]:
        step = event.sample_rate_hz * MAX_FRAME_AUDIO_MS // 1000
        where = self._address(event.response_id, event.item_id)
        audio_format = self._formats.get(event.response_id, self.session.wire.output_format)
        for start in range(0, len(event.samples), step):
            samples = event.samples[start : start + step]
            if self._extensions:
                packed = pack_speech(event.generation, event.start_sample + start, pcm16_bytes(samples))
                yield Frame(packed, event.generation)
            else:
                delta = base64.b64encode(audio_format.encode(samples)).decode("ascii")
                yield self.frame({"type": "response.output_audio.delta", **where, "delta": delta}, event.generation)

    @_frames.register
    def _(self, event: AudioDone) -> Iterator[Frame]:
        yield self.frame({"type": "response.output_audio.done", **self._address(event.response_id, event.item_id)})

    @_frames.register
    def _(self, event: TextDone) -> Iterator[Frame]:
        where = self._address(event.response_id, event.item_id)
        if event.kind is PartKind.OUTPUT_AUDIO:
            yield self.frame({"type": "response.output_audio_transcript.done", **where, "transcript": event.text})
        else:
            yield self.frame({"type": "response.output_text.done", **where, "text": event.text})

    @_frames.register
    def _(self, event: ContentPartDone) -> Iterator[Frame]:
        where = self._address(event.response_id, event.item_id)
        yield self.frame({"type": "response.content_part.done", **where, "part": part_json(event.kind, event.text)})

    @_frames.register
    def _(self, event: OutputItemDone) -> Iterator[Frame]:
        if not event.out_of_band:
            yield self._item_done(event.item, event.previous_item_id)
        yield self.frame(
            {
                "type": "response.output_item.done",
                "response_id": event.response_id,
                "output_index": self._output_index(event.response_id, event.item.id),
                "item": item_json(event.item),
            }
        )

    @_frames.register
    def _(self, event: ResponseDone) -> Iterator[Frame]:
        yield self.frame({"type": "response.done", "response": self._response(event.response)})
        self._formats.pop(event.response.id, None)
        self._outputs.pop(event.response.id, None)

    # Extensions

    @_frames.register
    def _(self, event: SpeechAnnounced) -> Iterator[Frame]:
        return self._extension(speech_started_message(event))

    @_frames.register
    def _(self, event: PlayoutFlush) -> Iterator[Frame]:
        return self._extension({"type": "duolog.flush", "generation": event.generation})

    @_frames.register
    def _(self, event: PlayoutHeard) -> Iterator[Frame]:
        return self._extension(playout_heard_message(event))

    @_frames.register
    def _(self, event: TurnTimings) -> Iterator[Frame]:
        return self._extension(turn_timings_message(event))

    @_frames.register
    def _(self, event: StateChanged) -> Iterator[Frame]:
        return self._extension({"type": "duolog.state", "state": event.state})

    # Parts of messages

    def _item_added(self, item: Item, previous_item_id: str | None) -> Frame:
        previous = self._known(previous_item_id)
        self._announced.add(item.id)
        return self.frame({"type": "conversation.item.added", "item": item_json(item), "previous_item_id": previous})

    def _item_done(self, item: Item, previous_item_id: str | None) -> Frame:
        previous = self._known(previous_item_id)
        return self.frame({"type": "conversation.item.done", "item": item_json(item), "previous_item_id": previous})

    def _known(self, item_id: str | None) -> str | None:
        """Items of a resumed conversation were never announced to this client."""
        return item_id if item_id in self._announced else None

    def _address(self, response_id: str, item_id: str) -> PartAddress:
        return {
            "response_id": response_id,
            "item_id": item_id,
            "output_index": self._output_index(response_id, item_id),
            "content_index": CONTENT_INDEX,
        }

    def _output_index(self, response_id: str, item_id: str) -> int:
        items = self._outputs.get(response_id, [])
        return items.index(item_id) if item_id in items else 0

    def _response(self, response: ResponseInfo) -> ResponseJson:
        return response_json(
            response,
            conversation_id=f"conv_{self.session.wire.id.removeprefix('sess_')}",
            audio_format=self._formats.get(response.id, self.session.wire.output_format),
            voice=self.session.config.voice,
        )
