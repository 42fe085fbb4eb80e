"""Starts what is measured as its users do, waits until it is ready, and ends it; touches no other process."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import httpx
from anyio.abc import Process

from duolog.loadtest.failures import CallFailed

ROOT = Path(__file__).resolve().parent.parent
PERSONAS = ROOT / "benchmarks" / "personas"
READY_TIMEOUT_S = 240.0
STOP_GRACE_S = 20.0
SCRIPTED = {f"DUOLOG__{part}__ENGINE": "scripted" for part in ("ASR", "VAD", "LLM", "TTS")}
"""Engines without models and without delay: what is left is our own code."""


@dataclass(frozen=True, slots=True)
class Stack:
    """A running `duolog up`."""

    url: str
    """For callers, e.g. `ws://127.0.0.1:43210`."""
    llm_url: str
    """Its LLM server, which the peer uses too."""


@asynccontextmanager
async def duolog_stack(
    profile: str, *, scripted: bool = False, caches: bool = False, log: Path, more: Mapping[str, str] | None = None
) -> AsyncIterator[Stack]:
    """`duolog up` on free ports with the benchmark personas. Raises CallFailed where it does not come up.

    `caches` False: nothing is remembered from one question to the next, so that the engines are measured.
    `more`: further settings, as environment variables.
    """
    server, llm, store = free_ports(3)
    settings = {
        "DUOLOG__PROFILE": profile,
        "DUOLOG__SERVER__PORT": str(server),
        "DUOLOG__LLM__PORT": str(llm),
        "DUOLOG__STORE__PORT": str(store),
        "DUOLOG__PERSONAS__FOLDER": str(PERSONAS),
        "DUOLOG__PERSONAS__DEFAULT": "bench",
        "DUOLOG__CACHE__PROMPTS": str(caches).lower(),
        "DUOLOG__CACHE__SPEECH": str(caches).lower(),
        **(SCRIPTED if scripted else {}),
        **(more or {}),
    }
    command = [sys.executable, "-m", "duolog", "up"]
    async with running(command, settings, f"http://127.0.0.1:{server}/readyz", log):
        yield Stack(f"ws://127.0.0.1:{server}", f"http://127.0.0.1:{llm}/v1")


@asynccontextmanager
async def running(
    command: Sequence[str], environment: Mapping[str, str], ready_url: str, log: Path
) -> AsyncIterator[None]:
    """A child process, from ready to ended. Raises CallFailed where it ends or is not ready in time."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        process = await anyio.open_process(
            command,
            stdin=None,
            stdout=output,
            stderr=output,
            env={**os.environ, **environment},
            cwd=ROOT,
            start_new_session=True,
        )
    try:
        await _until_ready(process, ready_url, log)
        yield
    finally:
        with anyio.CancelScope(shield=True):
            await _end(process)


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [int(one.getsockname()[1]) for one in sockets]
    for one in sockets:
        one.close()
    return ports


async def _until_ready(process: Process, ready_url: str, log: Path) -> None:
    async with httpx.AsyncClient(timeout=2, trust_env=False) as client:
        with anyio.move_on_after(READY_TIMEOUT_S):
            while process.returncode is None:
                if await _answers(client, ready_url):
                    return
                await anyio.sleep(0.5)
            raise CallFailed(f"What was to be measured ended with status {process.returncode}; its output is in {log}.")
    raise CallFailed(f"What was to be measured was not ready within {READY_TIMEOUT_S:.0f} s; its output is in {log}.")


async def _answers(client: httpx.AsyncClient, url: str) -> bool:
    try:
        return (await client.get(url)).is_success
    except httpx.TransportError:
        return False


async def _end(process: Process) -> None:
    """Interrupt it as Ctrl-C does; kill its process group where it does not end."""
    if process.returncode is None:
        process.send_signal(signal.SIGINT)
    with anyio.move_on_after(STOP_GRACE_S):
        await process.wait()
        return
    os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
