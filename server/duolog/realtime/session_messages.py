"""The session object of `session.update`, typed. Knows no call; `session_update.py` gives it its meaning.

Every field may be absent. Null is kept apart from absent (`model_fields_set`): it resets a field, or turns a part off.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, model_validator

MAX_OUTPUT_TOKENS = 4_096
SUPPORTED_PCM_RATES_HZ = (8_000, 16_000, 24_000, 48_000)

BETA_NAMES = {
    "modalities": "output_modalities",
    "voice": "audio.output.voice",
    "speed": "audio.output.speed",
    "input_audio_format": "audio.input.format",
    "output_audio_format": "audio.output.format",
    "input_audio_transcription": "audio.input.transcription",
    "turn_detection": "audio.input.turn_detection",
    "input_audio_noise_reduction": "audio.input.noise_reduction",
    "max_response_output_tokens": "max_output_tokens",
}
"""Fields of the beta session object and where they are in the GA one."""


def _modalities(value: object) -> object:
    if value not in (["audio"], ["text"]):
        raise ValueError('must be ["audio"] or ["text"]')
    return value


def _whole_number_or_inf(value: object) -> object:
    if value == "inf" or (type(value) is int and 1 <= value <= MAX_OUTPUT_TOKENS):
        return value
    raise ValueError(f'must be a whole number from 1 to {MAX_OUTPUT_TOKENS}, or "inf"')


def _voice_name(value: object) -> object:
    name = value.get("id") if isinstance(value, dict) else value
    if not isinstance(name, str) or not 1 <= len(name) <= 128:
        raise ValueError('must be a voice name, or {"id": name}')
    return name


def _no_tools(value: object) -> object:
    if value != []:
        raise ValueError("this server calls no tools; send an empty list or leave it out")
    return value


def _tool_choice(value: object) -> object:
    if value not in ("auto", "none"):
        raise ValueError('must be "auto" or "none": this server calls no tools')
    return value


OutputModalities = Annotated[list[Literal["audio", "text"]], BeforeValidator(_modalities)]
WholeNumberOrInf = Annotated[int | Literal["inf"], BeforeValidator(_whole_number_or_inf)]
VoiceName = Annotated[str, BeforeValidator(_voice_name)]
ToolList = Annotated[list[dict[str, JsonValue]], BeforeValidator(_no_tools)]
ToolChoice = Annotated[Literal["auto", "none"], BeforeValidator(_tool_choice)]


class Payload(BaseModel):
    """Strict about types and names."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", allow_inf_nan=False)

    def given(self, name: str) -> bool:
        """True where the client sent the field, be it null."""
        return name in self.model_fields_set


class PcmPayload(Payload):
    type: Literal["audio/pcm"]
    rate: int | None = None

    @model_validator(mode="after")
    def rate_is_supported(self) -> PcmPayload:
        if self.rate is not None and self.rate not in SUPPORTED_PCM_RATES_HZ:
            rates = ", ".join(str(rate) for rate in SUPPORTED_PCM_RATES_HZ)
            raise ValueError(f"rate {self.rate} is not supported; audio/pcm comes at {rates} Hz")
        return self


class MuLawPayload(Payload):
    type: Literal["audio/pcmu"]
    rate: Literal[8000] | None = None


class ALawPayload(Payload):
    type: Literal["audio/pcma"]
    rate: Literal[8000] | None = None


FormatPayload = Annotated[PcmPayload | MuLawPayload | ALawPayload, Field(discriminator="type")]


class TranscriptionPayload(Payload):
    """`language` is honoured; the rest names what other servers would do with it."""

    model: str | None = Field(default=None, max_length=256)
    language: str | None = Field(default=None, pattern=r"^[A-Za-z]{2,3}([-_][A-Za-z0-9]+)*$")
    prompt: str | None = Field(default=None, max_length=4_096)
    delay: str | None = None
    keywords: list[str] | None = None
    languages: list[str] | None = None


class ServerVadPayload(Payload):
    type: Literal["server_vad"]
    threshold: float | None = Field(default=None, ge=0, le=1)
    prefix_padding_ms: int | None = Field(default=None, ge=0, le=5_000)
    silence_duration_ms: int | None = Field(default=None, ge=0, le=30_000)
    create_response: bool | None = None
    interrupt_response: bool | None = None
    idle_timeout_ms: int | None = Field(default=None, ge=1_000, le=600_000)


class SemanticVadPayload(Payload):
    type: Literal["semantic_vad"]
    eagerness: Literal["low", "medium", "high", "auto"] | None = None
    create_response: bool | None = None
    interrupt_response: bool | None = None


TurnDetectionPayload = Annotated[ServerVadPayload | SemanticVadPayload, Field(discriminator="type")]


class NoiseReductionPayload(Payload):
    """Accepted and without effect: recognition works on the sound as it comes."""

    type: Literal["near_field", "far_field"] | None = None
    strength: float | None = None


class InputPayload(Payload):
    format: FormatPayload | None = None
    transcription: TranscriptionPayload | None = None
    noise_reduction: NoiseReductionPayload | None = None
    turn_detection: TurnDetectionPayload | None = None


class OutputPayload(Payload):
    format: FormatPayload | None = None
    voice: VoiceName | None = None
    speed: float | None = Field(default=None, ge=0.25, le=1.5)


class AudioPayload(Payload):
    input: InputPayload | None = None
    output: OutputPayload | None = None


class SessionPayload(Payload):
    """A partial session. `id`, `object` and `expires_at` are the server's and ignored, as are fields without effect."""

    type: Literal["realtime", "transcription"]
    id: str | None = None
    object: str | None = None
    expires_at: int | None = None
    model: str | None = Field(default=None, max_length=256)
    instructions: str | None = None
    output_modalities: OutputModalities | None = None
    audio: AudioPayload | None = None
    tools: ToolList | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    max_output_tokens: WholeNumberOrInf | None = None
    tracing: Literal["auto"] | dict[str, JsonValue] | None = None
    truncation: Literal["auto", "disabled"] | dict[str, JsonValue] | None = None
    reasoning: dict[str, JsonValue] | None = None
    prompt: None = None
    include: list[str] | None = None

    @model_validator(mode="before")
    @classmethod
    def names_are_ga(cls, value: Any) -> Any:
        for beta in _beta_names(value):
            raise ValueError(f"{beta!r} is a field of the beta protocol; the GA name is {BETA_NAMES[beta]!r}")
        return value


def _beta_names(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        yield from (name for name in value if name in BETA_NAMES)
