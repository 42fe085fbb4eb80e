"""From the decision to interrupt to silence at the page: real Chromium, engines that take no time.

Cuts answers off at many places, half by the page's own button, half by the server, and counts up to the page's news
that its playback worklet has faded out: an upper bound. Writes benchmarks/results/page_silence.json; takes two minutes.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import anyio.to_thread
import numpy as np
import typer

from benchmarks.stack import ROOT, duolog_stack
from duolog.loadtest.failures import CallFailed
from duolog.loadtest.results import machine_facts
from duolog.ports.errors import DuologError

DRIVER = ROOT / "web" / "test" / "drive-cuts.js"
RESULTS = ROOT / "benchmarks" / "results" / "page_silence.json"
LOG = ROOT / ".duolog" / "logs" / "bench-page-silence.log"
SAID = "we sailed past the old harbour wall and then out over the bar to where the wide green water begins"
CUTS = 60
FIRST_S, STEP_S, STEPS = 0.3, 0.137, 11
"""Where answers are cut: 11 places, whose distance is no multiple of a word's, a frame's or a report's."""
GOAL_P95_MS = 100.0
TIMEOUT_S = 300.0


def main(out: Path = RESULTS) -> None:
    """Cut, and write how long it took."""
    try:
        cuts = anyio.run(_measure)
    except DuologError as error:
        print(error, file=sys.stderr)
        raise typer.Exit(1) from error
    figures = {
        "by_button_ms": _figures(cuts, by_button=True),
        "by_server_ms": _figures(cuts, by_button=False),
        "goal_p95_ms": GOAL_P95_MS,
        "machine": machine_facts(),
    }
    out.write_text(json.dumps(figures, indent=2) + "\n")
    print(json.dumps(figures, indent=2))


async def _measure() -> list[dict[str, Any]]:
    async with duolog_stack("tiny", scripted=True, log=LOG) as stack:
        page = stack.url.replace("ws://", "http://")
        return await anyio.to_thread.run_sync(_drive, page, abandon_on_cancel=True)


def _drive(page: str) -> list[dict[str, Any]]:
    places = [f"{FIRST_S + STEP_S * (number // 2 % STEPS):.3f}" for number in range(CUTS)]
    with TemporaryDirectory() as folder:
        out = Path(folder) / "cuts.json"
        command = ["node", str(DRIVER), "--url", page, "--text", SAID, "--at", ",".join(places), "--out", str(out)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        if done.returncode != 0:
            raise CallFailed(f"{DRIVER.name} failed: {done.stderr.strip()}")
        cuts: list[dict[str, Any]] = json.loads(out.read_text())["cuts"]
        return cuts


def _figures(cuts: list[dict[str, Any]], *, by_button: bool) -> dict[str, float]:
    taken_ms = np.array([cut["decidedToSilentMs"] for cut in cuts if cut["byButton"] is by_button])
    p50, p95 = np.percentile(taken_ms, (50, 95))
    return {
        "cuts": len(taken_ms),
        "p50": round(float(p50), 1),
        "p95": round(float(p95), 1),
        "max": round(float(taken_ms.max()), 1),
    }


if __name__ == "__main__":
    typer.run(main)
