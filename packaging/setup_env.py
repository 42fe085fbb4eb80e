"""Make the Python environment: locked packages, torch, duolog itself. Run by `make setup` with the system's Python.

Standard library only, since nothing is installed yet. Each step leaves a stamp keyed by what it was made from, so an
interrupted run goes on where it stopped and a second run does nothing. Models are fetched later, by duolog itself.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
OLDEST, NEWEST = (3, 11), (3, 13)
TORCH = "2.13.0"
STAMP = "duolog-setup.json"
PROGRESS_EVERY_S = 5.0
GENERAL_TORCH_MB = 10_000
"""Free space for the general build: 5.2 GB installed, and pip's copies of 2.4 GB of downloads."""
SPARE_MB = 500

MODELS_DOWNLOAD_MB, MODELS_DISK_MB = 700, 2800
"""For what `make run` fetches afterwards; tests/setup holds it against configs/models.yaml."""

FAILURES = (
    ("No space left on device", "the disk is full; free some space"),
    ("DO NOT MATCH THE HASHES", "a package differs from the lock; clear pip's cache with `pip cache purge`"),
    ("ensurepip is not available", "this Python has no venv module; install it (Debian: apt install python3-venv)"),
    ("No module named venv", "this Python has no venv module; install it (Debian: apt install python3-venv)"),
    ("Temporary failure in name resolution", "the package index cannot be reached; check the network"),
    ("Failed to establish a new connection", "the package index cannot be reached; check the network"),
    ("Network is unreachable", "the package index cannot be reached; check the network"),
    ("Read timed out", "the package index does not answer; check the network"),
    ("Connection broken", "the connection was lost; check the network"),
    (
        "No matching distribution found",
        "the index has no fitting package; use Python 3.11 on Linux x86_64, with a network",
    ),
)
"""What stands in pip's log → what it means and how to mend it. The first match counts."""


@dataclass(frozen=True)
class Step:
    """One resumable piece of work. `key` changes when what it is made from changes."""

    name: str
    title: str
    key: str
    action: Callable[[Progress], None]
    download_mb: int = 0
    disk_mb: int = 0


@dataclass
class Progress:
    """One readable line at least every few seconds; everything else goes to the log file."""

    title: str
    log: Path
    total: int = 0
    """Packages of this step, 0: not counted."""
    started: float = field(default_factory=time.monotonic)
    collected: int = 0
    fetched_mb: float = 0
    doing: str = "starting"

    def read(self, line: str) -> None:
        """Take one line of pip's output."""
        text = line.strip()
        if text.startswith(("Collecting ", "Processing ")):
            self.collected += 1
            self.doing = f"fetching {Path(re.split('==| @ ', text.split()[1])[0]).name}"
        elif size := re.search(r"^Downloading \S+ \(([\d.]+) (kB|MB|GB)\)", text):
            self.fetched_mb += float(size[1]) * {"kB": 0.001, "MB": 1, "GB": 1000}[size[2]]
        elif text.startswith("Requirement already satisfied"):
            self.collected += 1
        elif text.startswith("Installing collected packages"):
            self.doing = "unpacking, which takes some minutes"

    def line(self) -> str:
        counted = f" {min(self.collected, self.total)}/{self.total}" if self.total else ""
        size = f", {self.fetched_mb:.0f} MB" if self.fetched_mb else ""
        return f"  {self.title}:{counted} {self.doing} ({time.monotonic() - self.started:.0f} s{size})"

    def run(self, command: list[str]) -> None:
        """Run a command with its output in the log. SetupFailed with the sentence that fits if it fails."""
        begin = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("a", encoding="utf-8") as log:
            log.write(f"\n$ {' '.join(command)}\n")
            log.flush()
            child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT)
            reader = threading.Thread(target=self._follow, args=(child, log), daemon=True)
            reader.start()
            try:
                while reader.is_alive():
                    reader.join(PROGRESS_EVERY_S)
                    if reader.is_alive():
                        print(self.line(), flush=True)
                code = child.wait()
            finally:
                if child.poll() is None:
                    child.terminate()
                    child.wait()
        if code != 0:
            with self.log.open("rb") as log_bytes:
                log_bytes.seek(begin)
                said = log_bytes.read().decode(errors="replace")
            raise SetupFailed(explain(self.title, said, self.log))

    def _follow(self, child: subprocess.Popen[str], log: object) -> None:
        for line in child.stdout or ():
            log.write(line)  # type: ignore[attr-defined]
            self.read(line)


