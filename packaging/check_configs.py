"""Part of `make check`: the settings and the manifest that the repository ships can be loaded."""

from __future__ import annotations

import sys
from pathlib import Path

from duolog.models.manifest import load_manifest
from duolog.ports.errors import ConfigurationError
from duolog.settings import load_settings


def main() -> None:
    try:
        settings = load_settings(Path("configs/duolog.yaml"), {})
        required = load_manifest().required(settings.profile)
    except ConfigurationError as error:
        sys.exit(str(error))
    print(
        f"configs/duolog.yaml and configs/models.yaml load; the profile {settings.profile} has {len(required)} models."
    )


if __name__ == "__main__":
    main()
