"""Rules every test obeys: it declares a category, leaks nothing, and blocks no event loop."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("duolog", deadline=None)  # a busy machine is no failure; timings are benchmarks
settings.load_profile("duolog")

CATEGORIES = {"pure", "session", "real", "browser"}
ROOT = Path(__file__).resolve().parent.parent
CORPUS = Path(os.environ.get("DUOLOG_CORPUS", ROOT.parent / "shared" / "corpus"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    undeclared = [item.nodeid for item in items if not CATEGORIES & {mark.name for mark in item.iter_markers()}]
    if undeclared:
        raise pytest.UsageError(
            f"These tests declare no category; mark each module with one of {sorted(CATEGORIES)}: {undeclared[:5]}"
        )


@pytest.fixture(scope="session")
def corpus() -> Path:
    """Folder of recorded speech; the test is skipped where it is absent."""
    if not (CORPUS / "corpus.jsonl").exists():
        pytest.skip(f"the recorded speech corpus is not at {CORPUS.name}/ beside the project; set DUOLOG_CORPUS")
    return CORPUS
