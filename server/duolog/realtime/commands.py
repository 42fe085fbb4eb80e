"""A client's event → what the call is asked. Refusals are raised, nothing is sent from here.

Knows no socket. `ClientCommands.apply` waits only where the call's input queue is full.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import singledispatchmethod

from duolog.ports.errors import RequestRefused
from duolog.realtime.audio_format import AudioFormat, bytes_from_base64
from duolog.realtime.client_messages import (
    ClientEvent,
    ContentPayload,
    ExtensionEvent,
    Greet,
    InputAudioAppend,
    InputAudioClear,
    InputAudioCommit,
    ItemCreate,
    ItemDelete,
    ItemPayload,
    ItemReference,
    ItemRetrieve,
    ItemTruncate,
    MuteSet,
    OutputAudioClear,
    Ping,
    PlayoutReported,
    ResponseCancel,
    ResponseCreate,
    ResponsePayload,
    SessionUpdate,
)
from duolog.realtime.frames import unpack_microphone
from duolog.realtime.rendering import item_json
from duolog.realtime.session_messages import SessionPayload
from duolog.realtime.session_update import SessionMerger
from duolog.realtime.translator import Translator
from duolog.realtime.wire_session import SessionKind, format_json
from duolog.session.config import Modality, ResponseOptions
from duolog.session.control import CallControl, PlayoutReport
from duolog.turns.conversation import ContentPart, Item, ItemRole, PartKind

Acknowledgement = Sequence[Mapping[str, object]]
"""Messages to the client, without their event ids; empty where none answers the event itself."""

AUDIO_SLICE_MS = 100
"""A long append reaches the call in slices, so that its bounded queue can hold it back."""


class ClientCommands:
    """Carries out what one client asks of one call."""

    def __init__(self, call: CallControl, translator: Translator, merger: SessionMerger, *, extensions: bool) -> None:
        self._call = call
        self._translator = translator
        self._merger = merger
        self._extensions = extensions

    async def apply(self, event: ClientEvent) -> Acknowledgement:
        """Ask the call; what tells its client that it was done. Raises RequestRefused; then nothing has changed."""
        if isinstance(event, ExtensionEvent) and not self._extensions:
            message = f"'{event.type}' is an extension; open the connection with ?duolog=1 to use it."
            raise RequestRefused(message, code="extensions_not_enabled", param="type")
        if isinstance(event, InputAudioAppend):
            await self._append(bytes_from_base64(event.audio, "audio"), self._input_format, "audio")
            return ()
        acknowledgement: Acknowledgement | None = self._ask(event)
        return acknowledgement or ()

    async def append_binary(self, frame: bytes) -> None:
        """Microphone audio in a binary frame: PCM16 at the input rate. Raises RequestRefused."""
        if not self._extensions:
            message = (
                "Binary frames are an extension; open the connection with ?duolog=1, or send Base64 audio in "
                "input_audio_buffer.append."
            )
            raise RequestRefused(message, code="extensions_not_enabled")
        pcm = AudioFormat.pcm(self._input_format.rate_hz)
        await self._append(unpack_microphone(frame), pcm, "samples")

    def update_session(self, payload: SessionPayload) -> None:
        """Merge the update into the session; the call answers with SessionUpdated. Raises RequestRefused."""
        merged = self._merger.merge(replace(self._translator.session, config=self._call.config), payload)
        self._call.update(merged.config)
        self._translator.session = merged

    @property
    def _input_format(self) -> AudioFormat:
        return self._translator.session.wire.input_format

    async def _append(self, payload: bytes, audio_format: AudioFormat, param: str) -> None:
        samples = audio_format.decode(payload, param)
        step = audio_format.rate_hz * AUDIO_SLICE_MS // 1000
        for start in range(0, len(samples), step):
            await self._call.append_audio(samples[start : start + step])

    @singledispatchmethod
    def _ask(self, event: ClientEvent) -> Acknowledgement | None:
        raise TypeError(f"no command for {type(event).__name__}")

    @_ask.register
    def _(self, event: SessionUpdate) -> None:
        self.update_session(event.session)

    @_ask.register
    def _(self, _event: InputAudioCommit) -> Acknowledgement:
        item_id = self._call.commit_audio()
        return ({"type": "input_audio_buffer.committed", "item_id": item_id, "previous_item_id": None},)

    @_ask.register
    def _(self, _event: InputAudioClear) -> None:
        self._call.clear_audio()

    @_ask.register
    def _(self, _event: OutputAudioClear) -> None:
        """Over a WebSocket the client holds the audio and clears it itself."""

    @_ask.register
    def _(self, event: ItemCreate) -> Acknowledgement:
        item = self._item(event.item)
        told = {"item": item_json(item), "previous_item_id": self._call.create_item(item, event.previous_item_id)}
        return {"type": "conversation.item.added", **told}, {"type": "conversation.item.done", **told}

    @_ask.register
    def _(self, event: ItemDelete) -> Acknowledgement:
        self._call.delete_item(event.item_id)
        return ({"type": "conversation.item.deleted", "item_id": event.item_id},)

    @_ask.register
    def _(self, event: ItemRetrieve) -> None:
        try:
            self._call.retrieve_item(event.item_id)
        except RequestRefused as error:
            # The one code by which a client tells a missed look-up from a fatal error.
            raise RequestRefused(str(error), code="item_retrieve_invalid_item_id", param="item_id") from error

    @_ask.register
    def _(self, event: ItemTruncate) -> Acknowledgement:
        self._call.truncate_item(event.item_id, event.content_index, event.audio_end_ms)
        where = {"content_index": event.content_index, "audio_end_ms": event.audio_end_ms}
        return ({"type": "conversation.item.truncated", "item_id": event.item_id, **where},)

    @_ask.register
    def _(self, event: ResponseCreate) -> None:
        if self._translator.session.wire.kind is SessionKind.TRANSCRIPTION:
            message = "A transcription session has no responses; send session.update with type 'realtime' first."
            raise RequestRefused(message, code="invalid_value", param="type")
        options = self._options(event.response or ResponsePayload())
        self._call.create_response(replace(options, asked_by=event.event_id))

    @_ask.register
    def _(self, event: ResponseCancel) -> None:
        self._call.cancel_response(event.response_id)

    @_ask.register
    def _(self, event: PlayoutReported) -> None:
        self._call.report_playout(PlayoutReport(event.generation, event.played_samples, event.ended))

    @_ask.register
    def _(self, event: MuteSet) -> None:
        self._call.set_muted(event.muted)

    @_ask.register
    def _(self, _event: Greet) -> None:
        self._call.greet()

    @_ask.register
    def _(self, _event: Ping) -> None:
        """Answered by the connection: the call has no part in it."""

    def _item(self, payload: ItemPayload, param: str = "item") -> Item:
        parts = tuple(_part(part) for part in payload.content)
        self._merger.check_length("".join(part.text or "" for part in parts), f"{param}.content")
        return Item(payload.id or f"item_{uuid.uuid4().hex[:24]}", ItemRole(payload.role), parts)

    def _input(self, payload: ItemReference | ItemPayload) -> Item | str:
        return payload.id if isinstance(payload, ItemReference) else self._item(payload, "response.input")

    def _options(self, payload: ResponsePayload) -> ResponseOptions:
        if payload.instructions is not None:
            self._merger.check_length(payload.instructions, "response.instructions")
        limit = payload.max_output_tokens
        return ResponseOptions(
            instructions=payload.instructions,
            output_modality=Modality(payload.output_modalities[0]) if payload.output_modalities else None,
            max_output_tokens=limit if isinstance(limit, int) else None,
            voice=self._voice(payload),
            metadata=tuple((payload.metadata or {}).items()),
            out_of_band=payload.conversation == "none",
            input_items=None if payload.input is None else tuple(map(self._input, payload.input)),
        )

    def _voice(self, payload: ResponsePayload) -> str | None:
        output = payload.audio.output if payload.audio else None
        if output is None:
            return None
        held = format_json(self._translator.session.wire.output_format)
        if output.format is not None and output.format.model_dump(exclude_none=True).items() - held.items():
            message = f"A response is spoken in the session's output format, {held}; change it with session.update."
            raise RequestRefused(message, code="invalid_value", param="response.audio.output.format")
        return None if output.voice is None else self._merger.voice(output.voice)


def _part(payload: ContentPayload) -> ContentPart:
    text = payload.transcript if payload.type.endswith("audio") else payload.text
    return ContentPart(PartKind(payload.type), text)
