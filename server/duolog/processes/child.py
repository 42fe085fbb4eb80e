"""One child process: how it is started under its leash, where its output goes, how it is stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import anyio
from anyio.abc import Process

LEASH = Path(__file__).with_name("leash.py")
KILL_MARGIN_S = 2.0
"""What the leash gets beyond the grace; only a process that the kernel cannot end keeps it longer."""
TAIL_BYTES = 8_192

Probe = Callable[[], Awaitable[Mapping[str, str] | None]]
"""None once the child can be used; before that what it waits for, part by part with a sentence each, as far as is
known. Never raises for a child that is not there yet."""


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """What to run."""

    name: str
    """Short; in progress lines and as the name of the log file."""
    command: tuple[str, ...]
    waits_for: Probe
    environment: Mapping[str, str] = field(default_factory=dict)
    """Laid over this process's own."""
    takes_long: str = ""
    """Why this start takes longer than the next, where it does; for progress lines."""
    after: tuple[str, ...] = ()
    """Children that must be ready before this one is started."""
    provided: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Parts that its probe names → the children that are them. While these load, what the probe says of it is noise."""


class Child:
    """A running child. Starting and stopping are the supervisor's; nobody else holds one."""

    def __init__(self, process: Process, grace_s: float) -> None:
        self._process = process
        self._grace_s = grace_s

    @classmethod
    async def start(cls, spec: ChildSpec, log_file: Path, grace_s: float) -> Child:
        """Start it in its own session, output appended to `log_file`. Call from the main thread's event loop only:
        the leash ends when the thread that started it does."""
        leash = (sys.executable, "-I", "-S", str(LEASH), str(os.getpid()), str(grace_s))
        with log_file.open("ab") as output:
            process = await anyio.open_process(
                (*leash, *spec.command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **spec.environment},
                start_new_session=True,
            )
        return cls(process, grace_s)

    @property
    def pid(self) -> int:
        """Of the leash."""
        return self._process.pid

    async def wait(self) -> int:
        """Until it has ended with everything it started; returns the exit status, 128 + n for signal n."""
        status = await self._process.wait()
        return status if status >= 0 else 128 - status

    async def stop(self) -> None:
        """SIGTERM, and after the grace SIGKILL. Idempotent; shielded, takes at most the grace and two seconds."""
        with anyio.CancelScope(shield=True):
            with suppress(ProcessLookupError):
                self._process.terminate()
            with anyio.move_on_after(self._grace_s + KILL_MARGIN_S):
                await self._process.wait()
                return
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()


def prepare_log(folder: Path, name: str) -> Path:
    """The child's log file, empty; that of the run before is kept as `NAME.log.previous`."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}.log"
    if file.exists():
        file.replace(file.with_name(f"{name}.log.previous"))
    file.touch()
    return file


def last_lines(log_file: Path, count: int = 3) -> str:
    """The last lines of a log that hold anything, for an error message."""
    with suppress(OSError), log_file.open("rb") as log:
        log.seek(max(0, log_file.stat().st_size - TAIL_BYTES))
        lines = [line.strip() for line in log.read().decode("utf-8", "replace").splitlines()]
        return "\n".join(f"    {line[:300]}" for line in [line for line in lines if line][-count:])
    return ""


def explain_status(status: int) -> str:
    """An exit status in words."""
    if status == 128 + signal.SIGKILL:
        return "was killed (out of memory, perhaps)"
    if status > 128:
        with suppress(ValueError):
            return f"was ended by {signal.Signals(status - 128).name}"
    return f"ended with status {status}"
