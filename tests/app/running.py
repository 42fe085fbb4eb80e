"""The real application on a free port, in a thread and an event loop of its own; clients are in the test's."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio
import httpx
import uvicorn
from anyio.from_thread import BlockingPortal, start_blocking_portal
from structlog.processors import format_exc_info
from structlog.testing import capture_logs

from duolog.app import Application
from duolog.realtime.server import server_config
from duolog.settings import (
    AsrSettings,
    GuardSettings,
    LlmEngine,
    LlmSettings,
    PersonaSettings,
    ServerSettings,
    Settings,
    SpeechEngine,
    StoreSettings,
    TtsSettings,
    VadSettings,
)

ROOT = Path(__file__).resolve().parents[2]
NOWHERE = "redis://127.0.0.1:9/0"
"""A store that is not there."""
PATIENCE_S = 10.0


def scripted(*, store: str = NOWHERE, llm: LlmSettings | None = None, **server: Any) -> Settings:
    """Settings of a server whose engines are scripts, and which gives nothing up however busy the test machine is."""
    return Settings(
        server=replace(ServerSettings(), **server),
        personas=PersonaSettings(folder=ROOT / "configs" / "personas", reload=False),
        asr=AsrSettings(engine=SpeechEngine.SCRIPTED),
        vad=VadSettings(engine=SpeechEngine.SCRIPTED),
        llm=llm or LlmSettings(engine=LlmEngine.SCRIPTED),
        tts=TtsSettings(engine=SpeechEngine.SCRIPTED),
        store=StoreSettings(url=store),
        guard=GuardSettings(enabled=False),
    )


@dataclass(frozen=True, slots=True)
class RunningApp:
    address: str
    """`host:port`"""
    logs: list[Any]
    """What the server logged, as structlog's event dictionaries."""
    portal: BlockingPortal
    idle_tasks: int
    """Tasks of the server while nobody is connected."""

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    @property
    def socket_url(self) -> str:
        return f"ws://{self.address}/v1/realtime"

    async def metric(self, line: str) -> float:
        """The value of one metric, named as the exposition does."""
        async with httpx.AsyncClient(base_url=self.url) as client:
            text = (await client.get("/metrics")).text
        found = re.search(rf"^{re.escape(line)} (\S+)$", text, re.MULTILINE)
        return float(found[1]) if found else 0.0

    def ready(self) -> bool:
        return httpx.get(f"{self.url}/readyz").status_code == httpx.codes.OK

    async def parts(self) -> dict[str, Any]:
        async with httpx.AsyncClient(base_url=self.url) as client:
            parts: dict[str, Any] = (await client.get("/readyz")).json()["parts"]
            return parts

    async def until_no_call(self) -> None:
        await eventually(lambda: self._calls() == 0)

    def tasks(self) -> list[str]:
        """Names of the tasks in the server's loop, without the one that asks."""
        return [task.name or "" for task in self.portal.call(_tasks)]

    def failures(self) -> list[Any]:
        """What was logged as an error."""
        return [entry for entry in self.logs if entry["log_level"] in ("error", "critical")]

    def _calls(self) -> float:
        answer = httpx.get(f"{self.url}/metrics").text
        found = re.search(r"^duolog_calls_active (\S+)$", answer, re.MULTILINE)
        return float(found[1]) if found else 0.0


async def eventually(holds: Callable[[], bool], timeout_s: float = PATIENCE_S) -> None:
    """Wait until it holds. Fails with TimeoutError."""
    with anyio.fail_after(timeout_s):
        while not await anyio.to_thread.run_sync(holds):  # noqa: ASYNC110 - rejected: it holds in another thread
            await anyio.sleep(0.02)


@contextmanager
def running(settings: Settings, *, ready: bool = True, patience_s: float = PATIENCE_S) -> Iterator[RunningApp]:
    """A server. At its end no call, task or thread of it is left.

    `ready` False: do not wait for its engines; `patience_s`: how long to wait for them.
    """
    before = set(threading.enumerate())
    with (
        capture_logs(processors=[format_exc_info]) as logs,
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(_serving(settings)) as address,
    ):
        if ready:
            _until(RunningApp(address, logs, portal, 0).ready, "ready", patience_s)
        server = RunningApp(address, logs, portal, 0)
        server = replace(server, idle_tasks=len(server.tasks()))
        yield server
        _until(lambda: server._calls() == 0, "without calls")
        _until(lambda: len(server.tasks()) <= server.idle_tasks, f"without tasks: {server.tasks()}")
    left = [thread.name for thread in set(threading.enumerate()) - before if thread.is_alive()]
    assert not [name for name in left if not name.startswith("AnyIO worker")], left


@asynccontextmanager
async def _serving(settings: Settings) -> AsyncIterator[str]:
    application = Application(settings)
    listener = socket.create_server(("127.0.0.1", 0))
    config = server_config(application.starlette(), application.limits, host="127.0.0.1", port=0)
    server, ended = uvicorn.Server(config), anyio.Event()

    async def serve() -> None:
        await server.serve(sockets=[listener])
        ended.set()

    with listener:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve)
            while not server.started:  # noqa: ASYNC110 - rejected: uvicorn offers a flag and no event
                await anyio.sleep(0.01)
            try:
                yield f"127.0.0.1:{listener.getsockname()[1]}"
            finally:
                server.should_exit = True
                with anyio.move_on_after(PATIENCE_S, shield=True):
                    await ended.wait()


async def _tasks() -> list[anyio.TaskInfo]:
    own = anyio.get_current_task().id
    return [task for task in anyio.get_running_tasks() if task.id != own]


def _until(holds: Callable[[], bool], what: str, patience_s: float = PATIENCE_S) -> None:
    give_up_at = time.monotonic() + patience_s
    while not holds():
        assert time.monotonic() < give_up_at, f"the server is not {what}"
        time.sleep(0.02)
