"""The caller's reading of the wire: event fields and binary frames, taken as they come and checked before use. Pure."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Message = Mapping[str, object]

MICROPHONE_HEADER = struct.Struct("<BBH")
SPEECH_HEADER = struct.Struct("<BBHII")
KIND_MICROPHONE = 1
KIND_SPEECH = 2


@dataclass(frozen=True, slots=True)
class SpeechFrame:
    generation: int
    start_sample: int
    samples: NDArray[np.int16]


def microphone_frame(sequence: int, pcm: bytes) -> bytes:
    """One 20 ms frame for the server; the sequence number wraps at 65,536."""
    return MICROPHONE_HEADER.pack(KIND_MICROPHONE, 0, sequence & 0xFFFF) + pcm


def parse_speech_frame(frame: bytes) -> SpeechFrame:
    """A binary frame of the server. Raises ValueError where it is not speech."""
    if len(frame) < SPEECH_HEADER.size or frame[0] != KIND_SPEECH:
        raise ValueError(f"a binary frame of {len(frame)} bytes and kind {frame[0] if frame else None} is not speech")
    _kind, _flags, _reserved, generation, start_sample = SPEECH_HEADER.unpack_from(frame)
    return SpeechFrame(generation, start_sample, np.frombuffer(frame, dtype="<i2", offset=SPEECH_HEADER.size))


def parse_message(text: str) -> Message:
    """One JSON event. Raises ValueError where it is no JSON object."""
    value: object = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError("an event is a JSON object")  # noqa: TRY004 - what came is wrong, not an argument's type
    return value


def field(message: Message, *path: str) -> object:
    """The value at a path of keys, None where any part of it is absent."""
    value: object = message
    for key in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value


def text_field(message: Message, *path: str) -> str:
    """The text at a path of keys, empty where there is none."""
    value = field(message, *path)
    return value if isinstance(value, str) else ""


def number_field(message: Message, *path: str) -> float | None:
    """The number at a path of keys, None where there is none."""
    value = field(message, *path)
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
