"""Real services for tests, started as `duolog up` starts them: Valkey and vLLM on free ports of this machine."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from duolog.processes import children
from duolog.processes.child import ChildSpec
from duolog.settings import Compile, LlmSettings, PinSettings, Settings, StoreSettings

TINY_MODEL = Path(__file__).resolve().parents[1] / ".duolog" / "models" / "smollm2-135m"
VALKEY_READY_S = 10.0
VLLM_READY_S = 400.0
STOP_S = 20.0


@dataclass(frozen=True, slots=True)
class VllmServer:
    base_url: str
    """With `/v1`."""
    model: str
    model_dir: Path
    context_tokens: int


class Service:
    """A child process in a process group of its own."""

    def __init__(self, spec: ChildSpec, log_file: Path) -> None:
        self._spec = spec
        self._log_file = log_file
        with log_file.open("ab") as output:
            self._process = subprocess.Popen(
                spec.command,
                env={**os.environ, **spec.environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait_until(self, ready: Callable[[], bool], timeout_s: float) -> None:
        """Fails the test, with the end of the log, where the service dies or takes too long."""
        give_up_at = time.monotonic() + timeout_s
        while not ready():
            if self._process.poll() is not None or time.monotonic() > give_up_at:
                log = self._log_file.read_text(errors="replace")[-3000:]
                pytest.fail(f"{self._spec.name} did not get ready:\n{log}")
            time.sleep(0.1)

    def stop(self) -> None:
        """Ends the whole group; returns when none of it is left."""
        self._signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)
            self._process.wait()
        self._signal(signal.SIGKILL)

    def kill(self) -> None:
        """As a machine that loses power."""
        self._signal(signal.SIGKILL)
        self._process.wait()

    def pause(self) -> None:
        """The service keeps its connections and answers nothing."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            return


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class ValkeyServer:
    """A real server that a test may pause, stop and start again on the same port."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._folder = folder
        self._service: Service | None = None

    def start(self) -> None:
        spec = children.valkey(Settings(store=StoreSettings(port=self.port)))
        self._service = Service(spec, self._folder / "valkey.log")
        self._service.wait_until(self._answers, VALKEY_READY_S)

    def stop(self) -> None:
        if self._service is not None:
            self._service.stop()
            self._service = None

    @contextmanager
    def paused(self) -> Iterator[None]:
        if self._service is None:
            raise RuntimeError("not started")
        self._service.pause()
        try:
            yield
        finally:
            self._service.go_on()

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(16).startswith(b"+PONG")
        except OSError:
            return False


@contextmanager
def running_valkey(folder: Path) -> Iterator[ValkeyServer]:
    server = ValkeyServer(folder)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@contextmanager
def running_vllm(folder: Path) -> Iterator[VllmServer]:
    """vLLM with the tiny model; takes about half a minute to start. Skips the test where the model is absent."""
    if not (TINY_MODEL / "model.safetensors").exists():
        pytest.skip("no model in .duolog/models/smollm2-135m; run `duolog models prepare --profile tiny`")
    llm = LlmSettings(port=free_port(), served_name="tiny", max_model_len=2048, compile=Compile.OFF)
    spec = children.vllm(Settings(llm=llm), str(TINY_MODEL))
    service = Service(spec, folder / "vllm.log")
    root = f"http://127.0.0.1:{llm.port}"
    try:
        service.wait_until(lambda: _http_ok(f"{root}/health"), VLLM_READY_S)
        yield VllmServer(f"{root}/v1", llm.served_name, TINY_MODEL, llm.max_model_len)
    finally:
        service.stop()


@contextmanager
def running_replicas(folder: Path) -> Iterator[tuple[Settings, list[Service]]]:
    """Two vLLMs with the tiny model and small caches, and a Valkey, as the settings say; takes most of a minute."""
    if not (TINY_MODEL / "model.safetensors").exists():
        pytest.skip("no model in .duolog/models/smollm2-135m; run `duolog models prepare --profile tiny`")
    llm = LlmSettings(port=free_port(), replicas=2, model=str(TINY_MODEL), max_model_len=2048, compile=Compile.OFF)
    pins = PinSettings(events_folder=folder / "run")
    with running_valkey(folder) as store:
        settings = Settings(llm=llm, pins=pins, store=StoreSettings(url=store.url))
        services = []
        try:
            for number, port in enumerate(settings.llm_ports):
                spec = children.vllm(settings, str(TINY_MODEL), number)
                services.append(Service(spec, folder / f"vllm-{port}.log"))
            for service, port in zip(services, settings.llm_ports, strict=True):
                health = f"http://127.0.0.1:{port}/health"
                service.wait_until(lambda url=health: _http_ok(url), VLLM_READY_S)  # type: ignore[misc]
            yield settings, services
        finally:
            for service in services:
                service.stop()


def _http_ok(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as response:
            return bool(response.status == 200)
    except OSError:
        return False
