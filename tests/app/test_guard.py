"""A full machine: the real server refuses new calls of personas of low priority, and keeps the others."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import anyio.to_thread
import httpx
import pytest
from tests.app.raw_client import calling, send, typed, until
from tests.app.running import ROOT, RunningApp, eventually, running, scripted

from duolog.settings import GuardSettings

pytestmark = [pytest.mark.real, pytest.mark.slow]


class Memory:
    """The machine's, as it would be read."""

    used = 0.5

    async def used_share(self) -> float:
        return self.used


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Memory:
    machine = Memory()
    monkeypatch.setattr("duolog.building.MemoryOfMachine", lambda: machine)
    return machine


@pytest.fixture
def server(memory: Memory, tmp_path: Path) -> Iterator[RunningApp]:
    """Only memory counts: the test machine may be as busy as it likes."""
    folder = tmp_path / "personas"
    shutil.copytree(ROOT / "configs" / "personas", folder)
    (folder / "guest.yaml").write_text((folder / "ava.yaml").read_text() + "\npriority: low\n")
    settings = scripted()
    idle = GuardSettings(queue_warn_s=60, queue_refuse_s=90, lag_warn_s=60, lag_refuse_s=90, raise_s=0.1, lower_s=0.1)
    settings = replace(settings, guard=idle, personas=replace(settings.personas, folder=folder))
    with running(settings) as application:
        yield application
        assert application.failures() == []


async def test_a_full_machine_refuses_calls_of_low_priority_alone(server: RunningApp, memory: Memory) -> None:
    async with calling(server.socket_url, model="guest") as open_call:
        await until(open_call, "session.created")
        memory.used = 0.86
        await eventually(lambda: level(server) == 4)

        async with calling(server.socket_url, model="guest") as refused:
            error = (await until(refused, "error"))["error"]
            await refused.wait_closed()
        assert error["code"] == "session_limit_reached"
        assert "too busy" in error["message"]
        assert error["retry_after_s"] == 10
        assert refused.close_code == 1013
        assert await server.metric('duolog_calls_refused_total{reason="overload"}') >= 1

        async with calling(server.socket_url, model="ava") as taken:
            await send(taken, *typed("Good morning."))
            assert (await until(taken, "response.done"))["response"]["status"] == "completed"
        await send(open_call, *typed("Are you still there?"))
        assert (await until(open_call, "response.done"))["response"]["status"] == "completed"

        assert await anyio.to_thread.run_sync(server.ready)
        assert (await server.parts())["load"] == {"ready": True, "detail": "refuse_low: memory was 0.86"}

        memory.used = 0.5
        await eventually(lambda: level(server) == 0)
        async with calling(server.socket_url, model="guest") as again:
            await until(again, "session.created")
    steps = [entry["level"] for entry in server.logs if entry["event"] == "load guard"]
    assert steps[3] == "refuse_low"
    assert steps[-1] == "normal"


def level(server: RunningApp) -> float:
    lines = httpx.get(f"{server.url}/metrics").text.splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("duolog_guard_level "))
