"""`slo`: first tokens in time. Admission in front of continuous batching; adds nothing where the engine is idle.

vLLM lets a prefill that runs keep its share of each step whatever its priority, and a step cannot be stopped. So what
may disturb a final is bounded before it enters:

    finals      in the order of when they must begin, sessions in turn; one long prompt at a time, short ones beside it,
                within a budget of uncached tokens; none that would slow down running answers below the pace of speech;
                none that computes what another is just computing (it waits, and finds it in the cache)
    guesses     speculative answers are finals that come after all others, and take nothing from other calls
    prefills    one at a time, none while a final waits for its first token
    room        a final that arrives aborts other calls' partials and touches
    shed        what a newer request replaces; when finals are late touches, then partials; finals never
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from duolog.serving.policies.admission import (
    Decision,
    Drop,
    DropReason,
    FlightRequest,
    PolicyOptions,
    QueuedRequest,
    RequestClass,
)
from duolog.serving.policies.rules import by_replica, coalesced, merged, superfluous_prefills, urgency
from duolog.serving.predictor import DecodeWork, PrefillWork, ServiceTimePredictor
from duolog.serving.prefill_work import remaining_tokens
from duolog.serving.token_ids import common_prefix

PATIENCE_S = 1.0
"""A prefill of history that has waited so long enters beside finals, and a session's further finals are no longer
behind everybody else's first: nobody starves."""
STALE_PARTIAL_S = 2.0
"""A partial that waited so long is shed: the caption has gone on."""
LATE_TOUCHES_S = 0.5
"""Finals that need so long together: touches are shed."""
LATE_PARTIALS_S = 1.0
"""The same for partials."""
SHARED_TOKENS = 64
"""A beginning that two prompts have in common is worth waiting for from here on: two blocks of vLLM on a CPU."""
PACE_SLACK = 2.0
"""On an engine that is slower than speech when alone, answers may slow one another down by this factor."""


class _Verdict(Enum):
    ENTER = auto()
    PASS = auto()
    """It waits; those behind it may enter."""
    STOP = auto()
    """It waits, and so do all behind it: they would take what it waits for."""


@dataclass(slots=True)
class _Load:
    """What is in flight on one replica, and what was let in by this decision."""

    flights: list[FlightRequest]
    finals: int
    """That generate or will."""
    budget_tokens: float
    """Uncached tokens of finals to be computed, a long prompt counted as one chunk."""
    long_prompts: int


