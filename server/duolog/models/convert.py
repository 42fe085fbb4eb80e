"""Conversions run as child processes: torch's memory goes back to the machine when one is done.

Maps a conversion to its child module and reports that it is alive; knows nothing of manifests or where models live.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from duolog.models.manifest import Conversion
from duolog.ports.errors import ModelMissing

Report = Callable[[str], None]
"""Takes one readable line of progress."""

REPORT_EVERY_S = 5.0
CHILDREN = {Conversion.GGUF: "duolog.models.convert_gguf", Conversion.PIPER: "duolog.models.convert_piper"}
QUIET = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "OMP_NUM_THREADS": "1"}


def convert(kind: Conversion, name: str, source: Path, target: Path, report: Report) -> None:
    """Write model `name` from folder `source` to folder `target`. Raises ModelMissing with the child's last line."""
    command = [sys.executable, "-m", CHILDREN[kind], str(source), str(target)]
    run_child(command, dict(os.environ) | QUIET, f"converting {name}", report)


def run_child(command: list[str], environment: dict[str, str], title: str, report: Report) -> None:
    """Run a command to its end with a line of progress every few seconds.

    Raises ModelMissing with the last line of the command's standard error if it fails; no child outlives this.
    """
    started = time.monotonic()
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
        child = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=output)
        try:
            while True:
                try:
                    code = child.wait(REPORT_EVERY_S)
                    break
                except subprocess.TimeoutExpired:
                    report(f"{title} ({time.monotonic() - started:.0f} s)")
        finally:
            if child.poll() is None:
                child.terminate()
                child.wait()
        if code != 0:
            output.seek(0)
            said = [line.strip() for line in output.read().splitlines() if line.strip()]
            raise ModelMissing(f"{title} failed: {said[-1] if said else f'exit code {code}'}")
