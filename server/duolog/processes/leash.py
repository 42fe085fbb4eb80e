"""Runs one command so that nothing of it outlives its parent. Started as a script; standard library only.

    python leash.py PARENT_PID GRACE_S COMMAND…

It leads a process group of its own. When the parent dies, when SIGTERM comes, or when the command ends by itself,
everything left in the group is terminated, and killed once the grace is over. Exit status: the command's.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


class Leash:
    def __init__(self, grace_s: float) -> None:
        self._grace_s = grace_s
        self._ending = False

    def end_group(self, *_signal: object) -> None:
        """SIGTERM to the group now; SIGKILL, to this process too, when the grace is over. Idempotent."""
        if self._ending:
            return
        self._ending = True
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGALRM, lambda *_: os.killpg(0, signal.SIGKILL))
        signal.setitimer(signal.ITIMER_REAL, max(self._grace_s, 0.001))
        os.killpg(0, signal.SIGTERM)


def main(arguments: list[str]) -> int:
    parent, grace_s, command = int(arguments[0]), float(arguments[1]), arguments[2:]
    leash = Leash(grace_s)
    signal.signal(signal.SIGTERM, leash.end_group)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    if os.getppid() != parent:  # it died before the lines above
        return 1
    child = subprocess.Popen(
        command,
        preexec_fn=lambda: libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0),  # noqa: PLW1509 - there are no threads
    )
    status = child.returncode = wait_until(child.pid)
    leash.end_group()
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
