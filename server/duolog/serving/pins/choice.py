"""Which replica a request runs on. Pure.

A session stays where its blocks are, until that costs more than computing them elsewhere would. Costs are in tokens to
compute before the first one comes out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

OVERRIDE_TOKENS = 1_024
"""A session leaves its replica for one that is this much nearer to the first token."""
SESSION_TOKENS = 128
"""Cost of a session that lives on a replica, for spreading new ones: about what its next turn will ask for."""
FULL_RATIO = 0.9
FULL_TOKENS = 4_096
"""Cost of a cache that running requests fill to FULL_RATIO: one more of them preempts another."""
WAITING_TOKENS = 256
"""Cost of a request that waits inside the engine, from whatever server process."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A replica that is alive."""

    replica: str
    missing_tokens: int = 0
    """Of the prompt, not in its cache."""
    busy_tokens: int = 0
    """Sent there and not computed yet."""
    waiting: int = 0
    kv_usage_ratio: float = 0.0
    sessions: int = 0

    @property
    def cost(self) -> int:
        full = FULL_TOKENS if self.kv_usage_ratio >= FULL_RATIO else 0
        return self.missing_tokens + self.busy_tokens + WAITING_TOKENS * self.waiting + full


def choose(session_id: str, candidates: Sequence[Candidate], home: str = "", *, by_hash: bool = False) -> str:
    """`home`: where the session lives; empty: nowhere yet. `by_hash`: what other server processes chose cannot be
    known; a new session goes where each of them would send it. `candidates`: at least one."""
    at_home = next((candidate for candidate in candidates if candidate.replica == home), None)
    if at_home is not None:
        best = min(candidates, key=lambda candidate: (candidate.cost, candidate.replica != home))
        return best.replica if at_home.cost - best.cost > OVERRIDE_TOKENS else home
    if by_hash:
        return max(candidates, key=lambda candidate: weight(session_id, candidate.replica)).replica
    return min(
        candidates,
        key=lambda candidate: (
            candidate.cost + SESSION_TOKENS * candidate.sessions,
            -weight(session_id, candidate.replica),
        ),
    ).replica


def weight(session_id: str, replica: str) -> int:
    """Rendezvous hashing: the heaviest takes the session; one replica more or less moves only its own share."""
    return int.from_bytes(blake2b(f"{replica}\0{session_id}".encode(), digest_size=8).digest(), "big")
