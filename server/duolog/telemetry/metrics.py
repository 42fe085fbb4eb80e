"""Every Prometheus metric of the server, in one place. docs/metrics.md says how to read them.

Callers use the metric objects as they are (`CALLS_ACTIVE.inc()`); labels take only the few values their comment names.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import anyio
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import choose_encoder

REGISTRY = CollectorRegistry(auto_describe=True)

STAGE_BUCKETS_S = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.65, 0.8, 1.0, 1.3, 1.7, 2.5, 4.0, 8.0)
"""Close together where a person notices the difference: from 100 ms to 1 s."""
LAG_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0)
LAG_INTERVAL_S = 0.1
TASKS_EVERY = 10
"""Measurements of the lag between two counts of tasks."""


class Stage(StrEnum):
    """Marks of one spoken turn, each counted from the last voiced sample."""

    ENDPOINT = "endpoint"
    TRANSCRIPT = "transcript"
    ADMITTED = "admitted"
    FIRST_TOKEN = "first_token"
    FIRST_PHRASE = "first_phrase"
    FIRST_AUDIO = "first_audio"
    FIRST_AUDIO_SENT = "first_audio_sent"


# Calls and turns
CALLS_ACTIVE = Gauge("duolog_calls_active", "Calls in progress.", registry=REGISTRY)
CALLS = Counter("duolog_calls", "Calls that have begun.", ["persona"], registry=REGISTRY)
CALLS_REFUSED = Counter("duolog_calls_refused", "Calls refused.", ["reason"], registry=REGISTRY)
CALLS_RESUMED = Counter("duolog_calls_resumed", "Calls taken up again after a dropped connection.", registry=REGISTRY)
TURNS = Counter("duolog_turns", "Answers that ended, by how.", ["status"], registry=REGISTRY)
BARGE_INS = Counter(
    "duolog_barge_ins", "Sounds during an answer, by what became of it.", ["outcome"], registry=REGISTRY
)
SPECULATIONS = Counter("duolog_speculations", "Answers begun before the turn ended.", ["outcome"], registry=REGISTRY)
PLAYOUT_UNDERRUNS = Counter(
    "duolog_playout_underruns", "Times a client had played all of an answer before more of it came.", registry=REGISTRY
)
DROPS = Counter("duolog_drops", "Work dropped on purpose.", ["what", "reason"], registry=REGISTRY)

# Latency
STAGE_SECONDS = Histogram(
    "duolog_stage_seconds",
    "From the last voiced sample to each mark of a turn.",
    ["stage"],
    buckets=STAGE_BUCKETS_S,
    registry=REGISTRY,
)
VOICE_TO_VOICE_SECONDS = Histogram(
    "duolog_voice_to_voice_seconds",
    "From the last voiced sample to the first audio sent, by persona.",
    ["persona"],
    buckets=STAGE_BUCKETS_S,
    registry=REGISTRY,
)
LOOP_LAG_SECONDS = Histogram(
    "duolog_loop_lag_seconds",
    "How late the event loop woke a task that slept.",
    buckets=LAG_BUCKETS_S,
    registry=REGISTRY,
)
TASKS = Gauge("duolog_tasks", "Tasks of the event loop.", registry=REGISTRY)

# Engines
ENGINE_SECONDS = Histogram(
    "duolog_engine_seconds",
    "Time one request spent in an engine.",
    ["engine", "kind"],
    buckets=STAGE_BUCKETS_S,
    registry=REGISTRY,
)
RECOGNIZER_BATCH = Histogram(
    "duolog_recognizer_batch_requests",
    "Requests that the recognizer computed together.",
    buckets=(1, 2, 4, 8, 16),
    registry=REGISTRY,
)
ENGINE_ERRORS = Counter("duolog_engine_errors", "Failures of an engine.", ["engine", "error"], registry=REGISTRY)
ENGINE_READY = Gauge("duolog_engine_ready", "1 where the engine is warm and answers.", ["engine"], registry=REGISTRY)
ENGINE_QUEUE = Gauge("duolog_engine_queue", "Jobs that wait for a speech engine.", ["engine"], registry=REGISTRY)
PROMPT_TOKENS = Counter("duolog_prompt_tokens", "Prompt tokens, cached or computed.", ["source"], registry=REGISTRY)
COMPLETION_TOKENS = Counter("duolog_completion_tokens", "Tokens generated.", registry=REGISTRY)
SESSIONS_UNSAVED = Gauge("duolog_sessions_unsaved", "Sessions that wait to be written to the store.", registry=REGISTRY)

# Batcher
REQUEST_QUEUE_SIZE = Gauge(
    "inference_request_queue_size", "LLM requests that wait in the batcher.", ["class"], registry=REGISTRY
)
REQUESTS_IN_FLIGHT = Gauge(
    "inference_requests_in_flight", "LLM requests that the engine works on.", ["class"], registry=REGISTRY
)
QUEUE_SECONDS = Histogram(
    "inference_request_queue_seconds",
    "Time an LLM request waited in the batcher.",
    ["class"],
    buckets=STAGE_BUCKETS_S,
    registry=REGISTRY,
)
FIRST_TOKEN_SECONDS = Histogram(
    "inference_first_token_seconds",
    "From an LLM request's arrival in the batcher to its first token.",
    ["class"],
    buckets=STAGE_BUCKETS_S,
    registry=REGISTRY,
)
REQUESTS_ENDED = Counter(
    "inference_requests_ended", "LLM requests that ended, by how.", ["class", "outcome"], registry=REGISTRY
)
REQUEST_ABORTED_SECONDS = Counter(
    "inference_request_aborted_seconds",
    "Time in the engine of LLM requests that were aborted there.",
    ["class"],
    registry=REGISTRY,
)
REQUESTS_DROPPED = Counter(
    "inference_requests_dropped",
    "LLM requests given up or refused by the batcher.",
    ["class", "reason"],
    registry=REGISTRY,
)
BATCH_OCCUPANCY = Histogram(
    "inference_batch_occupancy",
    "LLM requests in the engine, counted as each enters.",
    ["replica"],
    buckets=(1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128),
    registry=REGISTRY,
)
PREDICTION_RATIO = Histogram(
    "inference_first_token_prediction_ratio",
    "Actual time to the first token, from entry, divided by the predicted.",
    ["class"],
    buckets=(0.25, 0.5, 0.67, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 4.0),
    registry=REGISTRY,
)
PREDICTION_ERROR = Gauge(
    "inference_prediction_error_ratio",
    "Mean error of the predicted time to the first token, as a share of the actual.",
    ["replica"],
    registry=REGISTRY,
)
KV_CACHE_UTILIZATION = Gauge(
    "kv_cache_utilization_ratio", "Share of the KV cache in use by running requests.", ["replica"], registry=REGISTRY
)

# Caches
CACHE_LOOKUPS = Counter(
    "duolog_cache_lookups", "Looks into a cache, by where it was found.", ["cache", "result"], registry=REGISTRY
)
CACHE_BYTES = Gauge("duolog_cache_bytes", "Memory of a cache in this process.", ["cache"], registry=REGISTRY)
REPEATS = Counter(
    "duolog_repeats", "Requests that came again, by what became of them.", ["kind", "outcome"], registry=REGISTRY
)
STORE_SKIPPED = Counter(
    "duolog_store_skipped", "Commands not sent because the store is down or slow.", ["user"], registry=REGISTRY
)

WARM_UPS = Counter(
    "duolog_warm_ups",
    "Personas whose prompt was computed ahead, by how it ended.",
    ["reason", "outcome"],
    registry=REGISTRY,
)

# KV pins
PIN_SESSIONS = Gauge("kv_pin_sessions", "Sessions whose KV blocks are kept warm.", ["replica"], registry=REGISTRY)
PIN_TOKENS = Gauge("kv_pin_tokens", "Tokens of the kept sessions' distinct blocks.", ["replica"], registry=REGISTRY)
PIN_RESIDENT_RATIO = Gauge(
    "kv_pin_resident_ratio", "Share of the kept blocks that the replica holds.", ["replica"], registry=REGISTRY
)
PIN_TOUCHES = Counter("kv_pin_touches", "Requests that kept a session's blocks warm.", ["reason"], registry=REGISTRY)
PIN_LOST = Counter("kv_pin_lost", "Kept sessions whose blocks were lost.", ["cause"], registry=REGISTRY)
PIN_DISAGREEMENTS = Counter(
    "kv_pin_disagreements", "Requests that had fewer cached tokens than was held.", ["replica"], registry=REGISTRY
)
CACHED_TOKENS_RATIO = Gauge(
    "llm_cached_tokens_ratio", "Share of prompt tokens that the replica had cached.", ["replica"], registry=REGISTRY
)

# Load
GUARD_LEVEL = Gauge("duolog_guard_level", "What the server gives up under load: 0 nothing, to 5.", registry=REGISTRY)
GUARD_READING = Gauge("duolog_guard_reading", "What the load guard goes by.", ["reading"], registry=REGISTRY)
GUARD_QUEUE_AGE = Gauge(
    "duolog_guard_queue_age_seconds", "How long the oldest of a queue has waited.", ["class"], registry=REGISTRY
)
GUARD_TRANSITIONS = Counter(
    "duolog_guard_transitions", "Steps of the load guard.", ["level", "reading"], registry=REGISTRY
)
GPU_MEMORY_USED = Gauge("gpu_memory_used_bytes", "Memory in use on the GPU, by anybody.", ["gpu"], registry=REGISTRY)
GPU_MEMORY_ALLOCATED = Gauge(
    "gpu_memory_allocated_bytes", "Memory held by compute programs on the GPU.", ["gpu"], registry=REGISTRY
)
GPU_MEMORY_TOTAL = Gauge("gpu_memory_total_bytes", "Memory of the GPU.", ["gpu"], registry=REGISTRY)
GPU_UTILIZATION = Gauge("gpu_utilization_ratio", "Share of time in which the GPU computed.", ["gpu"], registry=REGISTRY)

ProcessCollector(registry=REGISTRY)


def record_turn(marks_ms: Mapping[Stage, float | None], persona: str) -> None:
    """Put the marks of a finished turn into the histograms; None: the mark was not reached."""
    for stage, milliseconds in marks_ms.items():
        if milliseconds is not None:
            STAGE_SECONDS.labels(stage).observe(milliseconds / 1000)
    if (heard_ms := marks_ms.get(Stage.FIRST_AUDIO_SENT)) is not None:
        VOICE_TO_VOICE_SECONDS.labels(persona).observe(heard_ms / 1000)


def exposition(accept: str = "") -> tuple[bytes, str]:
    """All metrics as a scraper asks for them by its Accept header: body and content type."""
    encode, content_type = choose_encoder(accept)
    return encode(REGISTRY), content_type


async def watch_loop_lag() -> None:
    """Measure how late this loop is and count its tasks, until cancelled."""
    while True:
        TASKS.set(len(anyio.get_running_tasks()))
        for _ in range(TASKS_EVERY):
            due = anyio.current_time() + LAG_INTERVAL_S
            await anyio.sleep_until(due)
            LOOP_LAG_SECONDS.observe(max(0.0, anyio.current_time() - due))
