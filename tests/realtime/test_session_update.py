"""Partial merge: absent keeps, null resets or turns off, unknown names stand for the call's own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.realtime.fake_call import CONFIG

from duolog.ports.errors import RequestRefused
from duolog.realtime.audio_format import AudioFormat, Encoding
from duolog.realtime.parsing import parse_session
from duolog.realtime.session_update import EffectiveSession, SessionMerger
from duolog.realtime.wire_session import SessionKind, WireSession, session_json
from duolog.session.config import Eagerness, Modality, SemanticVad, ServerVad

pytestmark = pytest.mark.pure

PATIENT = replace(CONFIG, turn_detection=ServerVad(silence_duration_ms=700))
INITIAL = EffectiveSession(PATIENT, WireSession.initial("sess_1", 1_800_000_000, PATIENT))
MERGER = SessionMerger(INITIAL, personas=("ava", "bo"), voices=("joe", "amy"), max_text_chars=1_000)


def merge(session: dict[str, Any], now: EffectiveSession = INITIAL) -> EffectiveSession:
    return MERGER.merge(now, parse_session({"type": "realtime", **session}))


def merge_input(fields: dict[str, Any], now: EffectiveSession = INITIAL) -> EffectiveSession:
    return merge({"audio": {"input": fields}}, now)


def test_an_empty_update_changes_nothing() -> None:
    assert merge({}) == INITIAL
    assert merge({"audio": {"input": {}, "output": {}}, "tools": [], "tracing": "auto", "include": []}) == INITIAL


def test_absent_fields_keep_what_was_set_before() -> None:
    first = merge({"instructions": "Sing.", "output_modalities": ["text"], "max_output_tokens": 50})
    second = merge_input({"transcription": {"language": "de"}}, first)
    assert second.config.instructions == "Sing."
    assert second.config.output_modality is Modality.TEXT
    assert second.config.sampling.max_tokens == 50
    assert second.config.language == "de"


def test_null_resets_to_what_the_call_began_with() -> None:
    changed = merge(
        {
            "instructions": "Sing.",
            "output_modalities": ["text"],
            "max_output_tokens": 50,
            "audio": {"output": {"voice": "amy", "speed": 1.2, "format": {"type": "audio/pcmu"}}},
        }
    )
    nulls = {"voice": None, "speed": None, "format": None}
    reset = merge(
        {"instructions": None, "output_modalities": None, "max_output_tokens": None, "audio": {"output": nulls}},
        changed,
    )
    assert reset == INITIAL


def test_null_turn_detection_is_manual() -> None:
    manual = merge_input({"turn_detection": None})
    assert manual.config.turn_detection is None
    back = merge_input({"turn_detection": {"type": "server_vad"}}, manual)
    assert back.config.turn_detection == ServerVad(silence_duration_ms=700)


def test_turn_detection_keeps_unnamed_fields() -> None:
    loud = merge_input({"turn_detection": {"type": "server_vad", "threshold": 0.8, "idle_timeout_ms": 6_000}})
    assert loud.config.turn_detection == ServerVad(threshold=0.8, silence_duration_ms=700, idle_timeout_ms=6_000)
    quiet = merge_input({"turn_detection": {"type": "server_vad", "create_response": False}}, loud)
    assert quiet.config.turn_detection == replace(loud.config.turn_detection, create_response=False)
    calm = merge_input({"turn_detection": {"type": "server_vad", "idle_timeout_ms": None}}, quiet)
    assert isinstance(calm.config.turn_detection, ServerVad)
    assert calm.config.turn_detection.idle_timeout_ms is None


def test_livekit_default_session() -> None:
    held = merge(
        {
            "model": "gpt-realtime",
            "output_modalities": ["audio"],
            "audio": {
                "input": {
                    "format": {"type": "audio/pcm", "rate": 24_000},
                    "noise_reduction": {"type": "near_field"},
                    "transcription": {"model": "gpt-4o-mini-transcribe"},
                    "turn_detection": {
                        "type": "semantic_vad",
                        "eagerness": "medium",
                        "create_response": True,
                        "interrupt_response": True,
                    },
                },
                "output": {"format": {"type": "audio/pcm", "rate": 24_000}, "speed": 1.0, "voice": "marin"},
            },
            "max_output_tokens": "inf",
            "tool_choice": "auto",
            "tracing": None,
        }
    )
    assert held.config.turn_detection == SemanticVad(Eagerness.MEDIUM)
    assert held.config.voice == "joe"
    assert held.config.persona == "ava"
    assert held.wire.transcription_model == "gpt-4o-mini-transcribe"


def test_semantic_vad_keeps_its_eagerness() -> None:
    eager = merge_input({"turn_detection": {"type": "semantic_vad", "eagerness": "high"}})
    later = merge_input({"turn_detection": {"type": "semantic_vad", "interrupt_response": False}}, eager)
    assert later.config.turn_detection == SemanticVad(Eagerness.HIGH, interrupt_response=False)


@pytest.mark.parametrize(("asked", "held"), [("en", "en"), ("en-US", "en"), ("zh_CN", "zh"), ("DE", "de")])
def test_language_tags_come_down_to_the_language(asked: str, held: str) -> None:
    assert merge_input({"transcription": {"language": asked}}).config.language == held


def test_transcription_null_is_off_and_anything_is_on() -> None:
    off = merge_input({"transcription": None})
    assert not off.config.transcribe
    on = merge_input({"transcription": {"prompt": "names", "language": None}}, off)
    assert on.config.transcribe
    assert on.config.language == "en"
    assert on.wire.transcription_prompt == "names"


@pytest.mark.parametrize("rate", [8_000, 16_000, 24_000, 48_000])
def test_pcm_rates(rate: int) -> None:
    audio = {"format": {"type": "audio/pcm", "rate": rate}}
    held = merge({"audio": {"input": audio, "output": audio}})
    assert (held.config.input_rate_hz, held.config.output_rate_hz) == (rate, rate)
    assert held.wire.input_format == AudioFormat.pcm(rate)


@pytest.mark.parametrize(("name", "encoding"), [("audio/pcmu", Encoding.MU_LAW), ("audio/pcma", Encoding.A_LAW)])
def test_telephone_formats(name: str, encoding: Encoding) -> None:
    held = merge({"audio": {"input": {"format": {"type": name}}, "output": {"format": {"type": name}}}})
    assert held.wire.output_format == AudioFormat(encoding, 8_000)
    assert held.config.input_rate_hz == 8_000
    session = session_json(held.config, held.wire)
    assert session["audio"]["input"]["format"] == {"type": name}


def test_pcm_without_a_rate_is_24_khz() -> None:
    sixteen = merge_input({"format": {"type": "audio/pcm", "rate": 16_000}})
    assert merge_input({"format": {"type": "audio/pcm"}}, sixteen).config.input_rate_hz == 24_000


def test_another_persona_needs_another_call() -> None:
    assert merge({"model": "ava"}) == INITIAL
    with pytest.raises(RequestRefused, match=r"\?model=bo") as caught:
        merge({"model": "bo"})
    assert caught.value.param == "session.model"


def test_a_voice_by_name_or_id() -> None:
    assert merge({"audio": {"output": {"voice": "amy"}}}).config.voice == "amy"
    assert merge({"audio": {"output": {"voice": {"id": "amy"}}}}).config.voice == "amy"


def test_long_instructions_are_refused_and_change_nothing() -> None:
    with pytest.raises(RequestRefused, match="1001 characters") as caught:
        merge({"instructions": "x" * 1_001, "max_output_tokens": 5})
    assert caught.value.code == "string_above_max_length"


def test_a_transcription_session_never_answers() -> None:
    held = MERGER.merge(INITIAL, parse_session({"type": "transcription", "audio": {"input": {}}}))
    assert held.wire.kind is SessionKind.TRANSCRIPTION
    assert isinstance(held.config.turn_detection, ServerVad)
    assert not held.config.turn_detection.create_response
    back = merge({}, held)
    assert back.config.turn_detection == PATIENT.turn_detection
    assert back.wire.kind is SessionKind.REALTIME
