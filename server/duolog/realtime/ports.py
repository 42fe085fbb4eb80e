"""What the wire needs from the application, handed in by the composition root."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from duolog.ports.clock import WallClock
from duolog.realtime.drain import Drain
from duolog.serving.idempotency import Idempotency
from duolog.session.control import CallControl


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """What a client asked for in the query, beside persona and session."""

    extensions: bool = False
    """It reports playout and understands flushes."""
    greeting: bool = False
    """The persona speaks first."""
    input_rate_hz: int = 24_000
    output_rate_hz: int = 24_000


class OpenCall(Protocol):
    def __call__(
        self, persona: str | None, resume: str | None, options: ClientOptions
    ) -> AbstractAsyncContextManager[CallControl]:
        """A running call for as long as the context is open; leaving it ends the call and saves the session.

        `persona` None: the default one. `resume`: id of a session to go on with; an unknown one starts a new session.
        Raises Overloaded where no call is free, EngineUnavailable where the engines are not ready.
        """
        ...


@dataclass(frozen=True, slots=True)
class PersonaSummary:
    """A persona as clients see it."""

    id: str
    name: str
    description: str
    languages: tuple[str, ...]
    voice: str
    greeting: str


@dataclass(frozen=True, slots=True)
class PartHealth:
    ready: bool
    detail: str
    """One sentence: what it is, or what it waits for."""
    needed: bool = True
    """False: calls go on without it."""


@dataclass(frozen=True, slots=True)
class WireLimits:
    max_message_bytes: int = 16 * 1024 * 1024
    """A longer message is refused and the call goes on; one of twice this size closes the connection (1009)."""
    max_text_chars: int = 32_000
    """Of instructions, or of one item."""
    max_call_s: float = 3_600
    idle_call_s: float = 600
    """A client that sends nothing for this long is gone."""
    send_timeout_s: float = 10
    """A client that reads nothing for this long is closed."""
    close_timeout_s: float = 5
    """For the last message and the closing handshake."""
    ping_interval_s: float = 20
    max_client_secrets: int = 1_000


@dataclass(frozen=True, slots=True)
class AppPorts:
    open_call: OpenCall
    personas: Callable[[], Sequence[PersonaSummary]]
    default_persona: str
    voices: Callable[[], Sequence[str]]
    """Ids of the voices there are."""
    health: Callable[[], Mapping[str, PartHealth]]
    metrics_text: Callable[[], bytes]
    """The metrics in Prometheus' text format 0.0.4."""
    web_dir: Path
    """The page: `index.html` and what it loads."""
    clock: WallClock
    api_keys: tuple[str, ...] = field(default=(), repr=False)
    """Empty: no key is asked for."""
    allowed_origins: tuple[str, ...] = ()
    """Further pages that may open calls, as `https://host[:port]`; `*`: all. The server's own page always may."""
    limits: WireLimits = field(default_factory=WireLimits)
    drain: Drain = field(default_factory=Drain)
    idempotency: Idempotency | None = None
    """None: what comes twice is carried out twice."""
