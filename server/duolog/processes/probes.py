"""Is a child ready? Each probe answers False for one that is not there yet."""

from __future__ import annotations

import anyio
import httpx

from duolog.processes.child import Probe

PROBE_TIMEOUT_S = 2.0


def answers_http(url: str) -> Probe:
    """Ready once `url` answers 200. The certificate is not checked: the address is this machine's own."""

    async def probe() -> bool:
        try:
            async with httpx.AsyncClient(verify=False, timeout=PROBE_TIMEOUT_S, trust_env=False) as client:
                return (await client.get(url)).status_code == httpx.codes.OK
        except httpx.HTTPError:
            return False

    return probe


def answers_ping(host: str, port: int) -> Probe:
    """Ready once a Redis or Valkey server answers PING."""

    async def probe() -> bool:
        try:
            with anyio.fail_after(PROBE_TIMEOUT_S):
                async with await anyio.connect_tcp(host, port) as stream:
                    await stream.send(b"PING\r\n")
                    return (await stream.receive(64)).startswith(b"+PONG")
        except (OSError, TimeoutError, anyio.EndOfStream, anyio.BrokenResourceError):
            return False

    return probe
