"""Which parts of the server answer: what `/readyz` tells, and what a call needs before it may begin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from duolog.ports.errors import EngineUnavailable
from duolog.telemetry import metrics

NEEDED = ("asr", "llm", "tts")
"""Without one of these there is no call. The store may be away: calls go on and cannot be resumed meanwhile."""


@dataclass(frozen=True, slots=True)
class Part:
    ready: bool
    detail: str
    """One sentence: what it is, or what it waits for."""


class Health:
    """The state of each part, written by whoever watches it."""

    def __init__(self, parts: Mapping[str, str]) -> None:
        """`parts`: name → what it waits for at first."""
        self._parts: dict[str, Part] = {}
        for name, detail in parts.items():
            self.set(name, ready=False, detail=detail)

    def set(self, name: str, *, ready: bool, detail: str) -> None:
        self._parts[name] = Part(ready, detail)
        metrics.ENGINE_READY.labels(name).set(ready)

    def parts(self) -> dict[str, Part]:
        return dict(self._parts)

    @property
    def ready(self) -> bool:
        """Calls may begin."""
        return all(self._parts[name].ready for name in NEEDED)

    def require_ready(self) -> None:
        """Raises EngineUnavailable naming the first part that is missing."""
        for name in NEEDED:
            part = self._parts[name]
            if not part.ready:
                raise EngineUnavailable(f"The server is not ready yet: {name}: {part.detail}", engine=name)
