"""Stand-in children. They are started from asyncio only, as `Child.start` asks for."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from duolog.processes.child import ChildSpec


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


MakeSpec = Callable[..., ChildSpec]

STAND_IN = """
import os, pathlib, signal, sys, time
folder, name = pathlib.Path(sys.argv[1]), sys.argv[2]
print("hello from", name, flush=True)
starts = folder / f"{name}.starts"
starts.write_text(starts.read_text() + "x" if starts.exists() else "x")
(folder / f"{name}.pid").write_text(str(os.getpid()))
"""
STAY = "time.sleep(600)\n"


@pytest.fixture
def make_spec(tmp_path: Path) -> Iterator[MakeSpec]:
    """A stand-in child: notes its start and pid in tmp_path, runs `code`; ready once `NAME.ready` exists."""
    names: list[str] = []

    def make(
        name: str,
        code: str = "",
        *,
        ready: bool = True,
        after: tuple[str, ...] = (),
        provided: Mapping[str, tuple[str, ...]] | None = None,
        waits_for_part: str = "a file",
    ) -> ChildSpec:
        names.append(name)
        marker = tmp_path / f"{name}.ready"
        announce = f"(folder / '{name}.ready').touch()\n" if ready else ""
        body = STAND_IN + announce + (code or STAY)

        async def waits_for() -> Mapping[str, str] | None:
            return None if marker.exists() else {waits_for_part: "is it running?"}

        return ChildSpec(
            name, (sys.executable, "-c", body, str(tmp_path), name), waits_for, after=after, provided=provided or {}
        )

    yield make
    for name in names:
        pid = read_pid(tmp_path, name)
        if pid and is_alive(pid):
            os.kill(pid, signal.SIGKILL)
            pytest.fail(f"the test left the child {name} behind")


def read_pid(folder: Path, name: str) -> int:
    """Process id of the stand-in, 0 where it has not started yet."""
    try:
        return int((folder / f"{name}.pid").read_text() or "0")
    except FileNotFoundError:
        return 0


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def wait_for(condition: Callable[[], bool], limit_s: float = 20.0) -> bool:
    """Poll until the condition holds; for tests outside an event loop."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return False
