"""Memory of the machine and of the cgroups around the process, from files as the kernel writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from duolog.adapters.machine_memory import MemoryOfMachine, cgroup_shares

pytestmark = pytest.mark.real


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def group(folder: Path, *, limit: str, current: int, inactive_file: int = 0) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.current").write_text(f"{current}\n")
    (folder / "memory.stat").write_text(f"anon 5\nfile 9\ninactive_file {inactive_file}\nactive_file 1\n")


def own_group(folder: Path, lines: str) -> Path:
    file = folder / "own"
    file.write_text(lines)
    return file


def test_every_group_around_the_process_counts(tmp_path: Path) -> None:
    group(tmp_path / "cg" / "user" / "duolog", limit="1000", current=600, inactive_file=100)
    group(tmp_path / "cg" / "user", limit="max", current=900)
    group(tmp_path / "cg", limit="4000", current=3600)
    assert cgroup_shares(tmp_path / "cg", own_group(tmp_path, "0::/user/duolog\n")) == [0.5, 0.9]


@pytest.mark.parametrize("lines", ["", "4:memory:/there\n0::/gone\n", "0::/\n"], ids=["none", "gone", "root"])
def test_without_limits_there_is_nothing_to_tell(tmp_path: Path, lines: str) -> None:
    assert cgroup_shares(tmp_path, own_group(tmp_path, lines)) == []
    assert cgroup_shares(tmp_path, tmp_path / "absent") == []


async def test_the_fuller_of_machine_and_group_is_told(tmp_path: Path) -> None:
    own = own_group(tmp_path, "0::/\n")
    machine = await MemoryOfMachine(tmp_path, own).used_share()
    assert machine is not None
    assert 0 < machine < 1
    group(tmp_path, limit="1000", current=1_500)
    assert await MemoryOfMachine(tmp_path, own).used_share() == 1.5
