"""How a vLLM is, from its page of metrics. Only the few lines that are needed are read: the page is long."""

from __future__ import annotations

import re
from collections.abc import Mapping

import anyio
import httpx

from duolog.adapters.openai_stream import error_of_exception, error_of_status
from duolog.ports.errors import EngineProtocolError
from duolog.ports.replicas import ReplicaStats

TIMEOUT_S = 2.0
_LINE = re.compile(
    r"^vllm:(num_requests_running|num_requests_waiting|kv_cache_usage_perc|cache_config_info"
    r"|prompt_tokens_created)(?:\{([^}]*)\})? (\S+)$",
    re.MULTILINE,
)
_KV_TOKENS = re.compile(r'kv_cache_size_tokens="(\d+)"')
_BLOCKS = re.compile(r'num_gpu_blocks="(\d+)"')
_BLOCK_SIZE = re.compile(r'[{,]block_size="(\d+)"')


def parse_stats(page: str) -> ReplicaStats | None:
    """None where it is no vLLM's page. With several engines the figures are sums, the usage is the highest."""
    found: dict[str, list[tuple[str, float]]] = {}
    for name, labels, value in _LINE.findall(page):
        found.setdefault(name, []).append((labels, float(value)))
    if "num_requests_running" not in found:
        return None
    return ReplicaStats(
        epoch=",".join(f"{value:.3f}" for _, value in found.get("prompt_tokens_created", [])),
        kv_tokens=sum(_kv_tokens("{" + labels) for labels, _ in found.get("cache_config_info", [])) or None,
        kv_usage_ratio=max((value for _, value in found.get("kv_cache_usage_perc", [])), default=0.0),
        running=int(sum(value for _, value in found["num_requests_running"])),
        waiting=int(sum(value for _, value in found.get("num_requests_waiting", []))),
    )


def _kv_tokens(labels: str) -> int:
    if match := _KV_TOKENS.search(labels):
        return int(match[1])
    blocks, size = _BLOCKS.search(labels), _BLOCK_SIZE.search(labels)
    return int(blocks[1]) * int(size[1]) if blocks and size else 0


class VllmMonitor:
    """Asks each replica at its own address."""

    def __init__(self, base_urls: Mapping[str, str], api_key: str | None = None) -> None:
        """`base_urls`: replica → address with `/v1`."""
        self._base_urls = dict(base_urls)
        self._client = httpx.AsyncClient(
            headers={"Authorization": f"Bearer {api_key}"} if api_key else {},
            timeout=TIMEOUT_S,
            trust_env=False,
            verify=any(url.startswith("https:") for url in base_urls.values()),
        )

    async def stats(self, replica: str) -> ReplicaStats:
        root = self._base_urls[replica].rstrip("/").removesuffix("/v1")
        try:
            answer = await self._client.get(f"{root}/metrics")
        except (httpx.HTTPError, OSError) as error:
            raise error_of_exception(error, replica) from error
        if answer.status_code != httpx.codes.OK:
            raise error_of_status(answer.status_code, "", replica)
        stats = parse_stats(answer.text)
        if stats is None:
            raise EngineProtocolError(f"The language model at {replica} has no metrics of vLLM.", engine="llm")
        return stats

    async def aclose(self) -> None:
        with anyio.move_on_after(TIMEOUT_S, shield=True):
            await self._client.aclose()
