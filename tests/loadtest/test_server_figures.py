"""What is read out of the server's /metrics."""

from __future__ import annotations

import pytest

from duolog.loadtest.server_figures import (
    ServerFigures,
    ServerSample,
    metrics_url,
    parse_scrape,
    sample_of,
    scrape,
    server_figures,
)

BEFORE = """
# TYPE duolog_calls_active gauge
duolog_calls_active 1
# TYPE duolog_speculations counter
duolog_speculations_total{outcome="used"} 10
# TYPE duolog_prompt_tokens counter
duolog_prompt_tokens_total{source="cached"} 100
duolog_prompt_tokens_total{source="computed"} 100
# TYPE process_resident_memory_bytes gauge
process_resident_memory_bytes 104857600
# TYPE duolog_tasks gauge
duolog_tasks 20
# TYPE duolog_loop_lag_seconds histogram
duolog_loop_lag_seconds_bucket{le="0.001"} 100
duolog_loop_lag_seconds_bucket{le="0.01"} 100
duolog_loop_lag_seconds_bucket{le="+Inf"} 100
"""
AFTER = """
# TYPE duolog_calls_active gauge
duolog_calls_active 0
# TYPE duolog_speculations counter
duolog_speculations_total{outcome="used"} 14
duolog_speculations_total{outcome="wasted"} 3
# TYPE duolog_drops counter
duolog_drops_total{what="transcript",reason="silence"} 2
# TYPE duolog_prompt_tokens counter
duolog_prompt_tokens_total{source="cached"} 400
duolog_prompt_tokens_total{source="computed"} 200
# TYPE inference_request_queue_size gauge
inference_request_queue_size{class="final"} 2
inference_request_queue_size{class="partial"} 3
# TYPE process_resident_memory_bytes gauge
process_resident_memory_bytes 209715200
# TYPE duolog_tasks gauge
duolog_tasks 21
# TYPE duolog_loop_lag_seconds histogram
duolog_loop_lag_seconds_bucket{le="0.001"} 190
duolog_loop_lag_seconds_bucket{le="0.01"} 200
duolog_loop_lag_seconds_bucket{le="+Inf"} 200
"""


@pytest.mark.pure
def test_the_change_between_two_looks() -> None:
    samples = [ServerSample(1.0, 2, 100, 30, 4, 1), ServerSample(3.0, 2, 100, 30, 7, None)]
    found = server_figures(parse_scrape(BEFORE), parse_scrape(AFTER), samples)
    assert found is not None
    assert found.speculations == {"used": 4, "wasted": 3}
    assert (found.cached_tokens, found.computed_tokens, found.cached_share) == (300, 100, 0.75)
    assert found.drops == {"silence transcript": 2}
    assert found.refused == {}
    assert [found.memory_mib, found.tasks] == [(100, 200), (20, 21)]
    assert (found.worst_queue, found.worst_guard_level) == (7, 1)
    assert found.loop_lag_p99_ms == pytest.approx(9.1)


@pytest.mark.pure
def test_a_server_that_shows_little() -> None:
    bare = parse_scrape("# TYPE up gauge\nup 1\n")
    found = server_figures(bare, bare, [])
    assert found is not None
    assert found == ServerFigures({}, None, None, {}, {}, None, None, None, None, None)
    assert found.cached_share is None


@pytest.mark.pure
def test_a_look_that_failed() -> None:
    bare = parse_scrape("")
    assert server_figures(None, bare, []) is None
    assert server_figures(bare, None, []) is None


@pytest.mark.pure
def test_a_moment() -> None:
    assert sample_of(parse_scrape(AFTER), 1.234) == ServerSample(1.2, 0, 200, 21, 5, None)


@pytest.mark.pure
@pytest.mark.parametrize(
    ("url", "metrics"),
    [
        ("ws://127.0.0.1:8000", "http://127.0.0.1:8000/metrics"),
        ("wss://talk.example.org/v1/realtime", "https://talk.example.org/metrics"),
        ("http://host:1", "http://host:1/metrics"),
    ],
)
def test_where_the_figures_are(url: str, metrics: str) -> None:
    assert metrics_url(url) == metrics


@pytest.mark.real
async def test_nobody_there() -> None:
    assert await scrape("ws://127.0.0.1:9") is None
