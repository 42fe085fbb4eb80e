"""Memory in use: of the tightest cgroup (v2) around this process, and of the whole machine, whichever is fuller.

A container is killed at its cgroup's limit, however much the machine has left. The page cache that the kernel gives
back first (`inactive_file`) is not counted, as Kubernetes does not count it.
"""

from __future__ import annotations

from pathlib import Path

import anyio.to_thread
import psutil

CGROUPS = Path("/sys/fs/cgroup")
OWN_GROUP = Path("/proc/self/cgroup")
_RECLAIMABLE = "inactive_file "


class MemoryOfMachine:
    """Implements `MachineMemory`. The files of another system may be named for tests."""

    def __init__(self, cgroups: Path = CGROUPS, own_group: Path = OWN_GROUP) -> None:
        self._cgroups = cgroups
        self._own_group = own_group

    async def used_share(self) -> float | None:
        return await anyio.to_thread.run_sync(self._read)

    def _read(self) -> float:
        memory = psutil.virtual_memory()
        return max([1 - memory.available / memory.total, *cgroup_shares(self._cgroups, self._own_group)])


def cgroup_shares(cgroups: Path, own_group: Path) -> list[float]:
    """Of each limited group around this process, the share in use. Empty without limits, or with cgroups v1."""
    found = (_share(folder) for folder in _folders(cgroups, own_group))
    return [share for share in found if share is not None]


def _folders(cgroups: Path, own_group: Path) -> list[Path]:
    """The own group and all that hold it, where the path is visible; inside a container it often is the root alone."""
    try:
        lines = own_group.read_text().splitlines()
    except OSError:
        return []
    own = next((line.removeprefix("0::/") for line in lines if line.startswith("0::/")), None)
    if own is None:
        return []
    inner = cgroups / own
    return [inner, *(parent for parent in inner.parents if parent.is_relative_to(cgroups))]


def _share(folder: Path) -> float | None:
    try:
        limit = int((folder / "memory.max").read_text())
        current = int((folder / "memory.current").read_text())
        statistics = (folder / "memory.stat").read_text()
    except (OSError, ValueError):  # no such group, or `max`: no limit
        return None
    spare = next((int(line.split()[1]) for line in statistics.splitlines() if line.startswith(_RECLAIMABLE)), 0)
    return max(0, current - spare) / limit if limit > 0 else None
