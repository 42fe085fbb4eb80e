"""Real services, one of each for the whole run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.services import ValkeyServer, VllmServer, running_valkey, running_vllm


@pytest.fixture(scope="session")
def valkey_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyServer]:
    with running_valkey(tmp_path_factory.mktemp("valkey")) as server:
        yield server


@pytest.fixture(scope="session")
def vllm_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmServer]:
    with running_vllm(tmp_path_factory.mktemp("vllm")) as server:
        yield server
