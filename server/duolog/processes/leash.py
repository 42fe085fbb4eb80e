"""Runs one command so that nothing of it outlives its parent. Started as a script; standard library only.

    python leash.py PARENT_PID GRACE_S COMMAND…

The command leads a process group of its own, and what it leaves behind is adopted here. When the parent dies, when
SIGTERM comes, or when the command ends by itself, all of that is terminated, and killed once the grace is over. This
process ends when nothing is left. Exit status: the command's.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
KILL_AGAIN_S = 0.1
"""Orphans of what was just killed are adopted a moment later."""


class Leash:
    def __init__(self, grace_s: float) -> None:
        self._grace_s = max(grace_s, 0.001)
        self._group: int | None = None
        self._ending = False

    def hold(self, group: int) -> None:
        """Answer for this process group from now on."""
        self._group = group
        if self._ending:
            self._signal_all(signal.SIGTERM)

    def end_all(self, *_signal: object) -> None:
        """Terminate everything now, kill it when the grace is over. Idempotent."""
        if not self._ending:
            self._ending = True
            signal.setitimer(signal.ITIMER_REAL, self._grace_s, KILL_AGAIN_S)
            self._signal_all(signal.SIGTERM)

    def kill_all(self, *_signal: object) -> None:
        self._signal_all(signal.SIGKILL)

    def _signal_all(self, number: signal.Signals) -> None:
        if self._group is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._group, number)
        for pid in adopted():
            with suppress(ProcessLookupError):
                os.kill(pid, number)


def adopted() -> list[int]:
    """This process's children: the command, and orphans that were below it, whatever group they are in."""
    with suppress(OSError):
        return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]
    return []


def main(arguments: list[str]) -> int:
    parent, grace_s, command = int(arguments[0]), float(arguments[1]), arguments[2:]
    leash = Leash(grace_s)
    signal.signal(signal.SIGTERM, leash.end_all)
    signal.signal(signal.SIGALRM, leash.kill_all)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    if os.getppid() != parent:  # it died before the lines above
        return 1
    child = subprocess.Popen(
        command,
        process_group=0,
        preexec_fn=lambda: libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0),  # noqa: PLW1509 - there are no threads
    )
    leash.hold(child.pid)
    status = child.returncode = wait_until(child.pid)
    leash.end_all()
    wait_until(None)
    return status if status >= 0 else 128 - status


def wait_until(pid: int | None) -> int:
    """Reap children until `pid` has ended, or with None until none is left; returns the exit status."""
    while True:
        try:
            ended, status = os.wait()
        except ChildProcessError:
            return 0
        if ended == pid:
            return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
