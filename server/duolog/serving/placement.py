"""Where a request to the chat model will run, and how much of its prompt is there already.

The batcher asks; KV pins answer (`serving/pins*.py`). With one replica and no pins nothing is known of its cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from duolog.ports.llm import GenerationRequest


@dataclass(frozen=True, slots=True)
class Placed:
    replica: str = ""
    """Id of the replica; empty where there is only one."""
    cached_tokens: int | None = None
    """Tokens at the prompt's beginning that its cache very likely holds; None: not known, and the batcher goes by
    what it sent there itself."""


class Placement(Protocol):
    """Chooses a replica. Never waits: what it knows is kept up to date by others."""

    def place(self, request: GenerationRequest) -> Placed:
        """Asked when a request arrives, and again when it is let in: a replica may have died in between."""
        ...


class NoPrefixCache:
    """The placement of a single engine that keeps nothing of a prompt for the next one."""

    def place(self, request: GenerationRequest) -> Placed:  # noqa: ARG002 - rejected: the Protocol's parameter
        return Placed(cached_tokens=0)


class OneReplica:
    """The placement of a single engine whose cache is not watched."""

    def place(self, request: GenerationRequest) -> Placed:  # noqa: ARG002 - rejected: the Protocol's parameter
        return Placed()
