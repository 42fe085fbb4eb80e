"""Watches requests in the engine: teaches the predictor, and says in the metrics how well it predicts.

Knows no engine and no clock: the batcher tells it what happened when.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from duolog.ports.llm import TokenUsage
from duolog.serving.policies import FlightRequest, QueuedRequest
from duolog.serving.predictor import DecodeWork, PrefillWork, ServiceTimePredictor
from duolog.serving.prefill_work import prefill_work
from duolog.telemetry import metrics

FEWEST_TOKENS = 4
"""An answer with fewer says nothing of the pace."""
HELD_SHARE = 0.1
"""An answer whose reader was slow for a greater share of its time says nothing of the pace."""


class _Load:
    """What one replica has done so far, as running sums."""

    def __init__(self) -> None:
        self.decoding = 0
        self.decoding_seconds = 0.0
        """Requests that decode, summed over time."""
        self.prompt_tokens = 0
        self._at = 0.0

    def advance(self, now: float) -> None:
        self.decoding_seconds += self.decoding * (now - self._at)
        self._at = now


@dataclass(slots=True)
class _Watched:
    queued: QueuedRequest
    entered_at: float
    work: PrefillWork
    predicted_s: float
    first_token_at: float | None = None
    decoding_seconds: float = 0.0
    """Of the replica, when its first token came, as the next."""
    prompt_tokens: int = 0


class ServiceTimes:
    """Of one batcher."""

    def __init__(self, predictor: ServiceTimePredictor) -> None:
        self.predictor = predictor
        self._watched: dict[int, _Watched] = {}
        self._loads: dict[str, _Load] = {}

    def entered(self, queued: QueuedRequest, in_flight: Iterable[FlightRequest], now: float) -> None:
        """`queued` has entered its replica, where `in_flight` (without it) is at work."""
        beside = [flight for flight in in_flight if flight.queued.replica == queued.replica]
        work = prefill_work(self.predictor, queued, beside, now)
        predicted_s = self.predictor.first_token_s(queued.replica, work)
        self._watched[queued.ticket] = _Watched(queued, now, work, predicted_s)
        metrics.BATCH_OCCUPANCY.labels(queued.replica).observe(len(beside) + 1)

    def first_token(self, ticket: int, now: float) -> None:
        if (watched := self._watched.get(ticket)) is None:
            return
        load = self._load(watched.queued.replica, now)
        load.decoding += 1
        load.prompt_tokens += watched.queued.uncached_tokens
        watched.first_token_at = now
        watched.decoding_seconds, watched.prompt_tokens = load.decoding_seconds, load.prompt_tokens
        metrics.FIRST_TOKEN_SECONDS.labels(watched.queued.klass.name.lower()).observe(now - watched.queued.arrived_at)
        _export_ratio(watched, now - watched.entered_at)

    def ended(self, ticket: int, usage: TokenUsage | None, held_s: float, now: float) -> None:
        """It is out of the engine. `usage` None: not in its regular way, and nothing is learnt from it.

        `held_s`: how long it waited for its reader after the first token.
        """
        if (watched := self._watched.pop(ticket, None)) is None:
            return
        load = self._load(watched.queued.replica, now)
        if watched.first_token_at is not None:
            load.decoding -= 1
        elif usage is not None:  # a prefill: its end is what was waited for
            load.prompt_tokens += watched.queued.uncached_tokens
            _export_ratio(watched, now - watched.entered_at)
        if usage is not None:
            self._learn_first_token(watched, usage, now)
            self._learn_pace(watched, usage, held_s, now)

    def _learn_first_token(self, watched: _Watched, usage: TokenUsage, now: float) -> None:
        replica, work = watched.queued.replica, watched.work
        if usage.prompt_tokens:
            computed = max(1, usage.prompt_tokens - usage.cached_tokens)
            work = PrefillWork(computed, usage.cached_tokens, work.shared_tokens, work.decoding)
        actual_s = (watched.first_token_at or now) - watched.entered_at
        self.predictor.saw_first_token(replica, work, watched.predicted_s, actual_s)
        metrics.PREDICTION_ERROR.labels(replica).set(self.predictor.error_ratio(replica))

    def _learn_pace(self, watched: _Watched, usage: TokenUsage, held_s: float, now: float) -> None:
        replica, began = watched.queued.replica, watched.first_token_at
        if began is None or usage.completion_tokens < FEWEST_TOKENS:
            return
        span_s, tokens = now - began, usage.completion_tokens - 1
        if span_s <= 0 or held_s > HELD_SHARE * span_s:
            return
        load = self._loads[replica]
        others = max(0.0, (load.decoding_seconds - watched.decoding_seconds) / span_s - 1)
        work = DecodeWork(others, (load.prompt_tokens - watched.prompt_tokens) / tokens)
        self.predictor.saw_decoding(replica, work, span_s / tokens)

    def _load(self, replica: str, now: float) -> _Load:
        load = self._loads.setdefault(replica, _Load())
        load.advance(now)
        return load


def _export_ratio(watched: _Watched, actual_s: float) -> None:
    metrics.PREDICTION_RATIO.labels(watched.queued.klass.name.lower()).observe(actual_s / watched.predicted_s)
