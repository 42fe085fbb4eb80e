"""`duolog call` against the real application: turns, exit codes, and a session that is taken up again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import anyio
import numpy as np
import pytest
import soundfile
import typer
from tests.app.raw_client import history, talk_and_vanish
from tests.app.running import RunningApp, running, scripted
from tests.services import ValkeyServer
from typer.testing import CliRunner, Result

from duolog.loadtest.call_command import call
from duolog.loadtest.wire_client import CallOptions, Said, place_call
from duolog.settings import LlmSettings

pytestmark = [pytest.mark.real, pytest.mark.slow]

application = typer.Typer()
application.command()(call)
MARKS = {"endpoint_ms", "transcript_ms", "first_token_ms", "first_audio_sent_ms", "heard_ms"}


def run(server: RunningApp, *arguments: str) -> Result:
    return CliRunner().invoke(application, [*arguments, "--url", f"ws://{server.address}"])


@pytest.fixture(scope="module")
def question(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("questions") / "question.wav"
    noise = np.random.default_rng(1).standard_normal(12_800) * 0.1
    soundfile.write(path, noise, 16_000)
    return path


def test_two_turns(server: RunningApp, question: Path, tmp_path: Path) -> None:
    out = tmp_path / "answer.wav"
    result = run(server, str(question), str(question), "--json", "--out", str(out))
    assert result.exit_code == 0, result.stderr
    report = json.loads(result.stdout)
    assert set(report) == {"persona", "session", "turns"}
    assert report["persona"] == "ava"
    assert [turn["said"] for turn in report["turns"]] == ["question.wav", "question.wav"]
    for turn in report["turns"]:
        assert turn["answer"] == f"You said: {turn['transcript']} And I heard every word of it."
        assert turn["answer_ms"] > 1_000
        assert turn["premature_answers"] == 0
        assert all(turn["timeline"][mark] is not None for mark in MARKS), turn["timeline"]
    sound, rate_hz = soundfile.read(out)
    assert rate_hz == 24_000
    assert len(sound) >= sum(turn["answer_ms"] for turn in report["turns"]) * 24
    assert np.abs(sound).max() > 0.1


def test_the_greeting_is_heard_and_a_typed_message_answered(server: RunningApp) -> None:
    result = run(server, "--greeting", "--typed", "Hello.", "--persona", "orla")
    assert result.exit_code == 0, result.stderr
    assert "answer: You said: Hello." in result.stdout


def test_silence_gets_no_answer_and_status_1(server: RunningApp, tmp_path: Path) -> None:
    path = tmp_path / "silence.wav"
    soundfile.write(path, np.zeros(8_000), 16_000)
    result = run(server, str(path), "--timeout", "1")
    assert result.exit_code == 1
    assert result.stderr == "No answer to silence.wav came within 1 s; it recognised no words.\n"


def test_over_the_cap_is_one_sentence_and_status_1(valkey_server: ValkeyServer) -> None:
    with running(scripted(store=valkey_server.url, max_calls=1)) as server:

        async def two_calls() -> Result:
            async with place_call(CallOptions(f"ws://{server.address}")):
                return await anyio.to_thread.run_sync(run, server, "--typed", "Hello.")

        result = anyio.run(two_calls)
        assert result.exit_code == 1
        assert "The one line of this server is taken. Try again in 10 s." in result.stderr
        assert run(server, "--typed", "Hello.").exit_code == 0


def test_a_server_that_is_not_ready_says_what_it_waits_for() -> None:
    settings = scripted()
    waiting = LlmSettings(base_url="http://127.0.0.1:9/v1", model="tiny")
    with running(replace(settings, llm=waiting), ready=False) as server:
        result = run(server, "--typed", "Hello.")
        assert result.exit_code == 1
        assert "The server is not ready yet: llm: " in result.stderr
        assert "127.0.0.1:9" in result.stderr


def test_a_dropped_call_goes_on_where_it_was(server: RunningApp) -> None:
    session_id = anyio.run(talk_and_vanish, server.socket_url)
    result = run(server, "--typed", "And then?", "--session", session_id, "--json")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["session"] == session_id
    assert anyio.run(history, server.socket_url, session_id) == [
        ("user", "Good morning."),
        ("assistant", "You said: Good morning. And I heard every word of it."),
        ("user", "And then?"),
        ("assistant", "You said: And then? And I heard every word of it."),
    ]


def test_a_caller_brings_what_was_said_before(server: RunningApp) -> None:
    before = (Said("user", "Good evening."), Said("assistant", "Good evening to you."))

    async def talk() -> str:
        options = CallOptions(server.socket_url, history=before, microphone=False)
        async with place_call(options) as call:
            await call.type_text("And then?")
            return call.log.session_id

    session_id = anyio.run(talk)
    assert anyio.run(history, server.socket_url, session_id)[:3] == [
        ("user", "Good evening."),
        ("assistant", "Good evening to you."),
        ("user", "And then?"),
    ]


def test_another_server_takes_up_a_dropped_call(server: RunningApp, valkey_server: ValkeyServer) -> None:
    session_id = anyio.run(talk_and_vanish, server.socket_url)
    anyio.run(server.until_no_call)
    with running(scripted(store=valkey_server.url)) as other:
        taken_up = anyio.run(history, other.socket_url, session_id)
        assert taken_up[0] == ("user", "Good morning.")
        assert taken_up[1][0] == "assistant"
        assert run(other, "--typed", "And then?", "--session", session_id).exit_code == 0
        assert len(anyio.run(history, other.socket_url, session_id)) == 4


def test_an_unknown_session_is_a_new_call(server: RunningApp) -> None:
    result = run(server, "--typed", "Hello.", "--session", "sess_unknown", "--json")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["session"] != "sess_unknown"
