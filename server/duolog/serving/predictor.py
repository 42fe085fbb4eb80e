"""How long a request will take: learnt while serving, for each replica by itself. Pure: it is told what happened.

    time to the first token = start + uncached tokens + tokens of others computed meanwhile + cached tokens + decodes
    time for each token     = start + others that decode + prompt tokens computed meanwhile

each times what it costs. Before anything was seen, the costs of one core of a CPU: too slow rather than too fast.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from duolog.serving.regression import OnlineRegression


@dataclass(frozen=True, slots=True)
class PrefillWork:
    """What lies between a request's entry and its first token."""

    uncached_tokens: float
    cached_tokens: float = 0.0
    shared_tokens: float = 0.0
    """Prompt tokens of other requests that are computed meanwhile; see `shared_tokens`."""
    decoding: float = 0.0
    """Requests that decode meanwhile."""

    def features(self) -> tuple[float, ...]:
        return 1.0, self.uncached_tokens, self.shared_tokens, self.cached_tokens, self.decoding


@dataclass(frozen=True, slots=True)
class DecodeWork:
    """What goes on while one request decodes."""

    others: float
    """Requests that decode beside it, on the average."""
    prompt_tokens: float = 0.0
    """Prompt tokens computed for each of its own tokens."""

    def features(self) -> tuple[float, ...]:
        return 1.0, self.others, self.prompt_tokens


FIRST_TOKEN_START = (0.03, 0.001, 0.001, 0.000_02, 0.005)
FIRST_TOKEN_SPREAD = (0.03, 0.001, 0.001, 0.000_02, 0.01)
TOKEN_START = (0.03, 0.005, 0.001)
TOKEN_SPREAD = (0.03, 0.005, 0.001)
SHORTEST_S = 0.001
"""No prediction is shorter."""
ERROR_SHARE = 0.05
"""Of the newest error in `error_ratio`."""


class _Replica:
    """What is known of one engine."""

    def __init__(self) -> None:
        self.first_token = OnlineRegression(FIRST_TOKEN_START, FIRST_TOKEN_SPREAD, SHORTEST_S)
        self.token = OnlineRegression(TOKEN_START, TOKEN_SPREAD, SHORTEST_S)
        self.error_ratio = 0.0


class ServiceTimePredictor:
    """Predicts from what has been seen of each replica. A replica never heard of starts like any other."""

    def __init__(self) -> None:
        self._replicas: dict[str, _Replica] = {}

    def first_token_s(self, replica: str, work: PrefillWork) -> float:
        """Seconds from entry to the first token; for a prefill, to its end."""
        return self._of(replica).first_token.predict(work.features())

    def token_s(self, replica: str, work: DecodeWork) -> float:
        """Seconds from one token to the next."""
        return self._of(replica).token.predict(work.features())

    def prefill_s(self, replica: str, tokens: float) -> float:
        """Seconds to compute so many prompt tokens, nothing else."""
        return self._of(replica).first_token.weights[1] * tokens

    def error_ratio(self, replica: str) -> float:
        """Running mean of |actual − predicted| / actual of the first tokens; 0 before the first."""
        return self._of(replica).error_ratio

    def saw_first_token(self, replica: str, work: PrefillWork, predicted_s: float, actual_s: float) -> None:
        """A request with this much work had its first token after `actual_s`; `predicted_s` was said before."""
        if actual_s <= 0:
            return
        known = self._of(replica)
        error = abs(actual_s - predicted_s) / actual_s
        known.error_ratio += (ERROR_SHARE if known.first_token.seen else 1.0) * (error - known.error_ratio)
        known.first_token.learn(work.features(), actual_s)

    def saw_decoding(self, replica: str, work: DecodeWork, actual_s: float) -> None:
        """One request's tokens came each after `actual_s`, on the average."""
        if actual_s > 0:
            self._of(replica).token.learn(work.features(), actual_s)

    def _of(self, replica: str) -> _Replica:
        return self._replicas.setdefault(replica, _Replica())


def shared_tokens(own_tokens: float, others: Iterable[float], chunk_tokens: int) -> float:
    """Tokens that others' prefills take of the engine while `own_tokens` are computed.

    The engine gives each prefill its turn (`chunk_tokens` of a step at most), so none gets much more than oneself.
    """
    return sum(min(remaining, max(own_tokens, chunk_tokens)) for remaining in others)
