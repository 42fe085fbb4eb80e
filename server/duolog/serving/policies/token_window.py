"""`token_window`: looks at the queue at fixed times and lets in as many tokens as make a good batch."""

from __future__ import annotations

from collections.abc import Sequence

from duolog.serving.policies.admission import Decision, FlightRequest, PolicyOptions, QueuedRequest
from duolog.serving.policies.rules import by_replica, merged
from duolog.serving.predictor import PrefillWork, ServiceTimePredictor


class TokenWindowPolicy:
    """Each `max_wait_s`, by the tokens that wait for a replica:

    under window_tokens           wait, but no request longer than its slack: what its deadline leaves beyond the
                                  time it needs
    up to twice as many           all enter
    more                          the most urgent enter, up to twice window_tokens; the others at the next look
    """

    def __init__(self, options: PolicyOptions, predictor: ServiceTimePredictor) -> None:
        self._options = options
        self._predictor = predictor
        self._next_look: dict[str, float] = {}

    def decide(self, queue: Sequence[QueuedRequest], in_flight: Sequence[FlightRequest], now: float) -> Decision:
        return merged(self._on_replica(waiting, now) for waiting, _ in by_replica(queue, in_flight))

    def _on_replica(self, queue: list[QueuedRequest], now: float) -> Decision:
        if not queue:
            return Decision()
        replica = queue[0].replica
        enough = sum(request.prompt_tokens for request in queue) >= self._options.window_tokens
        look_at = self._next_look.get(replica, now)
        ends_at = min(self._slack_ends_at(request) for request in queue)
        due_at = look_at if enough else min(look_at, ends_at)
        if now < due_at:
            return Decision(look_again_at=due_at)
        self._next_look[replica] = now + self._options.max_wait_s
        entering = self._first_tokens(queue) if enough else self._without_slack(queue, now)
        return Decision(
            admit=tuple(request.ticket for request in entering),
            look_again_at=self._next_look[replica] if len(entering) < len(queue) else None,
        )

    def _first_tokens(self, queue: list[QueuedRequest]) -> list[QueuedRequest]:
        """The most urgent, at least one, up to twice `window_tokens`."""
        entering: list[QueuedRequest] = []
        tokens = 0
        for request in sorted(queue, key=by_deadline):
            tokens += request.prompt_tokens
            if entering and tokens > 2 * self._options.window_tokens:
                break
            entering.append(request)
        return entering

    def _without_slack(self, queue: list[QueuedRequest], now: float) -> list[QueuedRequest]:
        return sorted((request for request in queue if self._slack_ends_at(request) <= now), key=by_deadline)

    def _slack_ends_at(self, request: QueuedRequest) -> float:
        work = PrefillWork(request.uncached_tokens, request.cached_tokens)
        return request.deadline - self._predictor.first_token_s(request.replica, work)


def by_deadline(request: QueuedRequest) -> tuple[float, int, int]:
    """Sorts by what was promised first."""
    return request.deadline, request.klass, request.ticket
