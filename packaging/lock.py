"""Turn requirements/*.in into lock files: exact versions, SHA-256 of every file, no index lines.

Run by `make lock` after an .in file changed, with a network. uv reads only the index's metadata, so the GPU lock is
made without downloading what it names. uv comes into a throw-away environment; nothing else here needs it.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "requirements"
UV = "uv==0.13.9"
COMMON = ["--generate-hashes", "--no-annotate", "--no-header", "--no-config", "--no-emit-index-url", "--quiet"]
WITH_DEPENDENCIES = ["--python-version", "3.11", "--python-platform", "x86_64-manylinux_2_28"]

LOCKS: dict[str, tuple[list[str], str]] = {
    "cpu": (["--no-deps"], "Installed with --require-hashes --no-deps; torch follows in its own step."),
    "dev": (["--no-deps"], "Installed with --require-hashes --no-deps after cpu.txt."),
    "torch": (
        [*WITH_DEPENDENCIES, "--constraints", str(FOLDER / "cpu.in")],
        "The general build with what it asks for; only where pip finds no 2.13.0+cpu.",
    ),
    "gpu": (
        WITH_DEPENDENCIES,
        "Resolved from the index's metadata alone for Python 3.11, x86_64. Not installed and not run by the authors:\n"
        "# they had no GPU. Its own environment: `make setup GPU=1`.",
    ),
}


def lock(uv: Path, name: str) -> None:
    """Write requirements/<name>.txt."""
    options, note = LOCKS[name]
    source = FOLDER / f"{name}.in"
    command = [str(uv), "pip", "compile", *COMMON, *options, str(source)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    header = f"# Made by `make lock` from {source.name}; do not edit.\n# {note}\n"
    (FOLDER / f"{name}.txt").write_text(header + text, encoding="utf-8")
    print(f"requirements/{name}.txt: {text.count('==')} packages")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        binaries = Path(folder) / "bin"
        subprocess.run([binaries / "pip", "install", "--quiet", UV], check=True)
        for name in sys.argv[1:] or LOCKS:
            lock(binaries / "uv", name)


if __name__ == "__main__":
    main()
