"""`duolog up` as a whole, with stand-in children in a process of its own."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.processes.conftest import is_alive, read_pid, wait_for

from duolog.ports.errors import ConfigurationError
from duolog.processes.port_claims import PortClaim, check_ports

pytestmark = [pytest.mark.real, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import sys, pathlib, anyio
from dataclasses import replace
from duolog.processes.child import ChildSpec
from duolog.processes.up import up
from duolog.settings import *
folder, port = pathlib.Path(sys.argv[1]), int(sys.argv[2])
settings = Settings(
    server=ServerSettings(port=port), llm=LlmSettings(base_url="http://elsewhere/v1"),
    store=StoreSettings(url="redis://elsewhere"), logging=LoggingSettings(folder=folder / "logs"),
)
code = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(600)"
async def ready():
    marker = folder / "server.pid"
    return None if marker.exists() and marker.read_text() else {}
spec = ChildSpec("server", (sys.executable, "-c", code, str(folder / "server.pid")), ready)
anyio.run(up, settings, [spec], lambda line: print(line, flush=True))
print("torch" in sys.modules)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_everything_and_leaves_no_process(
    tmp_path: Path, free_port: int, number: signal.Signals
) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path), str(free_port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as running:
        assert running.stdout
        lines: list[str] = []
        while not any(line.startswith("Duolog is ready") for line in lines):
            lines.append(running.stdout.readline())
            assert lines[-1], f"ended early: {lines}"
        running.send_signal(number)
        lines += running.stdout.readlines()

    assert running.returncode == 0
    assert lines[-1] == "False\n", "the supervisor must not import torch"
    assert f"http://127.0.0.1:{free_port}" in "".join(lines)
    assert not is_alive(read_pid(tmp_path, "server"))


def test_nothing_is_left_when_the_supervisor_itself_is_killed(tmp_path: Path, free_port: int) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path), str(free_port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=ROOT) as running:
        assert wait_for(lambda: read_pid(tmp_path, "server") != 0)
        running.kill()
    assert wait_for(lambda: not is_alive(read_pid(tmp_path, "server")))


def test_a_taken_port_is_named_with_its_setting_and_its_owner() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigurationError, match=rf"port {port} \(`llm.port`\) is taken by `.*` \(process \d+\)"):
            check_ports([PortClaim("llm.port", "127.0.0.1", port)])


def test_a_port_that_may_not_be_had_says_so() -> None:
    with pytest.raises(ConfigurationError, match=r"cannot listen on 192\.0\.2\.1:8000 .*change `server.port`"):
        check_ports([PortClaim("server.port", "192.0.2.1", 8000)])


def test_free_ports_pass(free_port: int) -> None:
    check_ports([PortClaim("server.port", "127.0.0.1", free_port)])
