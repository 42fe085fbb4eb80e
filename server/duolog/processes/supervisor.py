"""Keeps children running: starts them in order, says when they are ready, restarts what crashes, leaves nothing behind.

Runs on asyncio, in the main thread (see `Child.start`). Knows nothing of what the children are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import anyio

from duolog.ports.errors import DuologError, EngineTimeout, EngineUnavailable
from duolog.processes.backoff import Backoff
from duolog.processes.child import Child, ChildSpec, explain_status, last_lines, prepare_log
from duolog.settings import ProcessSettings

PROBE_INTERVAL_S = 0.2
PROGRESS_INTERVAL_S = 8.0

Report = Callable[[str, str], None]
"""Called with a child's name and one line about it."""


class Supervisor:
    """The children of one `duolog up`."""

    def __init__(self, specs: Sequence[ChildSpec], options: ProcessSettings, logs: Path, report: Report) -> None:
        """`specs` in starting order; they are stopped in the reverse."""
        self._specs = tuple(specs)
        self._options = options
        self._report = report
        self._logs = {spec.name: logs / f"{spec.name}.log" for spec in specs}
        self._log_folder = logs
        self._ready = {spec.name: anyio.Event() for spec in specs}
        self._running: dict[str, Child] = {}
        self._waits = {spec.name: "" for spec in specs}
        self._loading: dict[str, float] = {}
        """Children that run and are not ready yet, with the time of their start."""
        self._failure: DuologError | None = None
        self._scope = anyio.CancelScope()

    async def run(self, on_ready: Callable[[], None]) -> None:
        """Run until cancelled; `on_ready` is called once, when every child is ready.

        Raises EngineUnavailable where a child ends before it is ready or crashes too often, EngineTimeout where it does
        not become ready. However this ends, no child is left.
        """
        for spec in self._specs:
            self._logs[spec.name] = prepare_log(self._log_folder, spec.name)
        try:
            async with anyio.create_task_group() as group:
                self._scope = group.cancel_scope
                for spec in self._specs:
                    group.start_soon(self._keep, spec)
                for event in self._ready.values():
                    await event.wait()
                on_ready()
        finally:
            await self._stop_all()
        if self._failure is not None:
            raise self._failure

    def _fail(self, error: DuologError) -> None:
        """End everything because of what restarting cannot mend; the first reason is the one that is told."""
        self._failure = self._failure or error
        self._scope.cancel()

    async def _stop_all(self) -> None:
        for spec in reversed(self._specs):
            if (child := self._running.pop(spec.name, None)) is not None:
                await child.stop()
                self._report(spec.name, "stopped")

    async def _keep(self, spec: ChildSpec) -> None:
        """Run one child again and again."""
        for name in spec.after:
            await self._ready[name].wait()
        options = self._options
        backoff = Backoff(options.restart_first_s, options.restart_max_s, options.restart_limit)
        while True:
            alive_s, status = await self._run_once(spec)
            try:
                delay_s = self._delay_after(spec, backoff, alive_s, status)
            except EngineUnavailable as error:
                return self._fail(error)
            await anyio.sleep(delay_s)

    async def _run_once(self, spec: ChildSpec) -> tuple[float, int]:
        """From start to end; returns the seconds it lived and its exit status."""
        started = anyio.current_time()
        self._report(spec.name, "starting")
        with anyio.CancelScope(shield=True):
            child = await Child.start(spec, self._logs[spec.name], self._options.stop_grace_s)
            self._running[spec.name] = child
        self._loading[spec.name] = started
        async with anyio.create_task_group() as group:
            group.start_soon(self._watch_start, spec, started)
            status = await child.wait()
            group.cancel_scope.cancel()
        self._loading.pop(spec.name, None)
        del self._running[spec.name]
        return anyio.current_time() - started, status

    async def _watch_start(self, spec: ChildSpec, started: float) -> None:
        """Say when the child is ready, and every few seconds that it is not yet; fail when the time is over."""
        next_line = started + PROGRESS_INTERVAL_S
        with anyio.move_on_after(self._options.ready_timeout_s):
            while (parts := await spec.waits_for()) is not None:
                self._waits[spec.name] = self._explain(spec, parts)
                await anyio.sleep(PROBE_INTERVAL_S)
                if anyio.current_time() >= next_line:
                    next_line += PROGRESS_INTERVAL_S
                    seconds = anyio.current_time() - started
                    self._report(spec.name, f"still starting, {seconds:.0f} s{self._waits[spec.name]}")
            self._report(spec.name, f"ready after {anyio.current_time() - started:.1f} s")
            self._ready[spec.name].set()
            self._loading.pop(spec.name, None)
            return
        self._fail(
            EngineTimeout(
                f"{spec.name} was not ready within {self._options.ready_timeout_s:g} s{self._waits[spec.name]}; "
                f"look into {self._logs[spec.name]}, or raise `processes.ready_timeout_s`.",
                engine=spec.name,
            )
        )

    def _explain(self, spec: ChildSpec, parts: Mapping[str, str]) -> str:
        """What a child waits for, and why it takes so long, in brackets."""
        waits = [f"{name}: {self._loads(spec, name) or detail}" for name, detail in parts.items()]
        told = "; ".join([*waits, spec.takes_long] if spec.takes_long else waits)
        return f" ({told})" if told else ""

    def _loads(self, spec: ChildSpec, part: str) -> str:
        """Of a part that this supervisor's own children are: how long they load; empty once one of them is ready."""
        own = spec.provided.get(part, ())
        if not own or any(name not in self._loading for name in own):
            return ""
        return f"loading ({anyio.current_time() - min(self._loading[name] for name in own):.0f} s)"

    def _delay_after(self, spec: ChildSpec, backoff: Backoff, alive_s: float, status: int) -> float:
        """Seconds until the restart. Raises EngineUnavailable where there shall be none."""
        ending, log = explain_status(status), self._logs[spec.name]
        if not self._ready[spec.name].is_set():
            raise EngineUnavailable(
                f"{spec.name} {ending} before it was ready; {log} ends with:\n{last_lines(log)}", engine=spec.name
            )
        delay_s = backoff.after_crash(alive_s)
        if delay_s is None:
            raise EngineUnavailable(
                f"{spec.name} {ending}, and too often to go on; {log} ends with:\n{last_lines(log)}", engine=spec.name
            )
        self._report(spec.name, f"{ending} after {alive_s:.0f} s; starting it again in {delay_s:g} s (log: {log})")
        return delay_s
