"""`duolog call` over a real socket against a small server: what it prints, writes and how it ends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import soundfile
import typer
from anyio.from_thread import start_blocking_portal
from tests.loadtest.fake_server import ANSWER, RATE_HZ, TRANSCRIPT, FakeServer, Manner, fake_server
from typer.testing import CliRunner, Result

from duolog.loadtest.call_command import call

pytestmark = [pytest.mark.real, pytest.mark.slow]

application = typer.Typer()
application.command()(call)


@contextmanager
def listening(manner: Manner) -> Iterator[FakeServer]:
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(fake_server(manner)) as server:
        yield server


def run(*arguments: str) -> Result:
    return CliRunner().invoke(application, arguments)


@pytest.fixture
def question(tmp_path: Path) -> Path:
    times = np.arange(4_800) / 16_000
    path = tmp_path / "question.wav"
    soundfile.write(path, 0.5 * np.sin(2 * np.pi * 300 * times), 16_000)
    return path


def test_a_call_of_two_turns(question: Path, tmp_path: Path) -> None:
    out = tmp_path / "answer.wav"
    with listening(Manner.ANSWERS) as server:
        result = run(
            str(question), str(question), "--url", server.url, "--json", "--out", str(out), "--persona", "orla"
        )
    assert result.exit_code == 0, result.stderr
    report = json.loads(result.stdout)
    assert [turn["transcript"] for turn in report["turns"]] == [TRANSCRIPT, TRANSCRIPT]
    assert [turn["answer"] for turn in report["turns"]] == [ANSWER, ANSWER]
    assert all(turn["timeline"]["heard_ms"] > 0 for turn in report["turns"])
    assert server.query == "/v1/realtime?model=orla&duolog=1"
    assert server.sequences == list(range(len(server.sequences)))
    sound, rate_hz = soundfile.read(out)
    assert rate_hz == RATE_HZ
    assert np.abs(sound).max() > 0.2


def test_what_was_played_is_reported_to_its_end(question: Path) -> None:
    with listening(Manner.ANSWERS) as server:
        assert run(str(question), "--url", server.url).exit_code == 0
    reports = server.of_type("duolog.playout.report")
    assert reports[-1] == {"type": "duolog.playout.report", "generation": 1, "played_samples": 4_800, "ended": True}


def test_captions_and_a_waterfall_are_printed(question: Path) -> None:
    with listening(Manner.ANSWERS) as server:
        result = run(str(question), "--url", server.url)
    assert "you: how are" in result.stdout
    assert f"heard: {TRANSCRIPT}" in result.stdout
    assert f"answer: {ANSWER}" in result.stdout
    assert "turn over" in result.stdout
    assert "100 ms of silence by design" in result.stdout


def test_a_flush_is_obeyed_and_reported(question: Path) -> None:
    with listening(Manner.FLUSHES) as server:
        result = run(str(question), "--url", server.url, "--json")
    assert result.exit_code == 0, result.stderr
    ended = [report for report in server.of_type("duolog.playout.report") if report["ended"]]
    assert [report["generation"] for report in ended] == [1, 2]
    assert isinstance(ended[0]["played_samples"], int)
    assert ended[0]["played_samples"] < 30 * RATE_HZ
    assert json.loads(result.stdout)["turns"][0]["answer_ms"] == 200


def test_a_typed_message_is_answered() -> None:
    with listening(Manner.ANSWERS) as server:
        result = run("--typed", "Hello there", "--url", server.url, "--json")
    assert result.exit_code == 0, result.stderr
    [turn] = json.loads(result.stdout)["turns"]
    assert (turn["transcript"], turn["answer"]) == ("Hello there", ANSWER)
    [item] = server.of_type("conversation.item.create")
    assert item["item"] == {
        "type": "message",
        "role": "user",
        "content": [{"type": "input_text", "text": "Hello there"}],
    }


@pytest.mark.parametrize(
    ("manner", "sentence"),
    [
        (Manner.KEEPS_SILENT, "No answer to question.wav came within 1 s; it recognised no words. It said: The recogn"),
        (Manner.HANGS_UP, "The connection broke off: out of order (code 1011)."),
        (Manner.FAILS, "The answer to question.wav failed: The model is away."),
        (Manner.REFUSES, "refused the call: 503 Service Unavailable. All lines are busy; try again in 5 s."),
        (Manner.DECLINES, "The server refused the call: All lines are busy."),
        (Manner.TALKS_NONSENSE, "The server sent something that is not our wire: an event is a JSON object."),
    ],
)
def test_no_answer_is_one_clear_sentence(question: Path, manner: Manner, sentence: str) -> None:
    with listening(manner) as server:
        result = run(str(question), "--url", server.url, "--timeout", "1")
    assert result.exit_code == 1
    assert sentence in result.stderr
    assert "Traceback" not in result.output


def test_nobody_there(question: Path) -> None:
    result = run(str(question), "--url", "ws://127.0.0.1:9")
    assert result.exit_code == 1
    assert "No server answers at ws://127.0.0.1:9" in result.stderr


def test_a_server_that_is_no_duolog(question: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("duolog.loadtest.wire_client.HANDSHAKE_TIMEOUT_S", 0.3)
    with listening(Manner.SAYS_NOTHING) as server:
        result = run(str(question), "--url", server.url)
    assert result.exit_code == 1
    assert "is it a Duolog server?" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["absent.wav"], "There is no file absent.wav"),
        ([], "There is nothing to say"),
        (["--typed", "x", "--url", "ftp://nowhere"], "is no address of a server"),
    ],
)
def test_what_cannot_be_placed(arguments: list[str], sentence: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 1
    assert sentence in result.stderr


def test_a_file_that_is_no_sound(tmp_path: Path) -> None:
    path = tmp_path / "notes.wav"
    path.write_text("not sound at all")
    result = run(str(path))
    assert result.exit_code == 1
    assert "could not be read as sound" in result.stderr
