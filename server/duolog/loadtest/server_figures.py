"""What the server says of itself at /metrics, before, during and after a load. Absent figures are left out."""

from __future__ import annotations

import functools
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

import httpx
from prometheus_client.parser import text_string_to_metric_families

TIMEOUT_S = 2.0
MIB = 1024 * 1024

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Scrape:
    """All samples of one look at /metrics."""

    values: Mapping[tuple[str, Labels], float]

    def total(self, name: str, **labels: str) -> float | None:
        """The sum over all label sets that have these; None where there is no such sample."""
        wanted = set(labels.items())
        found = [value for (known, given), value in self.values.items() if known == name and wanted <= set(given)]
        return sum(found) if found else None

    def by_labels(self, name: str) -> dict[str, float]:
        """Each label set, its values joined, with its value."""
        return {
            " ".join(value for _, value in labels): number
            for (known, labels), number in self.values.items()
            if known == name
        }


@dataclass(frozen=True, slots=True)
class ServerSample:
    """A moment of the test."""

    at_s: float
    calls: float | None
    memory_mib: float | None
    tasks: float | None
    queue: float | None
    """Requests to the model that wait."""
    guard_level: float | None


@dataclass(frozen=True, slots=True)
class ServerFigures:
    """The change between two looks; None and empty where the server does not say."""

    speculations: Mapping[str, float]
    cached_tokens: float | None
    computed_tokens: float | None
    drops: Mapping[str, float]
    """By what and reason."""
    refused: Mapping[str, float]
    """By reason, as the server counted them."""
    loop_lag_p99_ms: float | None
    worst_guard_level: float | None
    worst_queue: float | None
    memory_mib: tuple[float, float] | None
    """Before and after."""
    tasks: tuple[float, float] | None

    @property
    def cached_share(self) -> float | None:
        total = (self.cached_tokens or 0.0) + (self.computed_tokens or 0.0)
        return None if self.cached_tokens is None or not total else self.cached_tokens / total


def parse_scrape(text: str) -> Scrape:
    """Raises ValueError where it is no Prometheus exposition."""
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return Scrape({(sample.name, tuple(sorted(sample.labels.items()))): sample.value for sample in samples})


def metrics_url(url: str) -> str:
    """Beside the call's address."""
    parts = urlsplit(url)
    scheme = {"ws": "http", "wss": "https"}.get(parts.scheme, parts.scheme)
    return urlunsplit((scheme, parts.netloc, "/metrics", "", ""))


async def scrape(url: str) -> Scrape | None:
    """None where the server does not show its figures: a load test goes on without them."""
    try:
        async with httpx.AsyncClient(timeout=TIMEOUT_S, trust_env=False, verify=_tls()) as client:
            answer = await client.get(metrics_url(url))
        return parse_scrape(answer.text) if answer.is_success else None
    except (httpx.HTTPError, ValueError):
        return None


@functools.cache
def _tls() -> ssl.SSLContext:
    """Made once: reading the certificates takes some 100 ms, and the callers share this loop."""
    return httpx.create_ssl_context()


def sample_of(seen: Scrape, at_s: float) -> ServerSample:
    memory = seen.total("process_resident_memory_bytes")
    return ServerSample(
        at_s=round(at_s, 1),
        calls=seen.total("duolog_calls_active"),
        memory_mib=None if memory is None else round(memory / MIB, 1),
        tasks=seen.total("duolog_tasks"),
        queue=seen.total("inference_request_queue_size"),
        guard_level=seen.total("duolog_guard_level"),
    )


def server_figures(
    before: Scrape | None, after: Scrape | None, samples: Sequence[ServerSample]
) -> ServerFigures | None:
    """None where either look is missing."""
    if before is None or after is None:
        return None
    first, last = sample_of(before, 0.0), sample_of(after, 0.0)
    return ServerFigures(
        speculations=_grown(before, after, "duolog_speculations_total"),
        cached_tokens=_difference(before, after, source="cached"),
        computed_tokens=_difference(before, after, source="computed"),
        drops=_grown(before, after, "duolog_drops_total"),
        refused=_grown(before, after, "duolog_calls_refused_total"),
        loop_lag_p99_ms=_lag_quantile_ms(before, after, 0.99),
        worst_guard_level=max((one.guard_level for one in samples if one.guard_level is not None), default=None),
        worst_queue=max((one.queue for one in samples if one.queue is not None), default=None),
        memory_mib=_pair(first.memory_mib, last.memory_mib),
        tasks=_pair(first.tasks, last.tasks),
    )


def _grown(before: Scrape, after: Scrape, name: str) -> dict[str, float]:
    earlier = before.by_labels(name)
    grown = {labels: value - earlier.get(labels, 0.0) for labels, value in after.by_labels(name).items()}
    return {labels: value for labels, value in sorted(grown.items()) if value > 0}


def _difference(before: Scrape, after: Scrape, **labels: str) -> float | None:
    now = after.total("duolog_prompt_tokens_total", **labels)
    return None if now is None else now - (before.total("duolog_prompt_tokens_total", **labels) or 0.0)


def _lag_quantile_ms(before: Scrape, after: Scrape, share: float) -> float | None:
    """Within the bucket it falls into, evenly; the last bound for what lies beyond all of them."""
    grown: list[tuple[float, float]] = []
    for (name, labels), value in after.values.items():
        if name == "duolog_loop_lag_seconds_bucket":
            grown.append((float(dict(labels)["le"]), value - before.values.get((name, labels), 0.0)))
    grown.sort()
    if not grown or not grown[-1][1]:
        return None
    wanted, low_s, below = share * grown[-1][1], 0.0, 0.0
    for bound_s, count in grown:
        if count >= wanted:
            high_s = low_s if bound_s == float("inf") else bound_s
            inside = (wanted - below) / (count - below) if count > below else 0.0
            return round((low_s + (high_s - low_s) * inside) * 1000, 2)
        low_s, below = bound_s, count
    return None


def _pair(first: float | None, last: float | None) -> tuple[float, float] | None:
    return None if first is None or last is None else (first, last)