class SetupFailed(Exception):
    """One sentence for a person."""


def explain(title: str, said: str, log: Path) -> str:
    """The sentence for a step that failed after printing `said`."""
    reason = next((meaning for mark, meaning in FAILURES if mark in said), "see the end of the log")
    return f"{title} failed: {reason}, then run the same command again: finished steps are kept (log: {log})."


def digest(*parts: str | Path) -> str:
    """Short key of strings and files' contents."""
    sum256 = hashlib.sha256()
    for part in parts:
        sum256.update(part.read_bytes() if isinstance(part, Path) else part.encode())
        sum256.update(b"\0")
    return sum256.hexdigest()[:16]


def count_packages(lock: Path) -> int:
    return sum(1 for line in lock.read_text(encoding="utf-8").splitlines() if "==" in line and line[0].isalnum())


def site_packages(environment: Path) -> Path:
    return environment / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"


def remove_cuda_extensions(packages: Path) -> list[Path]:
    """On a CPU-only torch, delete torchaudio's CUDA extension files; it then falls back to pure Python by design."""
    if not list(packages.glob("torch-*+cpu.dist-info")):
        return []
    found = sorted((packages / "torchaudio" / "lib").glob("*.so"))
    for path in found:
        path.unlink()
    return found


@dataclass(frozen=True)
class Plan:
    """The steps for one kind of environment."""

    environment: Path
    gpu: bool
    dev: bool

    @property
    def python(self) -> str:
        return str(self.environment / "bin" / "python")

    def pip(self, *arguments: str) -> list[str]:
        quiet = ["--disable-pip-version-check", "--no-input", "--progress-bar", "off"]
        return [self.python, "-m", "pip", "install", *quiet, *arguments]

    def steps(self) -> Iterator[Step]:
        locks = ROOT / "requirements"
        base = digest(str(self.environment), sys.version)
        yield Step("environment", "environment", base, self._create)
        if self.gpu:
            yield self._lock_step("packages", locks / "gpu.txt", base, (4500, 11000))
        else:
            yield self._lock_step("packages", locks / "cpu.txt", base, (640, 2500))
            yield Step("torch", "torch", digest(base, TORCH, locks / "torch.txt"), self._torch, 190, 700)
        if self.dev:
            yield self._lock_step("test-tools", locks / "dev.txt", base, (35, 130))
        own = [ROOT / "pyproject.toml", ROOT / "packaging" / "vllm" / "pyproject.toml"]
        yield Step("duolog", "duolog itself", digest(base, str(self.gpu), *own), self._own)

    def _lock_step(self, name: str, lock: Path, base: str, size_mb: tuple[int, int]) -> Step:
        def install(progress: Progress) -> None:
            progress.total = count_packages(lock)
            progress.run(self.pip("--require-hashes", "--no-deps", "-r", str(lock)))
            remove_cuda_extensions(site_packages(self.environment))  # a changed lock may bring torchaudio anew

        return Step(name, f"packages of {lock.name}", digest(base, lock), install, *size_mb)

    def _create(self, progress: Progress) -> None:
        progress.doing = "creating the virtual environment"
        progress.run([sys.executable, "-m", "venv", "--clear", str(self.environment)])

    def _torch(self, progress: Progress) -> None:
        progress.doing = f"fetching the CPU build {TORCH}+cpu (190 MB)"
        try:
            progress.run(self.pip("--no-deps", f"torch=={TORCH}+cpu"))
        except SetupFailed:
            print(f"  pip finds no CPU build of torch here: taking the general build {TORCH}, with CUDA libraries that")
            print("  a CPU does not use. It is larger (2.6 GB more to download, 5 GB more on disk), not slower.")
            self._general_torch(progress)
        remove_cuda_extensions(site_packages(self.environment))

    def _general_torch(self, progress: Progress) -> None:
        lock = ROOT / "requirements" / "torch.txt"
        check_disk(GENERAL_TORCH_MB, ROOT)
        progress.total, progress.collected = count_packages(lock), 0
        progress.run(self.pip("--require-hashes", "--no-deps", "-r", str(lock)))

    def _own(self, progress: Progress) -> None:
        local = ["--no-deps", "--no-build-isolation", "--no-index"]
        if not self.gpu:
            progress.doing = "installing vllm's metadata"
            progress.run(self.pip(*local, "--force-reinstall", str(ROOT / "packaging" / "vllm")))
        progress.doing = "installing duolog"
        progress.run(self.pip(*local, "--editable", str(ROOT)))


