"""Real children: order, readiness, crashes, and that nothing is left behind."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from tests.processes.conftest import MakeSpec, is_alive, read_pid

from duolog.ports.errors import EngineTimeout, EngineUnavailable
from duolog.processes.child import ChildSpec
from duolog.processes.supervisor import Supervisor
from duolog.settings import ProcessSettings

pytestmark = [pytest.mark.real, pytest.mark.slow]

QUICK = ProcessSettings(ready_timeout_s=20, stop_grace_s=1, restart_first_s=0.01, restart_max_s=30, restart_limit=3)


class Story:
    """What the supervisor reported, in order."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def __call__(self, name: str, line: str) -> None:
        self.lines.append(f"{name} {line}")

    def index(self, start: str) -> int:
        return next(number for number, line in enumerate(self.lines) if line.startswith(start))


async def until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(20):
        while not condition():  # noqa: ASYNC110 - another process decides
            await anyio.sleep(0.02)


async def run_until_ready(
    specs: list[ChildSpec], folder: Path, then: Callable[[], None] | None = None, options: ProcessSettings = QUICK
) -> Story:
    """Run the children until all are ready, call `then`, stop everything."""
    story, ready = Story(), anyio.Event()
    async with anyio.create_task_group() as group:
        group.start_soon(Supervisor(specs, options, folder / "logs", story).run, ready.set)
        with anyio.fail_after(20):
            await ready.wait()
        if then:
            then()
        group.cancel_scope.cancel()
    return story


async def test_a_child_starts_when_those_before_it_are_ready(make_spec: MakeSpec, tmp_path: Path) -> None:
    story = await run_until_ready([make_spec("store"), make_spec("server", after=("store",))], tmp_path)

    assert story.index("store ready after") < story.index("server starting")
    assert story.index("server ready after") > story.index("server starting")


async def test_children_are_stopped_in_reverse_order(make_spec: MakeSpec, tmp_path: Path) -> None:
    story = await run_until_ready([make_spec("store"), make_spec("server")], tmp_path)

    assert story.lines[-2:] == ["server stopped", "store stopped"]


async def test_output_goes_to_a_log_and_that_of_the_run_before_is_kept(make_spec: MakeSpec, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "store.log").write_text("the run before\n")
    await run_until_ready([make_spec("store")], tmp_path)

    assert (tmp_path / "logs" / "store.log").read_text() == "hello from store\n"
    assert (tmp_path / "logs" / "store.log.previous").read_text() == "the run before\n"


async def test_a_crashed_child_is_started_again(make_spec: MakeSpec, tmp_path: Path) -> None:
    story, ready = Story(), anyio.Event()
    starts = tmp_path / "llm.starts"
    async with anyio.create_task_group() as group:
        group.start_soon(Supervisor([make_spec("llm")], QUICK, tmp_path / "logs", story).run, ready.set)
        await until(ready.is_set)
        first = read_pid(tmp_path, "llm")
        os.kill(first, signal.SIGKILL)
        await until(lambda: starts.read_text() == "xx" and read_pid(tmp_path, "llm") not in (0, first))
        await until(lambda: sum(line.startswith("llm ready") for line in story.lines) == 2)
        group.cancel_scope.cancel()

    assert any("was killed (out of memory, perhaps)" in line and "again in 0.01 s" in line for line in story.lines)


async def test_a_child_that_ends_before_it_is_ready_stops_everything(make_spec: MakeSpec, tmp_path: Path) -> None:
    broken = make_spec("llm", "sys.exit('no such model: x')", ready=False)
    supervisor = Supervisor([make_spec("store"), broken], QUICK, tmp_path / "logs", Story())

    with pytest.raises(EngineUnavailable, match=r"(?s)llm ended with status 1 before.*no such model: x"):
        await supervisor.run(lambda: None)


async def test_a_child_that_crashes_too_often_stops_everything(make_spec: MakeSpec, tmp_path: Path) -> None:
    crash_once_seen = "while not (folder / 'seen').exists(): time.sleep(0.01)\nsys.exit(3)"
    supervisor = Supervisor([make_spec("llm", crash_once_seen)], QUICK, tmp_path / "logs", Story())

    with anyio.fail_after(30), pytest.raises(EngineUnavailable, match="llm ended with status 3, and too often"):
        await supervisor.run((tmp_path / "seen").touch)
    assert (tmp_path / "llm.starts").read_text() == "x" * (QUICK.restart_limit + 1)


async def test_a_child_that_never_gets_ready_stops_everything(make_spec: MakeSpec, tmp_path: Path) -> None:
    hasty = ProcessSettings(ready_timeout_s=0.5, stop_grace_s=1)
    supervisor = Supervisor([make_spec("llm", ready=False)], hasty, tmp_path / "logs", Story())

    with pytest.raises(EngineTimeout, match=r"llm was not ready within 0\.5 s \(a file: is it running\?\); look into"):
        await supervisor.run(lambda: None)


async def test_while_an_own_child_loads_its_part_is_said_to_load_and_its_errors_only_later(
    make_spec: MakeSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duolog.processes.supervisor.PROGRESS_INTERVAL_S", 0.2)
    server = make_spec("server", ready=False, provided={"llm": ("vllm",)}, waits_for_part="llm")

    def told(what: str) -> bool:
        return any(line.startswith("server still starting") and line.endswith(what) for line in story.lines)

    story, ready = Story(), anyio.Event()
    async with anyio.create_task_group() as group:
        specs = [replace(make_spec("vllm", ready=False), takes_long="compiling, once"), server]
        group.start_soon(Supervisor(specs, QUICK, tmp_path / "logs", story).run, ready.set)
        await until(lambda: told("(llm: loading (0 s))"))
        await until(lambda: any(line.endswith("(a file: is it running?; compiling, once)") for line in story.lines))
        assert not told("(llm: is it running?)")
        (tmp_path / "vllm.ready").touch()
        await until(lambda: told("(llm: is it running?)"))
        (tmp_path / "server.ready").touch()
        await until(ready.is_set)
        group.cancel_scope.cancel()


@pytest.mark.parametrize("own_session", [False, True])
async def test_what_a_child_started_ends_with_it_even_if_it_will_not_listen(
    make_spec: MakeSpec, tmp_path: Path, own_session: bool
) -> None:
    stubborn = (
        "import subprocess\n"
        "child = subprocess.Popen([sys.executable, '-c', "
        "'import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(600)'], "
        f"stdout=subprocess.PIPE, start_new_session={own_session})\n"
        "child.stdout.readline()\n"
        "(folder / 'grandchild.pid').write_text(str(child.pid))\n"
        "(folder / 'llm.ready').touch()\n"
        "time.sleep(600)\n"
    )
    await run_until_ready([make_spec("llm", stubborn, ready=False)], tmp_path)

    grandchild = read_pid(tmp_path, "grandchild")
    assert grandchild
    assert not is_alive(grandchild)
