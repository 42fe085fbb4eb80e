"""The metrics as a scraper sees them."""

from __future__ import annotations

from itertools import pairwise

import anyio
import pytest
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.parser import text_string_to_metric_families

from duolog.telemetry import metrics
from duolog.telemetry.metrics import REGISTRY, Stage, exposition, record_turn, watch_loop_lag

pytestmark = pytest.mark.session


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def value(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


def test_the_exposition_is_valid_and_holds_the_names_boards_are_built_on() -> None:
    body, content_type = exposition()
    assert content_type.startswith("text/plain")
    names = {family.name for family in text_string_to_metric_families(body.decode())}
    assert names >= {
        "gpu_memory_used_bytes",
        "gpu_memory_allocated_bytes",
        "gpu_memory_total_bytes",
        "inference_request_queue_size",
        "kv_cache_utilization_ratio",
        "duolog_stage_seconds",
        "duolog_voice_to_voice_seconds",
        "duolog_loop_lag_seconds",
        "process_resident_memory_bytes",
    }


def test_openmetrics_is_given_to_who_asks_for_it() -> None:
    body, content_type = exposition("application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    assert body.rstrip().endswith(b"# EOF")


def test_a_turn_fills_the_histograms_of_the_marks_it_reached() -> None:
    before = value("duolog_stage_seconds_count", stage="first_token")
    unreached = value("duolog_stage_seconds_count", stage="transcript")
    record_turn({Stage.FIRST_TOKEN: 310.0, Stage.TRANSCRIPT: None, Stage.FIRST_AUDIO_SENT: 720.0}, persona="test")
    assert value("duolog_stage_seconds_count", stage="first_token") == before + 1
    assert value("duolog_voice_to_voice_seconds_sum", persona="test") == pytest.approx(0.72)
    assert value("duolog_stage_seconds_count", stage="transcript") == unreached


def test_buckets_are_close_where_people_notice() -> None:
    around = [bound for bound in metrics.STAGE_BUCKETS_S if 0.1 <= bound <= 1.0]
    assert all(high / low <= 1.6 for low, high in pairwise(around))


async def test_the_lag_of_the_loop_is_measured() -> None:
    before = value("duolog_loop_lag_seconds_count")
    with anyio.move_on_after(0.25):
        await watch_loop_lag()
    assert value("duolog_loop_lag_seconds_count") > before


BOUNDED = {"persona", "replica", "gpu", "engine", "class", "stage", "cache"} | {
    *("reason", "status", "outcome", "what", "error", "kind", "source", "result", "user", "level", "reading", "cause")
}
"""Labels whose values come from this code, from the settings or from the folder of personas."""


def test_no_metric_has_a_label_of_unbounded_values() -> None:
    labelled = [metric for metric in vars(metrics).values() if isinstance(metric, MetricWrapperBase)]
    assert len(labelled) > 30
    assert {label for metric in labelled for label in metric._labelnames} <= BOUNDED
