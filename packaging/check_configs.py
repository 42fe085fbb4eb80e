"""Part of `make check`: the settings and the manifest that the repository ships can be loaded."""

from __future__ import annotations

import sys
from pathlib import Path

from duolog.loadtest.profile import load_profile
from duolog.models.manifest import load_manifest
from duolog.ports.errors import ConfigurationError
from duolog.settings import load_settings


def main() -> None:
    try:
        settings = load_settings(Path("configs/duolog.yaml"), {})
        required = load_manifest().required(settings.profile)
        loads = [load_profile(path).name for path in sorted(Path("configs/loadtest").glob("*.yaml"))]
    except ConfigurationError as error:
        sys.exit(str(error))
    print(
        f"configs/duolog.yaml and configs/models.yaml load; the profile {settings.profile} has {len(required)} models. "
        f"Load profiles: {', '.join(loads)}."
    )


if __name__ == "__main__":
    main()
