"""A whole call with real engines: recorded speech, Silero, Whisper, vLLM, Coqui and Valkey."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
import soundfile
import typer
from tests.app.running import ROOT, RunningApp, running, scripted
from tests.services import ValkeyServer, VllmServer
from typer.testing import CliRunner, Result

from duolog.loadtest.call_command import call
from duolog.settings import AsrSettings, LlmSettings, Profile, TtsSettings, VadSettings

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.corpus]

MODELS = ROOT / ".duolog" / "models"
LOAD_S = 120.0
"""For all weights, on a machine that is busy."""
MARKS = ("endpoint_ms", "transcript_ms", "first_token_ms", "first_phrase_ms", "first_audio_sent_ms", "heard_ms")

application = typer.Typer()
application.command()(call)


@pytest.fixture(scope="module")
def server(vllm_server: VllmServer, valkey_server: ValkeyServer) -> Iterator[RunningApp]:
    for model in ("whisper-base", "joe"):
        if not (MODELS / model).is_dir():
            pytest.skip(f"no model in .duolog/models/{model}; run `duolog models prepare --profile tiny`")
    port = urlsplit(vllm_server.base_url).port
    assert port is not None
    llm = LlmSettings(port=port, served_name=vllm_server.model, max_model_len=vllm_server.context_tokens)
    settings = replace(
        scripted(store=valkey_server.url, llm=llm),
        profile=Profile.TINY,
        models_dir=MODELS,
        asr=AsrSettings(),
        vad=VadSettings(),
        tts=TtsSettings(),
    )
    with running(settings, patience_s=LOAD_S) as house:
        yield house
        assert house.failures() == []


def run(server: RunningApp, *arguments: str) -> Result:
    return CliRunner().invoke(application, [*arguments, "--url", f"ws://{server.address}", "--json"])


def test_two_turns_of_recorded_speech(server: RunningApp, corpus: Path, tmp_path: Path) -> None:
    said, out = corpus / "en" / "librivox_0880.wav", tmp_path / "answer.wav"
    result = run(server, str(said), str(said), "--out", str(out), "--timeout", "60")
    assert result.exit_code == 0, result.stderr
    turns = json.loads(result.stdout)["turns"]
    for turn in turns:
        assert "young man" in turn["transcript"].lower(), turn
        assert turn["answer"].split(), turn
        assert turn["answer_ms"] > 200, turn
        assert all(turn["timeline"][mark] is not None for mark in MARKS), turn["timeline"]
    sound, rate_hz = soundfile.read(out)
    assert rate_hz == 24_000
    assert np.sqrt(np.mean(np.square(sound))) > 0.01


def test_noise_is_no_question(server: RunningApp, tmp_path: Path) -> None:
    hiss = tmp_path / "hiss.wav"
    soundfile.write(hiss, np.random.default_rng(3).standard_normal(32_000) * 0.05, 16_000)
    result = run(server, str(hiss), "--timeout", "3")
    assert result.exit_code == 1
    assert "it recognised no words" in result.stderr
