"""A load test against the real server with scripted engines: spoken and typed, and a server that is full."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from tests.app.running import RunningApp, running, scripted
from typer.testing import CliRunner, Result

from duolog.loadtest.load_command import loadtest

pytestmark = [pytest.mark.real, pytest.mark.slow]

application = typer.Typer()
application.command()(loadtest)

BRISK = """
turns: [3, 3]
says: ["Where is it?", "I do not know."]
mix: {talk: 3, barge_in: 3, think: 1, silence: 1, noise: 1}
pacing: {lead_s: 0.3, gap_s: [1.6, 2.0], barge_in_after_s: 1.2, quiet_s: 0.8}
"""
LINES = 3


@pytest.fixture(scope="module")
def server() -> Iterator[RunningApp]:
    with running(scripted(max_calls=LINES)) as house:
        yield house
        assert house.failures() == []


def run(server: RunningApp, folder: Path, *more: str) -> tuple[Result, Any]:
    profile = folder / "brisk.yaml"
    profile.write_text(BRISK)
    arguments = [str(profile), "--url", f"ws://{server.address}", "--out", str(folder), *more]
    result = CliRunner().invoke(application, arguments)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result, json.loads((folder / "report.json").read_text())


def test_spoken_turns(server: RunningApp, tmp_path: Path) -> None:
    result, report = run(server, tmp_path, "--calls", "2", "--seconds", "10")
    assert result.exit_code == 0, result.output
    figures = report["figures"]
    assert figures["answered"] > 0
    assert figures["phantoms"] == 0
    assert figures["failed"] == {}
    assert {"endpoint", "transcript", "first_token", "heard"} <= set(figures["stages_ms"])
    assert all(turn["latency_ms"] >= 0 for turn in report["turns"] if "latency_ms" in turn)
    assert report["server"]["speculations"]["used"] > 0
    assert report["server"]["computed_tokens"] > 0
    assert report["server"]["memory_mib"][0] > 10
    assert len(report["server_samples"]) > 3


def test_typed_turns(server: RunningApp, tmp_path: Path) -> None:
    result, report = run(server, tmp_path, "--text", "--calls", "2", "--seconds", "4")
    assert result.exit_code == 0, result.output
    figures = report["figures"]
    assert figures["answered"] > 0
    assert figures["failed"] == {}
    assert list(figures["latency_by_kind_ms"]) == ["typed"]


def test_a_full_server_refuses_and_says_so(server: RunningApp, tmp_path: Path) -> None:
    result, report = run(server, tmp_path, "--text", "--calls", "12", "--seconds", "3")
    assert result.exit_code == 0, result.output
    figures = report["figures"]
    assert figures["refused"]["session_limit_reached"] > 0
    assert figures["failed"] == {}
    assert figures["told_ms"]["count"] == figures["refused"]["session_limit_reached"]
    assert report["server"]["refused"]["full"] >= figures["refused"]["session_limit_reached"]
