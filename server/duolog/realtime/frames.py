"""What goes over the socket, and the layout of binary frames (docs/extensions.md). Pure."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass

from duolog.ports.errors import RequestRefused

MICROPHONE_KIND = 1
SPEECH_KIND = 2

_MICROPHONE_HEADER = struct.Struct("<BBH")
_SPEECH_HEADER = struct.Struct("<BBHII")
_U32 = 0xFFFF_FFFF


@dataclass(frozen=True, slots=True)
class Frame:
    """One WebSocket message to the client."""

    payload: Mapping[str, object] | bytes
    """A JSON object for a text frame, bytes for a binary one."""
    generation: int | None = None
    """Of audio: the writer drops it once a newer flush has come. None: always sent."""

    def encoded(self) -> str | bytes:
        if isinstance(self.payload, bytes):
            return self.payload
        return json.dumps(self.payload, ensure_ascii=False, separators=(",", ":"))


def pack_speech(generation: int, start_sample: int, pcm16: bytes) -> bytes:
    """A speech frame; both counters wrap at 32 bits."""
    return _SPEECH_HEADER.pack(SPEECH_KIND, 0, 0, generation & _U32, start_sample & _U32) + pcm16


def unpack_microphone(frame: bytes) -> bytes:
    """The PCM16 bytes of a microphone frame. Raises RequestRefused for anything else.

    The sequence number is for the client's own diagnosis: a WebSocket neither loses nor reorders frames.
    """
    if len(frame) < _MICROPHONE_HEADER.size:
        message = f"A binary frame of {len(frame)} bytes has no header; it begins with u8 kind, u8 flags, u16 sequence."
        raise RequestRefused(message, code="invalid_binary_frame")
    kind, flags, _sequence = _MICROPHONE_HEADER.unpack_from(frame)
    if kind != MICROPHONE_KIND or flags != 0:
        message = f"A binary frame of kind {kind} with flags {flags} is unknown; microphone audio is kind 1, flags 0."
        raise RequestRefused(message, code="invalid_binary_frame")
    return frame[_MICROPHONE_HEADER.size :]
