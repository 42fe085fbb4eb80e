"""Whether vLLM compiles the model on this machine's CPU: a fifth less time a token, once a minute or two at start."""

from __future__ import annotations

import os
import shutil
import sysconfig
from pathlib import Path

from duolog.settings import Compile


def compiles(chosen: Compile) -> bool:
    """`auto`: where there is all that compiling needs."""
    return chosen is Compile.ON or (chosen is Compile.AUTO and missing_to_compile() is None)


def missing_to_compile() -> str | None:
    """The Debian package that is missing; None: torch finds a C++ compiler and Python's headers."""
    if not any(shutil.which(name) for name in (os.environ.get("CXX", "g++"), "g++")):
        return "g++"
    if not (Path(sysconfig.get_path("include")) / "Python.h").is_file():
        return "python3-dev"
    return None
