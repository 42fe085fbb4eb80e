"""What a request has before it until its first token, given what its replica is doing. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from duolog.serving.policies.admission import FlightRequest, QueuedRequest
from duolog.serving.predictor import PrefillWork, ServiceTimePredictor, shared_tokens

CHUNK_TOKENS = 128
"""What one prefill gets of an engine's step beside others: vLLM's `--long-prefill-token-threshold`."""


def prefill_work(
    predictor: ServiceTimePredictor,
    request: QueuedRequest,
    beside: Iterable[FlightRequest],
    now: float,
    chunk_tokens: int = CHUNK_TOKENS,
) -> PrefillWork:
    """The work of `request`, entering its replica now. `beside` is in flight there."""
    flights = list(beside)
    remaining = [remaining_tokens(predictor, flight, now) for flight in flights if flight.prefilling]
    return PrefillWork(
        uncached_tokens=request.uncached_tokens,
        cached_tokens=request.cached_tokens,
        shared_tokens=shared_tokens(request.uncached_tokens, remaining, chunk_tokens),
        decoding=sum(not flight.prefilling for flight in flights),
    )


def remaining_tokens(predictor: ServiceTimePredictor, flight: FlightRequest, now: float) -> float:
    """Prompt tokens that a request in flight very likely still has to compute."""
    if not flight.prefilling:
        return 0.0
    total_s = predictor.prefill_s(flight.queued.replica, flight.queued.uncached_tokens)
    done = (now - flight.admitted_at) / total_s if total_s > 0 else 1.0
    return flight.queued.uncached_tokens * max(0.0, 1.0 - done)
