"""The leash as its own program: the command's status, and the parent's sudden death."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.processes.conftest import is_alive, read_pid, wait_for

from duolog.processes.child import LEASH

pytestmark = [pytest.mark.real, pytest.mark.slow]


def leashed(*command: str, grace_s: float = 1.0) -> list[str]:
    return [sys.executable, "-I", "-S", str(LEASH), str(os.getpid()), str(grace_s), *command]


def test_it_ends_with_the_status_of_the_command() -> None:
    command = leashed(sys.executable, "-c", "raise SystemExit(7)")
    assert subprocess.run(command, check=False, start_new_session=True).returncode == 7


def test_a_command_ended_by_a_signal_is_told_as_shells_do() -> None:
    command = leashed(sys.executable, "-c", "import os; os.kill(os.getpid(), 9)")
    assert subprocess.run(command, check=False, start_new_session=True).returncode == 128 + 9


def test_it_runs_nothing_for_a_parent_that_is_gone() -> None:
    command = [sys.executable, "-I", "-S", str(LEASH), "1", "1", sys.executable, "-c", "print('ran')"]
    done = subprocess.run(command, check=False, capture_output=True, start_new_session=True)
    assert (done.returncode, done.stdout) == (1, b"")


PARENT = """
import os, subprocess, sys, time
leash, folder = sys.argv[1], sys.argv[2]
note = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(600)"
command = [sys.executable, "-c", note, folder + "/command.pid"]
subprocess.Popen([sys.executable, "-I", "-S", leash, str(os.getpid()), "1", *command], start_new_session=True)
time.sleep(600)
"""


def test_nothing_outlives_a_parent_that_was_killed(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT, str(LEASH), str(tmp_path)]) as parent:
        assert wait_for(lambda: read_pid(tmp_path, "command") != 0)
        parent.kill()
    assert wait_for(lambda: not is_alive(read_pid(tmp_path, "command")))
