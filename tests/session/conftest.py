"""Sessions run in trio's virtual time: a test of a minute's talk takes milliseconds, and is the same every time."""

from __future__ import annotations

from typing import Any

import pytest
from trio.testing import MockClock


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "trio", {"clock": MockClock(autojump_threshold=0)}
