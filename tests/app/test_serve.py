"""`duolog serve` as a process: what is wrong is one sentence and status 2; a signal says goodbye to open calls."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import anyio
import httpx
import pytest
from structlog.testing import capture_logs
from tests.app.raw_client import calling, send, typed, until
from tests.app.running import NOWHERE, ROOT, eventually, scripted
from tests.llm_server import Server, answer, good_answer, serving
from tests.services import free_port
from websockets.exceptions import ConnectionClosed

from duolog.app import serve
from duolog.models.store import MEND
from duolog.ports.errors import EngineUnavailable

pytestmark = [pytest.mark.real, pytest.mark.slow]

SCRIPTED = {
    "DUOLOG__ASR__ENGINE": "scripted",
    "DUOLOG__VAD__ENGINE": "scripted",
    "DUOLOG__TTS__ENGINE": "scripted",
    "DUOLOG__LLM__ENGINE": "scripted",
    "DUOLOG__STORE__URL": NOWHERE,
}
COMMAND = [sys.executable, "-m", "duolog", "serve"]
START_S = 60.0
MODELS = ROOT / ".duolog" / "models"


def refused(**environment: str) -> str:
    """The one sentence on stderr of a server that does not start."""
    given = {name.upper(): value for name, value in environment.items()}
    port = {"DUOLOG__SERVER__PORT": str(free_port())}
    done = subprocess.run(
        COMMAND,
        env={**os.environ, **SCRIPTED, **port, **given},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    *_, sentence = done.stderr.splitlines()
    assert sentence.startswith("duolog: ")
    assert "Traceback" not in done.stderr
    return sentence.removeprefix("duolog: ")


def test_a_persona_with_a_wrong_key(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "configs" / "personas", tmp_path / "personas")
    wrong = tmp_path / "personas" / "pip.yaml"
    wrong.write_text("greting: Hi!\n" + wrong.read_text())
    sentence = refused(duolog__personas__folder=str(tmp_path / "personas"))
    assert sentence.startswith(f"{wrong}, line 1: unknown key `greting`; did you mean `greeting`?")


def test_no_personas_at_all(tmp_path: Path) -> None:
    assert str(tmp_path) in refused(duolog__personas__folder=str(tmp_path))


def test_a_missing_model(tmp_path: Path) -> None:
    sentence = refused(duolog__asr__engine="model", duolog__models_dir=str(tmp_path))
    assert sentence == f"Model `whisper-base` is absent in {tmp_path}; {MEND} and start again."


@pytest.mark.parametrize(("engine", "model"), [("asr", "whisper-base"), ("tts", "joe")])
def test_a_damaged_model(tmp_path: Path, engine: str, model: str) -> None:
    if not (MODELS / model).is_dir():
        pytest.skip(f"no model in .duolog/models/{model}; run `duolog models prepare`")
    shutil.copytree(MODELS / model, tmp_path / model, copy_function=os.symlink)
    largest = max((tmp_path / model).iterdir(), key=lambda path: path.stat().st_size)
    largest.unlink()
    largest.write_bytes(b"cut off")
    sentence = refused(**{f"duolog__{engine}__engine": "model"}, duolog__models_dir=str(tmp_path))
    assert sentence == f"Model `{model}` is damaged in {tmp_path}; {MEND} and start again."


def test_a_model_that_does_not_load(tmp_path: Path) -> None:
    for name in ("model.bin", "config.json", "tokenizer.json"):
        (tmp_path / name).write_text("damaged")
    sentence = refused(duolog__asr__engine="model", duolog__asr__model=str(tmp_path))
    assert "cannot be loaded" in sentence
    assert "duolog models prepare" in sentence


async def test_a_model_without_a_tokenizer(tmp_path: Path) -> None:
    card = answer(200, '{"data": [{"id": "tiny", "max_model_len": 2048}]}')
    async with serving(Server(good_answer("Hello."), card=card)) as llm:
        environment = {
            "duolog__llm__engine": "openai",
            "duolog__llm__port": str(llm.port),
            "duolog__llm__served_name": "tiny",
            "duolog__llm__model": str(tmp_path),
        }
        sentence = await anyio.to_thread.run_sync(lambda: refused(**environment))
    assert "tokenizer" in sentence


async def test_a_server_whose_service_fails_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail() -> None:
        await anyio.sleep(0.2)
        raise RuntimeError("out of order")

    monkeypatch.setattr("duolog.app.metrics.watch_loop_lag", fail)
    with capture_logs() as logs, anyio.fail_after(20), pytest.raises(EngineUnavailable, match="its log says why"):
        await serve(scripted(port=free_port()))
    assert "a service of the server failed" in [entry["event"] for entry in logs]


def test_a_taken_port() -> None:
    with running_process() as (port, _):
        sentence = refused(duolog__server__port=str(port))
        assert f"port {port} (`server.port`) is taken by " in sentence
        assert "serve" in sentence


async def test_a_signal_says_goodbye_to_open_calls() -> None:
    with running_process() as (port, process):
        url = f"ws://127.0.0.1:{port}/v1/realtime"
        await eventually(lambda: _ready(port))
        async with calling(url) as connection:
            await send(connection, *typed("Tell me everything there is to know about the sea."))
            await until(connection, "duolog.speech.started")
            process.send_signal(signal.SIGTERM)
            error = (await until(connection, "error"))["error"]
            with pytest.raises(ConnectionClosed):
                await connection.recv()
        assert error["code"] == "server_shutting_down"
        assert (connection.close_code, connection.close_reason) == (1012, error["message"])
        assert await anyio.to_thread.run_sync(process.wait, 10) == 0


@contextmanager
def running_process() -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """A server with scripted engines that answers."""
    port = free_port()
    environment = {**os.environ, **SCRIPTED, "DUOLOG__SERVER__PORT": str(port)}
    with subprocess.Popen(COMMAND, env=environment, cwd=ROOT, stderr=subprocess.DEVNULL) as process:
        try:
            _until_alive(port)
            yield port, process
        finally:
            process.kill()


def _until_alive(port: int) -> None:
    give_up_at = time.monotonic() + START_S
    while time.monotonic() < give_up_at:
        with suppress(httpx.HTTPError):
            httpx.get(f"http://127.0.0.1:{port}/healthz")
            return
        time.sleep(0.1)
    pytest.fail(f"no server came up within {START_S:g} s")


def _ready(port: int) -> bool:
    return httpx.get(f"http://127.0.0.1:{port}/readyz").status_code == httpx.codes.OK
