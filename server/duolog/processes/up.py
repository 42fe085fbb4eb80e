"""`duolog up`: from settings to running children, until Ctrl-C."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence

import anyio
from anyio.abc import TaskStatus

from duolog.ports.errors import DuologError
from duolog.processes.child import ChildSpec
from duolog.processes.children import claims, page_url
from duolog.processes.port_claims import check_ports
from duolog.processes.supervisor import Supervisor
from duolog.settings import Settings

Say = Callable[[str], None]


async def up(settings: Settings, specs: Sequence[ChildSpec], say: Say) -> None:
    """Run everything until SIGINT, SIGTERM or SIGHUP. Raises ConfigurationError, EngineUnavailable, EngineTimeout."""
    check_ports(claims(settings))
    started = anyio.current_time()

    def report(name: str, line: str) -> None:
        say(f"  {name:<8} {line}")

    def ready() -> None:
        seconds = anyio.current_time() - started
        say(f"\nDuolog is ready after {seconds:.0f} s: open {page_url(settings)}  (Ctrl-C stops it)\n")

    supervisor = Supervisor(specs, settings.processes, settings.logging.folder, report)
    say(f"Starting {', '.join(spec.name for spec in specs)}; logs are in {settings.logging.folder}/")
    failure: DuologError | None = None
    async with anyio.create_task_group() as group:
        await group.start(_cancel_on_signal, group.cancel_scope, say)
        try:
            await supervisor.run(ready)
        except DuologError as error:
            failure = error
        group.cancel_scope.cancel()
    if failure is not None:
        raise failure


async def _cancel_on_signal(everything: anyio.CancelScope, say: Say, *, task_status: TaskStatus[None]) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
        task_status.started()
        async for _ in signals:
            say("\nStopping")
            everything.cancel()
