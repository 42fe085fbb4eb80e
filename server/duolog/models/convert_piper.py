"""Piper voice (ONNX and JSON) → Coqui VITS folder.

A child process of `duolog.models.convert`: `python -m duolog.models.convert_piper SOURCE_FOLDER TARGET_FOLDER`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from duolog.models.piper_import import import_piper


def convert_piper(source: Path, target: Path) -> None:
    """Convert the one Piper voice in `source`: `<name>.onnx` beside `<name>.onnx.json`."""
    files = sorted(source.glob("*.onnx"))
    if len(files) != 1:
        sys.exit(f"{source} must hold exactly one .onnx file, it holds {len(files)}")
    import_piper(files[0], files[0].with_name(f"{files[0].name}.json"), target)


if __name__ == "__main__":
    convert_piper(Path(sys.argv[1]), Path(sys.argv[2]))