def read_stamps(environment: Path) -> dict[str, str]:
    """Finished steps; none where the file is missing or half written."""
    try:
        stamps = json.loads((environment / STAMP).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {str(name): str(key) for name, key in stamps.items()} if isinstance(stamps, dict) else {}


def write_stamps(environment: Path, stamps: dict[str, str]) -> None:
    partial = environment / f"{STAMP}.partial"
    partial.write_text(json.dumps(stamps, indent=1), encoding="utf-8")
    partial.replace(environment / STAMP)


def pending(steps: list[Step], stamps: dict[str, str]) -> list[Step]:
    """What is still to do. A new environment means everything."""
    if not steps or stamps.get(steps[0].name) != steps[0].key:
        return steps
    return [step for step in steps if stamps.get(step.name) != step.key]


def check_disk(need_mb: int, where: Path) -> None:
    free_mb = shutil.disk_usage(where).free // 1_000_000
    if free_mb < need_mb + SPARE_MB:
        raise SetupFailed(
            f"{where} has {free_mb / 1000:.1f} GB free and {(need_mb + SPARE_MB) / 1000:.1f} GB are needed; "
            "free some space or move the project to a larger disk."
        )


def check_python() -> None:
    version = sys.version_info[:2]
    if version < OLDEST or version > NEWEST:
        raise SetupFailed(
            f"Python {version[0]}.{version[1]} cannot run Duolog; use 3.11 (tried), 3.12 or 3.13, "
            "for example `make setup PYTHON=python3.11`."
        )
    if not sys.platform.startswith("linux"):
        raise SetupFailed("The packages of the lock are for Linux; use a Linux machine or a container.")


def announce(todo: list[Step], plan: Plan) -> None:
    download, disk = sum(step.download_mb for step in todo), sum(step.disk_mb for step in todo)
    print(f"Setting up {plan.environment.name}: about {download} MB to download, {disk / 1000:.1f} GB on disk.")
    if any(step.name == "torch" for step in todo):
        print("  Where pip finds no CPU build of torch: 2.6 GB more to download, 5 GB more on disk.")
    if any(step.download_mb for step in todo):
        print(f"  Models come afterwards: about {MODELS_DOWNLOAD_MB} MB and {MODELS_DISK_MB / 1000:.1f} GB on disk.")


def perform(todo: list[Step], plan: Plan) -> None:
    """Run the steps in order, stamping each."""
    stamps = read_stamps(plan.environment)
    if todo[0].name == "environment":
        stamps = {}
    log = ROOT / ".duolog" / "logs" / "setup.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    for number, step in enumerate(todo, 1):
        progress = Progress(f"[{number}/{len(todo)}] {step.title}", log)
        print(progress.line(), flush=True)
        step.action(progress)
        stamps[step.name] = step.key
        write_stamps(plan.environment, stamps)
    print(f"{plan.environment.name} is ready (log: {log}).")


def stop(message: str) -> NoReturn:
    print(f"setup: {message}", file=sys.stderr)
    raise SystemExit(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dev", action="store_true", help="also install the test tools")
    parser.add_argument("--gpu", action="store_true", help="the environment with stock vllm, in .venv-gpu")
    options = parser.parse_args()
    plan = Plan(ROOT / (".venv-gpu" if options.gpu else ".venv"), options.gpu, options.dev)
    # A constraint or target of the caller's shell must not reach this environment; index settings do.
    for name in ("PYTHONPATH", "PYTHONHOME", "PIP_TARGET", "PIP_PREFIX", "PIP_USER", "PIP_REQUIRE_VIRTUALENV"):
        os.environ.pop(name, None)
    try:
        check_python()
        todo = pending(list(plan.steps()), read_stamps(plan.environment))
        if todo:
            announce(todo, plan)
            check_disk(sum(step.disk_mb + 2 * step.download_mb for step in todo), ROOT)  # pip keeps and caches
            perform(todo, plan)
    except SetupFailed as failure:
        stop(str(failure))
    except KeyboardInterrupt:
        stop("interrupted; run the same command again to go on where it stopped.")


if __name__ == "__main__":
    main()
