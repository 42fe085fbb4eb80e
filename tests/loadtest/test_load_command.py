"""`duolog loadtest` over a real socket against a small server: its report, its sentences and its exit status."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import typer
from anyio.from_thread import start_blocking_portal
from tests.loadtest.fake_server import FakeServer, Manner, fake_server
from typer.testing import CliRunner, Result

from duolog.loadtest.failures import AudioUnreadable, CallFailed, CallRefused
from duolog.loadtest.load_command import loadtest
from duolog.ports.errors import ConfigurationError

pytestmark = [pytest.mark.real, pytest.mark.slow]

application = typer.Typer()
application.command()(loadtest)

BRISK = """
name: brisk
turns: [2, 2]
mix: {talk: 4, barge_in: 0, think: 0, silence: 1, noise: 0}
pacing: {lead_s: 0.2, gap_s: [0.5, 0.6], quiet_s: 0.2}
load:
  - {name: soak, seconds: 3, calls: 3}
search: {first_calls: 1, most_calls: 2, step_s: 2}
"""


@contextmanager
def listening(manner: Manner) -> Iterator[FakeServer]:
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(fake_server(manner)) as server:
        yield server


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A profile and a recording of a quarter of a second."""
    times = np.arange(4_000) / 16_000
    (tmp_path / "wavs").mkdir()
    soundfile.write(tmp_path / "wavs" / "question.wav", 0.5 * np.sin(2 * np.pi * 300 * times), 16_000)
    (tmp_path / "brisk.yaml").write_text(BRISK)
    return tmp_path


def run(folder: Path, url: str, *more: str) -> Result:
    arguments = [str(folder / "brisk.yaml"), "--url", url, "--wavs", str(folder / "wavs"), "--out", str(folder / "out")]
    return CliRunner().invoke(application, [*arguments, *more])


def report_in(folder: Path) -> Any:
    return json.loads((folder / "out" / "report.json").read_text())


def figures_in(folder: Path) -> Any:
    return report_in(folder)["figures"]


def test_calls_are_measured_and_reported(folder: Path) -> None:
    with listening(Manner.ANSWERS) as server:
        result = run(folder, server.url)
    assert result.exit_code == 0, result.output
    figures = figures_in(folder)
    assert figures["answered"] == figures["turns"]
    assert figures["turns"] >= 3
    assert "soak (3 at once, 3 s)" in result.stdout
    assert "the server shows no /metrics" in result.stdout
    assert (folder / "out" / "report.html").read_text().startswith("<!doctype html>")


def test_typed_messages(folder: Path) -> None:
    with listening(Manner.ANSWERS) as server:
        result = run(folder, server.url, "--text", "--calls", "2", "--seconds", "1.5")
    assert result.exit_code == 0, result.output
    assert server.sequences == []
    assert server.of_type("duolog.playout.report") == []
    assert server.of_type("session.update")[0]["session"] == {"type": "realtime", "output_modalities": ["text"]}
    assert report_in(folder)["profile"]["mode"] == "text"


def test_a_search(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("duolog.loadtest.load_session.REST_S", 0.1)
    with listening(Manner.ANSWERS) as server:
        result = run(folder, server.url, "--search", "p99=5000")
    assert result.exit_code == 0, result.output
    assert "most calls at once with p99 ≤ 5,000 ms: 2; the profile's bounds ended the search" in result.stdout


def test_a_server_that_answers_nobody(folder: Path) -> None:
    with listening(Manner.KEEPS_SILENT) as server:
        result = run(folder, server.url, "--seconds", "1.5")
    assert result.exit_code == 1
    assert figures_in(folder)["error_rate"] == 1
    assert "no answer came" in result.stdout


@pytest.mark.parametrize(("manner", "code"), [(Manner.REFUSES, "http_503"), (Manner.DECLINES, "session_limit_reached")])
def test_refused_calls_are_counted_and_are_no_error_of_the_tool(folder: Path, manner: Manner, code: str) -> None:
    with listening(manner) as server:
        result = run(folder, server.url, "--seconds", "1.5")
    assert result.exit_code == 1
    assert list(figures_in(folder)["refused"]) == [code]
    assert figures_in(folder)["error_rate"] == 0
    assert f"The server refused a first call ({code})" in result.stdout


def test_calls_that_break_off(folder: Path) -> None:
    with listening(Manner.HANGS_UP) as server:
        result = run(folder, server.url, "--seconds", "1.5")
    assert result.exit_code == 1
    assert list(figures_in(folder)["failed"]) == ["The connection broke off: out of order (code 1011)."]


def test_a_wrong_key(folder: Path) -> None:
    with listening(Manner.WANTS_KEY) as server:
        result = run(folder, server.url)
    assert isinstance(result.exception, CallRefused)
    assert "401 Unauthorized" in str(result.exception)
    assert "The API key is missing or wrong." in str(result.exception)


def test_nobody_there(folder: Path) -> None:
    result = run(folder, "ws://127.0.0.1:9")
    assert isinstance(result.exception, CallFailed)
    assert "No server answers at ws://127.0.0.1:9" in str(result.exception)


def test_no_recordings(folder: Path) -> None:
    result = run(folder, "ws://127.0.0.1:9", "--wavs", str(folder / "out"))
    assert isinstance(result.exception, AudioUnreadable)
    assert "There is no folder" in str(result.exception)
    (folder / "out").mkdir()
    assert "holds no recordings" in str(run(folder, "ws://127.0.0.1:9", "--wavs", str(folder / "out")).exception)


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (("--search", "fast"), "is no goal"),
        (("--seconds", "90000"), "shorten the one or raise the other"),
    ],
)
def test_what_cannot_be_done(folder: Path, more: tuple[str, ...], sentence: str) -> None:
    result = run(folder, "ws://127.0.0.1:9", *more)
    assert isinstance(result.exception, ConfigurationError)
    assert sentence in str(result.exception)


def test_a_report_that_cannot_be_written(folder: Path) -> None:
    (folder / "out").write_text("in the way")
    with listening(Manner.ANSWERS) as server:
        result = run(folder, server.url, "--seconds", "1", "--calls", "1")
    assert isinstance(result.exception, ConfigurationError)
    assert "could not be written" in str(result.exception)


def test_ctrl_c_ends_it_with_a_report(folder: Path) -> None:
    (folder / "brisk.yaml").write_text(BRISK.replace("seconds: 3, calls: 3", "seconds: 60, calls: 3"))
    timer = threading.Timer(5, os.kill, (os.getpid(), signal.SIGINT))
    with listening(Manner.ANSWERS) as server:
        timer.start()
        result = run(folder, server.url)
        timer.join()
    assert result.exit_code == 130, result.output
    assert "Stopping: the calls hang up, the report follows." in result.stderr
    assert report_in(folder)["stopped"] is True
    assert figures_in(folder)["answered"] > 0
    assert (folder / "out" / "report.html").is_file()


def test_espeak_speaks_where_there_are_no_recordings(folder: Path) -> None:
    with listening(Manner.ANSWERS) as server:
        arguments = [str(folder / "brisk.yaml"), "--url", server.url, "--out", str(folder / "out")]
        result = CliRunner().invoke(application, [*arguments, "--calls", "2", "--seconds", "4"])
    assert result.exit_code == 0, result.output
    assert len(server.sequences) > 100
