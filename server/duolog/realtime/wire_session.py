"""What a client has set that concerns the wire alone, and the session object the client is shown. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from duolog.realtime.audio_format import AudioFormat, Encoding
from duolog.realtime.server_messages import (
    AudioFormatJson,
    RealtimeSessionJson,
    SemanticVadJson,
    ServerVadJson,
    SessionJson,
    TranscriptionJson,
    TranscriptionSessionJson,
)
from duolog.session.config import ServerVad, SessionConfig, TurnDetection

DEFAULT_TRANSCRIPTION_MODEL = "whisper"


class SessionKind(StrEnum):
    REALTIME = "realtime"
    TRANSCRIPTION = "transcription"
    """The client wants to know what was said; nothing answers."""


@dataclass(frozen=True, slots=True)
class WireSession:
    """Beside SessionConfig. Frozen: an update replaces it."""

    id: str
    expires_at: int
    """Unix time in seconds."""
    input_format: AudioFormat
    output_format: AudioFormat
    kind: SessionKind = SessionKind.REALTIME
    transcription_model: str = DEFAULT_TRANSCRIPTION_MODEL
    transcription_prompt: str | None = None
    max_output_tokens: int | None = None
    """None: the persona's own limit, `inf` on the wire."""
    tool_choice: Literal["auto", "none"] = "auto"

    @classmethod
    def initial(cls, session_id: str, expires_at: int, config: SessionConfig) -> WireSession:
        """As a call begins: PCM at the rates of the call."""
        return cls(
            id=session_id,
            expires_at=expires_at,
            input_format=AudioFormat.pcm(config.input_rate_hz),
            output_format=AudioFormat.pcm(config.output_rate_hz),
        )


def format_json(audio_format: AudioFormat) -> AudioFormatJson:
    if audio_format.encoding is Encoding.PCM:
        return {"type": "audio/pcm", "rate": audio_format.rate_hz}
    return {"type": audio_format.encoding.value}


def session_json(config: SessionConfig, wire: WireSession) -> SessionJson:
    """The full effective session: what holds, not what was asked for."""
    if wire.kind is SessionKind.TRANSCRIPTION:
        return _transcription_session(config, wire)
    return _realtime_session(config, wire)


def _realtime_session(config: SessionConfig, wire: WireSession) -> RealtimeSessionJson:
    return {
        "type": "realtime",
        "object": "realtime.session",
        "id": wire.id,
        "model": config.persona,
        "expires_at": wire.expires_at,
        "output_modalities": [config.output_modality.value],
        "instructions": config.instructions,
        "audio": {
            "input": {
                "format": format_json(wire.input_format),
                "transcription": _transcription(config, wire),
                "noise_reduction": None,
                "turn_detection": turn_detection_json(config.turn_detection),
            },
            "output": {
                "format": format_json(wire.output_format),
                "voice": config.voice,
                "speed": config.speed,
            },
        },
        "tools": [],
        "tool_choice": wire.tool_choice,
        "max_output_tokens": wire.max_output_tokens or "inf",
        "tracing": None,
        "truncation": "auto",
        "prompt": None,
        "include": None,
    }


def _transcription_session(config: SessionConfig, wire: WireSession) -> TranscriptionSessionJson:
    return {
        "type": "transcription",
        "object": "realtime.transcription_session",
        "id": wire.id,
        "expires_at": wire.expires_at,
        "audio": {
            "input": {
                "format": format_json(wire.input_format),
                "transcription": _transcription(config, wire),
                "noise_reduction": None,
                "turn_detection": turn_detection_json(config.turn_detection),
            }
        },
        "include": None,
    }


def _transcription(config: SessionConfig, wire: WireSession) -> TranscriptionJson | None:
    if not config.transcribe:
        return None
    return {"model": wire.transcription_model, "language": config.language, "prompt": wire.transcription_prompt}


def turn_detection_json(detection: TurnDetection) -> ServerVadJson | SemanticVadJson | None:
    if detection is None:
        return None
    if isinstance(detection, ServerVad):
        return {
            "type": "server_vad",
            "threshold": detection.threshold,
            "prefix_padding_ms": detection.prefix_padding_ms,
            "silence_duration_ms": detection.silence_duration_ms,
            "create_response": detection.create_response,
            "interrupt_response": detection.interrupt_response,
            "idle_timeout_ms": detection.idle_timeout_ms,
        }
    return {
        "type": "semantic_vad",
        "eagerness": detection.eagerness.value,
        "create_response": detection.create_response,
        "interrupt_response": detection.interrupt_response,
    }
