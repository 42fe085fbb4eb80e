"""The `duolog.*` messages to a client that asked for them (docs/extensions.md). Pure, without state."""

from __future__ import annotations

from duolog.realtime.server_messages import (
    DuologPlayoutHeardMessage,
    DuologSessionMessage,
    DuologSpeechStartedMessage,
    DuologTurnTimingsMessage,
)
from duolog.session.events import PlayoutHeard, SessionCreated, SpeechAnnounced, TurnTimings


def session_message(event: SessionCreated) -> DuologSessionMessage:
    return {
        "type": "duolog.session",
        "resumed": event.resumed,
        "persona": event.config.persona,
        "input_rate_hz": event.config.input_rate_hz,
        "output_rate_hz": event.config.output_rate_hz,
    }


def speech_started_message(event: SpeechAnnounced) -> DuologSpeechStartedMessage:
    return {
        "type": "duolog.speech.started",
        "generation": event.generation,
        "response_id": event.response_id,
        "item_id": event.item_id,
        "sample_rate_hz": event.sample_rate_hz,
    }


def playout_heard_message(event: PlayoutHeard) -> DuologPlayoutHeardMessage:
    return {
        "type": "duolog.playout.heard",
        "item_id": event.item_id,
        "heard_text": event.heard_text,
        "played_ms": event.played_ms,
        "approximate": event.approximate,
    }


def turn_timings_message(event: TurnTimings) -> DuologTurnTimingsMessage:
    return {
        "type": "duolog.turn.timings",
        "response_id": event.response_id,
        "item_id": event.item_id,
        "generation": event.generation,
        "speech_end_sample": event.speech_end_sample,
        "endpoint_ms": event.endpoint_ms,
        "transcript_ms": event.transcript_ms,
        "admitted_ms": event.admitted_ms,
        "first_token_ms": event.first_token_ms,
        "first_phrase_ms": event.first_phrase_ms,
        "first_audio_ms": event.first_audio_ms,
        "first_audio_sent_ms": event.first_audio_sent_ms,
        "prompt_tokens": event.prompt_tokens,
        "cached_tokens": event.cached_tokens,
        "silence_wait_ms": event.silence_wait_ms,
        "speculation": event.speculation,
        "wasted_speculations": event.wasted_speculations,
        "answer_source": event.answer_source,
    }
