"""The page in real Chromium against the real server: a recorded utterance as microphone, real models behind it."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from tests.app.running import ROOT, RunningApp, running, scripted
from tests.services import ValkeyServer, VllmServer

from duolog.loadtest.audio_files import read_speech
from duolog.settings import AsrSettings, LlmSettings, Profile, Settings, TtsSettings, VadSettings

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.corpus]

UTTERANCE = "en/ms_whatstheweatherlike.wav"
RATE_HZ = 16_000
PATIENCE_S = 90
DRIVER = ROOT / "web" / "test" / "drive-call.js"


@pytest.fixture(scope="module")
def server(valkey_server: ValkeyServer, vllm_server: VllmServer) -> Iterator[RunningApp]:
    """Whisper, Silero, Coqui, vLLM and Valkey."""
    settings: Settings = replace(
        scripted(store=valkey_server.url, llm=LlmSettings(base_url=vllm_server.base_url, model=vllm_server.model)),
        profile=Profile.TINY,
        models_dir=ROOT / ".duolog" / "models",
        asr=AsrSettings(),
        vad=VadSettings(),
        tts=TtsSettings(),
    )
    with running(settings, patience_s=120) as application:
        yield application


@pytest.fixture
def microphone(corpus: Path, tmp_path: Path) -> Path:
    """One second of quiet, the utterance, and quiet for the answer."""
    speech = read_speech(corpus / UTTERANCE)
    quiet = np.zeros(RATE_HZ, np.int16)
    file = tmp_path / "microphone.wav"
    soundfile.write(file, np.concatenate([quiet, speech, np.tile(quiet, 60)]), RATE_HZ, subtype="PCM_16")
    return file


def drive(server: RunningApp, microphone: Path, out: Path) -> dict[str, Any]:
    """Place a call from the page; returns what the page knows of it."""
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    command = ["node", str(DRIVER), "--url", server.url, "--wav", str(microphone), "--seconds", str(PATIENCE_S)]
    done = subprocess.run(
        [*command, "--out", str(out)], capture_output=True, text=True, timeout=PATIENCE_S + 60, check=False
    )
    if "no Chromium" in done.stderr:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    record: dict[str, Any] = json.loads(out.read_text())
    return record


def test_a_call_from_the_page(server: RunningApp, microphone: Path, tmp_path: Path) -> None:
    """Captions, the answer's words, sound that is not silence, and the overlay's waterfall: the driver checks all."""
    record = drive(server, microphone, tmp_path / "call.json")
    said = " ".join(line["text"] for line in record["lines"] if line["role"] == "user").lower()
    answered = " ".join(line["text"] for line in record["lines"] if line["role"] == "assistant")
    assert "weather" in said
    assert len(answered.split()) >= 3
    turn = record["turns"][0]
    assert turn["renderedMs"] > 0
    assert record["counts"]["playout"]["energy"] > 0.01
