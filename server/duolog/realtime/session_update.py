"""`session.update` → the call's configuration: a partial merge into what holds now. Pure.

Absent fields keep their value. A null resets a field to what the call began with, except where it turns something off:
`turn_detection` (manual turns), `transcription` (no transcription events), `noise_reduction`.
Unknown model and voice names stand for the call's own persona and voice, so that clients of other servers connect
unchanged.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from duolog.ports.errors import RequestRefused
from duolog.realtime.audio_format import G711_RATE_HZ, AudioFormat, Encoding
from duolog.realtime.session_messages import (
    FormatPayload,
    InputPayload,
    OutputPayload,
    PcmPayload,
    SemanticVadPayload,
    ServerVadPayload,
    SessionPayload,
    TranscriptionPayload,
)
from duolog.realtime.wire_session import DEFAULT_TRANSCRIPTION_MODEL, SessionKind, WireSession
from duolog.session.config import Eagerness, Modality, SemanticVad, ServerVad, SessionConfig, TurnDetection

DEFAULT_PCM_RATE_HZ = 24_000


@dataclass(frozen=True, slots=True)
class EffectiveSession:
    """A call's configuration and its wire side; they change together."""

    config: SessionConfig
    wire: WireSession


@dataclass(frozen=True, slots=True)
class SessionMerger:
    """Merges updates of one call."""

    initial: EffectiveSession
    """What the call began with: what a null resets to."""
    personas: Collection[str]
    voices: Collection[str]
    max_text_chars: int

    def merge(self, now: EffectiveSession, payload: SessionPayload) -> EffectiveSession:
        """The session after the update. Raises RequestRefused; then nothing of the update holds."""
        self._check_persona(payload)
        result = self._merge_kind(now, payload)
        result = self._merge_text(result, payload)
        audio = payload.audio
        if audio is not None and audio.input is not None:
            result = self._merge_input(result, audio.input)
        if audio is not None and audio.output is not None:
            result = self._merge_output(result, audio.output)
        if result.wire.kind is SessionKind.TRANSCRIPTION:
            result = replace(result, config=_without_answers(result.config))
        return result

    def voice(self, name: str | None) -> str:
        """The voice a client's name stands for."""
        return name if name is not None and name in self.voices else self.initial.config.voice

    def _check_persona(self, payload: SessionPayload) -> None:
        persona = self.initial.config.persona
        if payload.model in self.personas and payload.model != persona:
            message = f"This call speaks as '{persona}'; open another call with ?model={payload.model} instead."
            raise RequestRefused(message, code="invalid_value", param="session.model")

    def _merge_kind(self, now: EffectiveSession, payload: SessionPayload) -> EffectiveSession:
        kind = SessionKind(payload.type)
        if kind is now.wire.kind:
            return now
        detection = self.initial.config.turn_detection
        return EffectiveSession(
            replace(now.config, turn_detection=detection, transcribe=True), replace(now.wire, kind=kind)
        )

    def _merge_text(self, now: EffectiveSession, payload: SessionPayload) -> EffectiveSession:
        config, wire, initial = now.config, now.wire, self.initial.config
        if payload.given("instructions"):
            text = initial.instructions if payload.instructions is None else payload.instructions
            self.check_length(text, "session.instructions")
            config = replace(config, instructions=text)
        if payload.given("output_modalities"):
            names = payload.output_modalities
            config = replace(config, output_modality=Modality(names[0]) if names else initial.output_modality)
        if payload.given("max_output_tokens"):
            limit = payload.max_output_tokens if isinstance(payload.max_output_tokens, int) else None
            wire = replace(wire, max_output_tokens=limit)
            tokens = initial.sampling.max_tokens if limit is None else limit
            config = replace(config, sampling=replace(config.sampling, max_tokens=tokens))
        if payload.given("tool_choice"):
            wire = replace(wire, tool_choice=payload.tool_choice or "auto")
        return EffectiveSession(config, wire)

    def check_length(self, text: str, param: str) -> None:
        """Raises RequestRefused where a text is longer than this server takes."""
        if len(text) > self.max_text_chars:
            message = f"'{param}' has {len(text)} characters; at most {self.max_text_chars} are taken."
            raise RequestRefused(message, code="string_above_max_length", param=param)

    def _merge_input(self, now: EffectiveSession, payload: InputPayload) -> EffectiveSession:
        config, wire = now.config, now.wire
        if payload.given("format"):
            audio_format = _format(payload.format, self.initial.wire.input_format)
            wire = replace(wire, input_format=audio_format)
            config = replace(config, input_rate_hz=audio_format.rate_hz)
        if payload.given("turn_detection"):
            config = replace(config, turn_detection=self._turn_detection(config, payload))
        result = EffectiveSession(config, wire)
        return self._merge_transcription(result, payload.transcription) if payload.given("transcription") else result

    def _turn_detection(self, config: SessionConfig, payload: InputPayload) -> TurnDetection:
        asked = payload.turn_detection
        if asked is None:
            return None
        candidates = (config.turn_detection, self.initial.config.turn_detection)
        if isinstance(asked, ServerVadPayload):
            return _server_vad(next((one for one in candidates if isinstance(one, ServerVad)), ServerVad()), asked)
        return _semantic_vad(next((one for one in candidates if isinstance(one, SemanticVad)), SemanticVad()), asked)

    def _merge_transcription(self, now: EffectiveSession, payload: TranscriptionPayload | None) -> EffectiveSession:
        if payload is None:
            return replace(now, config=replace(now.config, transcribe=False))
        config, wire = replace(now.config, transcribe=True), now.wire
        if payload.given("language"):
            language = payload.language
            primary = language.replace("_", "-").split("-")[0].lower() if language else self.initial.config.language
            config = replace(config, language=primary)
        if payload.given("model"):
            wire = replace(wire, transcription_model=payload.model or DEFAULT_TRANSCRIPTION_MODEL)
        if payload.given("prompt"):
            wire = replace(wire, transcription_prompt=payload.prompt)
        return EffectiveSession(config, wire)

    def _merge_output(self, now: EffectiveSession, payload: OutputPayload) -> EffectiveSession:
        config, wire = now.config, now.wire
        if payload.given("format"):
            audio_format = _format(payload.format, self.initial.wire.output_format)
            wire = replace(wire, output_format=audio_format)
            config = replace(config, output_rate_hz=audio_format.rate_hz)
        if payload.given("voice"):
            config = replace(config, voice=self.voice(payload.voice))
        if payload.given("speed"):
            config = replace(config, speed=self.initial.config.speed if payload.speed is None else payload.speed)
        return EffectiveSession(config, wire)


