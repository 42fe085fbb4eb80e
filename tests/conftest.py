"""Rules every test obeys: it declares a category, leaks nothing, and blocks no event loop."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from tests.services import ValkeyServer, VllmServer, running_valkey, running_vllm

settings.register_profile("duolog", deadline=None, derandomize=True)  # deterministic; timings are benchmarks
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


@pytest.fixture(scope="session")
def valkey_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyServer]:
    """A real Valkey for the whole run; who stops or pauses one starts an own."""
    with running_valkey(tmp_path_factory.mktemp("valkey")) as server:
        yield server


@pytest.fixture(scope="session")
def vllm_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmServer]:
    """A real vLLM with the tiny model, for the whole run."""
    with running_vllm(tmp_path_factory.mktemp("vllm")) as server:
        yield server
