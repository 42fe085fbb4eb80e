"""Which voice speaks, and by which engine."""

from __future__ import annotations

from contextlib import aclosing

import pytest
from structlog.testing import capture_logs

from duolog.adapters.scripted_tts import ScriptedSynthesizer
from duolog.adapters.voice_router import VoiceRouter
from duolog.ports.errors import ConfigurationError, EngineRejected, EngineUnavailable
from duolog.ports.tts import SpeechRequest, Voice
from duolog.ports.voice_choice import voice_for

pytestmark = pytest.mark.session

JOE = Voice("joe", ("en",), 22_050, has_word_timings=True)
MEI = Voice("mei", ("zh",), 24_000, has_word_timings=False)
ROBOT = Voice("robot", ("en", "zh", "fr"), 16_000, has_word_timings=True, last_resort=True)


@pytest.mark.parametrize(
    ("voices", "asked", "language", "speaks"),
    [
        ((JOE, MEI, ROBOT), "joe", "en", "joe"),
        ((JOE, MEI, ROBOT), "joe", "en-GB", "joe"),
        ((ROBOT, JOE, MEI), "joe", "zh", "mei"),
        ((JOE, MEI, ROBOT), "joe", "fr", "robot"),
        ((JOE, ROBOT), "joe", "zh-CN", "robot"),
        ((JOE, ROBOT), "robot", "en", "robot"),
        ((JOE, MEI, ROBOT), "joe", "ko", "joe"),
        ((JOE,), "joe", "zh", "joe"),
    ],
)
def test_a_stand_in_speaks_only_where_the_voice_cannot(
    voices: tuple[Voice, ...], asked: str, language: str, speaks: str
) -> None:
    chosen = voice_for(voices, asked, language)
    assert chosen is not None
    assert chosen.id == speaks


def test_an_unknown_voice_has_no_stand_in() -> None:
    assert voice_for((JOE,), "nobody", "en") is None


async def rates_hz(router: VoiceRouter, voice: str, language: str) -> set[int]:
    async with aclosing(router.synthesize(SpeechRequest("Hello there.", voice, language))) as chunks:
        return {chunk.sample_rate_hz async for chunk in chunks}


async def test_each_request_goes_to_the_engine_of_its_voice() -> None:
    human, machine = ScriptedSynthesizer((JOE, MEI)), ScriptedSynthesizer((ROBOT,))
    router = VoiceRouter((human, machine))
    assert [voice.id for voice in router.voices()] == ["joe", "mei", "robot"]
    with capture_logs() as logs:
        assert await rates_hz(router, "joe", "en") == {22_050}
        assert await rates_hz(router, "joe", "zh") == {24_000}
        assert await rates_hz(router, "joe", "fr") == {16_000}
        assert await rates_hz(router, "joe", "fr") == {16_000}
    assert [request.voice for request in human.requests] == ["joe", "mei"]
    assert [request.voice for request in machine.requests] == ["robot", "robot"]
    assert [(entry["stand_in"], entry["last_resort"]) for entry in logs] == [("mei", False), ("robot", True)]


async def test_an_engines_failure_comes_through() -> None:
    engine = ScriptedSynthesizer((JOE,))
    engine.fail_next(EngineUnavailable("gone", engine="tts"))
    with pytest.raises(EngineUnavailable, match="gone"):
        await rates_hz(VoiceRouter((engine,)), "joe", "en")


async def test_an_unknown_voice_is_refused_with_all_there_are() -> None:
    router = VoiceRouter((ScriptedSynthesizer((JOE,)), ScriptedSynthesizer((ROBOT,))))
    with pytest.raises(EngineRejected, match="'nobody'; choose one of: joe, robot"):
        await rates_hz(router, "nobody", "en")


def test_two_voices_of_one_name_are_refused_at_start() -> None:
    with pytest.raises(ConfigurationError, match="Two voices are called 'joe'"):
        VoiceRouter((ScriptedSynthesizer((JOE,)), ScriptedSynthesizer((JOE,))))