class SloPolicy:
    """Asks the predictor, which the batcher teaches; has no other state."""

    def __init__(self, options: PolicyOptions | None = None, predictor: ServiceTimePredictor | None = None) -> None:
        self._options = options or PolicyOptions()
        self._predictor = predictor or ServiceTimePredictor()

    def decide(self, queue: Sequence[QueuedRequest], in_flight: Sequence[FlightRequest], now: float) -> Decision:
        needless = coalesced(queue)
        dropped = {drop.ticket for drop in needless}
        waiting = [request for request in queue if request.ticket not in dropped]
        decisions = [self._on_replica(*group, now) for group in by_replica(waiting, in_flight)]
        return merged([Decision(abort=tuple(needless)), *decisions])

    def _on_replica(self, queue: list[QueuedRequest], in_flight: list[FlightRequest], now: float) -> Decision:
        finals = [request for request in queue if request.klass.answers]
        entering, look_again_at = self._finals(finals, in_flight, now)
        room = [Drop(flight.queued.ticket, DropReason.MADE_ROOM) for flight in superfluous_prefills(finals, in_flight)]
        shed = self._shed(queue, in_flight, now)
        gone = {drop.ticket for drop in shed}
        prefills = [request for request in queue if not request.klass.answers and request.ticket not in gone]
        prefill, prefill_at = self._prefill(prefills, finals, in_flight, now)
        times = [at for at in (look_again_at, prefill_at) if at is not None]
        return Decision(
            admit=tuple(request.ticket for request in (*entering, *prefill)),
            abort=(*room, *shed),
            look_again_at=min(times, default=None),
        )

    def _finals(
        self, finals: list[QueuedRequest], in_flight: list[FlightRequest], now: float
    ) -> tuple[list[QueuedRequest], float | None]:
        """Those that enter now, and when to look again."""
        if not finals:
            return [], None
        collect_until = self._collect_until(finals, in_flight)
        if now < collect_until:
            return [], collect_until
        load = self._load(in_flight, now)
        entering: list[QueuedRequest] = []
        for request in self._in_order(finals, in_flight, now):
            verdict = self._judge(request, load)
            if verdict is _Verdict.STOP:
                break
            if verdict is _Verdict.ENTER:
                self._add(load, request, now)
                entering.append(request)
        return entering, None

    def _collect_until(self, finals: list[QueuedRequest], in_flight: list[FlightRequest]) -> float:
        """Until when finals are gathered: at once unless a prompt of another call is being computed."""
        sessions = {request.session_id for request in finals}
        if all(not flight.prefilling or flight.queued.session_id in sessions for flight in in_flight):
            return 0.0
        return min(request.arrived_at for request in finals) + self._options.collect_s

    def _in_order(self, finals: list[QueuedRequest], in_flight: list[FlightRequest], now: float) -> list[QueuedRequest]:
        """Guesses last; sessions take turns; among those whose turn it is, who must begin first."""
        turns = Counter(flight.queued.session_id for flight in in_flight if flight.queued.klass.answers)
        rank: dict[int, int] = {}
        for request in sorted(finals, key=lambda request: (request.deadline, request.ticket)):
            rank[request.ticket] = 0 if now - request.arrived_at > PATIENCE_S else turns[request.session_id]
            turns[request.session_id] += 1

        def order(request: QueuedRequest) -> tuple[int, int, float, int]:
            work = PrefillWork(request.uncached_tokens, request.cached_tokens)
            begin_at = request.deadline - self._predictor.first_token_s(request.replica, work)
            return request.klass, rank[request.ticket], begin_at, request.ticket

        return sorted(finals, key=order)

    def _load(self, in_flight: list[FlightRequest], now: float) -> _Load:
        finals = [flight for flight in in_flight if flight.queued.klass.answers]
        remaining = [remaining_tokens(self._predictor, flight, now) for flight in finals]
        chunk = self._options.chunk_tokens
        return _Load(
            flights=list(in_flight),
            finals=len(finals),
            budget_tokens=sum(min(tokens, chunk) for tokens in remaining),
            long_prompts=sum(flight.prefilling and flight.queued.uncached_tokens > chunk for flight in finals),
        )

    def _add(self, load: _Load, request: QueuedRequest, now: float) -> None:
        chunk = self._options.chunk_tokens
        load.flights.append(FlightRequest(request, now, prefilling=True))
        load.finals += 1
        load.budget_tokens += min(request.uncached_tokens, chunk)
        load.long_prompts += request.uncached_tokens > chunk

    def _judge(self, request: QueuedRequest, load: _Load) -> _Verdict:
        if not load.finals:
            return _Verdict.ENTER
        too_many = not self._keeps_pace(request.replica, load.finals)
        if self._options.one_batch_at_a_time:  # nothing enters later and nothing is cached: whoever may be in it is
            return _Verdict.STOP if too_many else _Verdict.ENTER
        chunk = self._options.chunk_tokens
        if too_many or load.budget_tokens + min(request.uncached_tokens, chunk) > self._options.prefill_budget_tokens:
            return _Verdict.STOP
        if load.long_prompts and request.uncached_tokens > chunk:
            return _Verdict.PASS
        if any(_computes_its_beginning(flight, request) for flight in load.flights):
            return _Verdict.PASS
        return _Verdict.ENTER

    def _keeps_pace(self, replica: str, running: int) -> bool:
        alone_s = self._predictor.token_s(replica, DecodeWork(0))
        limit_s = max(self._options.token_pace_s, PACE_SLACK * alone_s)
        return self._predictor.token_s(replica, DecodeWork(running)) <= limit_s

    def _prefill(
        self, prefills: list[QueuedRequest], finals: list[QueuedRequest], in_flight: list[FlightRequest], now: float
    ) -> tuple[list[QueuedRequest], float | None]:
        """At most one that is no final, and when to look again."""
        if not prefills or any(not flight.queued.klass.answers for flight in in_flight):
            return [], None
        if not finals and not any(_is_awaited(flight) for flight in in_flight):
            return [min(prefills, key=urgency)], None
        history = [request for request in prefills if request.klass is RequestClass.NEXT_TURN]
        if not history:
            return [], None
        oldest = min(history, key=lambda request: request.arrived_at)
        patient_until = oldest.arrived_at + PATIENCE_S
        return ([oldest], None) if now >= patient_until else ([], patient_until)

    def _shed(self, queue: list[QueuedRequest], in_flight: list[FlightRequest], now: float) -> list[Drop]:
        """Waiting touches, then partials, by how long the finals that have no token yet need together."""
        needed_s = self._needed_s(queue, in_flight, now)
        return [
            Drop(request.ticket, DropReason.SHED)
            for request in queue
            if (request.klass is RequestClass.TOUCH and needed_s > LATE_TOUCHES_S)
            or (
                request.klass is RequestClass.PARTIAL
                and (needed_s > LATE_PARTIALS_S or now - request.arrived_at > STALE_PARTIAL_S)
            )
        ]

    def _needed_s(self, queue: list[QueuedRequest], in_flight: list[FlightRequest], now: float) -> float:
        waiting = [request for request in queue if request.klass.answers]
        running = [flight for flight in in_flight if flight.queued.klass.answers and flight.prefilling]
        if not waiting and not running:
            return 0.0
        tokens = float(sum(request.uncached_tokens for request in waiting))
        tokens += sum(remaining_tokens(self._predictor, flight, now) for flight in running)
        decoding = sum(not flight.prefilling for flight in in_flight)
        return self._predictor.first_token_s(queue[0].replica, PrefillWork(tokens, decoding=decoding))


def _computes_its_beginning(flight: FlightRequest, request: QueuedRequest) -> bool:
    """What `flight` computes is the most of it the beginning of `request`, which is in no cache yet."""
    if not flight.prefilling or not request.prompt_ids or not flight.queued.prompt_ids:
        return False
    if request.uncached_tokens < SHARED_TOKENS or flight.queued.prompt_tokens <= request.cached_tokens:
        return False
    gain = common_prefix(flight.queued.prompt_ids, request.prompt_ids) - request.cached_tokens
    return gain >= max(SHARED_TOKENS, flight.queued.uncached_tokens // 2)


def _is_awaited(flight: FlightRequest) -> bool:
    """An answer that has no token yet."""
    return flight.queued.klass.answers and flight.prefilling