def _format(payload: FormatPayload | None, initial: AudioFormat) -> AudioFormat:
    if payload is None:
        return initial
    if isinstance(payload, PcmPayload):
        return AudioFormat.pcm(payload.rate or DEFAULT_PCM_RATE_HZ)
    return AudioFormat(Encoding(payload.type), G711_RATE_HZ)


def _server_vad(base: ServerVad, asked: ServerVadPayload) -> ServerVad:
    changes = asked.model_dump(exclude_unset=True, exclude_none=True, exclude={"type"})
    merged = replace(base, **changes)
    return replace(merged, idle_timeout_ms=None) if _nulled(asked, "idle_timeout_ms") else merged


def _semantic_vad(base: SemanticVad, asked: SemanticVadPayload) -> SemanticVad:
    changes = asked.model_dump(exclude_unset=True, exclude_none=True, exclude={"type", "eagerness"})
    merged = replace(base, **changes)
    return replace(merged, eagerness=Eagerness(asked.eagerness)) if asked.eagerness else merged


def _nulled(payload: ServerVadPayload, name: str) -> bool:
    return payload.given(name) and getattr(payload, name) is None


def _without_answers(config: SessionConfig) -> SessionConfig:
    """A transcription session: turns are still detected, nobody answers them."""
    detection = config.turn_detection
    if detection is None:
        return config
    return replace(config, turn_detection=replace(detection, create_response=False, interrupt_response=False))
