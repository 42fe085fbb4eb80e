"""Is a child ready? Each probe answers None if so, else the parts the child waits for, as far as it says."""

from __future__ import annotations

from collections.abc import Mapping

import anyio
import httpx
from pydantic import BaseModel, ValidationError

from duolog.processes.child import Probe

PROBE_TIMEOUT_S = 2.0


def answers_http(url: str) -> Probe:
    """Ready once `url` answers 200. The certificate is not checked: the address is this machine's own."""

    async def probe() -> Mapping[str, str] | None:
        try:
            async with httpx.AsyncClient(verify=False, timeout=PROBE_TIMEOUT_S, trust_env=False) as client:
                answer = await client.get(url)
        except httpx.HTTPError:
            return {}
        return None if answer.status_code == httpx.codes.OK else _unready_parts(answer)

    return probe


def _unready_parts(answer: httpx.Response) -> dict[str, str]:
    """What `/readyz` of the server says about the parts that are not ready; nothing for other servers."""
    try:
        parts = _Readiness.model_validate_json(answer.content).parts
    except ValidationError:
        return {}
    return {name: part.detail for name, part in parts.items() if not part.ready}


class _Part(BaseModel):
    ready: bool
    detail: str = ""


class _Readiness(BaseModel):
    parts: dict[str, _Part]


def answers_ping(host: str, port: int) -> Probe:
    """Ready once a Redis or Valkey server answers PING."""

    async def probe() -> Mapping[str, str] | None:
        try:
            with anyio.fail_after(PROBE_TIMEOUT_S):
                async with await anyio.connect_tcp(host, port) as stream:
                    await stream.send(b"PING\r\n")
                    return None if (await stream.receive(64)).startswith(b"+PONG") else {}
        except (OSError, TimeoutError, anyio.EndOfStream, anyio.BrokenResourceError):
            return {}

    return probe
