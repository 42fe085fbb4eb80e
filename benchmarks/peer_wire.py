"""The peer's wire: the few Protocol Buffers messages of its WebSocket serializer, described here because its own
generated module belongs to another environment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # type: ignore[import-untyped]
from numpy.typing import NDArray

_FIELD = descriptor_pb2.FieldDescriptorProto
_AUDIO_FIELDS = (
    ("id", 1, _FIELD.TYPE_UINT64),
    ("name", 2, _FIELD.TYPE_STRING),
    ("audio", 3, _FIELD.TYPE_BYTES),
    ("sample_rate", 4, _FIELD.TYPE_UINT32),
    ("num_channels", 5, _FIELD.TYPE_UINT32),
)
_MARK_FIELDS = (("id", 1, _FIELD.TYPE_UINT64), ("name", 2, _FIELD.TYPE_STRING))


@dataclass(frozen=True, slots=True)
class PeerAudio:
    samples: NDArray[np.int16]
    rate_hz: int


@dataclass(frozen=True, slots=True)
class PeerInterruption:
    """Stop playing: the caller was heard to speak."""


def _frame_type() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="peer_frames.proto", package="peer", syntax="proto3")
    for name, fields in (("Audio", _AUDIO_FIELDS), ("Mark", _MARK_FIELDS)):
        message = file.message_type.add(name=name)
        for field_name, number, kind in fields:
            message.field.add(name=field_name, number=number, type=kind, label=_FIELD.LABEL_OPTIONAL)
    frame = file.message_type.add(name="Frame")
    frame.oneof_decl.add(name="frame")
    for name, number, kind in (("audio", 2, ".peer.Audio"), ("interruption", 5, ".peer.Mark")):
        frame.field.add(
            name=name,
            number=number,
            type=_FIELD.TYPE_MESSAGE,
            label=_FIELD.LABEL_OPTIONAL,
            type_name=kind,
            oneof_index=0,
        )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("peer.Frame"))


_Frame = _frame_type()


def encode_audio(pcm: bytes, rate_hz: int) -> bytes:
    frame = _Frame()
    frame.audio.audio = pcm
    frame.audio.sample_rate = rate_hz
    frame.audio.num_channels = 1
    encoded: bytes = frame.SerializeToString()
    return encoded


def decode(message: bytes) -> PeerAudio | PeerInterruption | None:
    """What the peer sent, None for messages that do not matter here."""
    frame = _Frame.FromString(message)
    match frame.WhichOneof("frame"):
        case "audio":
            return PeerAudio(np.frombuffer(frame.audio.audio, dtype="<i2"), int(frame.audio.sample_rate))
        case "interruption":
            return PeerInterruption()
        case _:
            return None
