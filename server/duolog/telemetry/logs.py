"""Logging set-up: structlog for our own events and the libraries' alike, JSON or console, personal data kept out.

A log call has a fixed message and its fields aside. Fields whose name carries `pii` are written only where the
settings allow it; transcripts and audio under any other name never are.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

PERSONAL_MARK = "pii"
NEVER_LOGGED = frozenset({"text", "transcript", "content", "instructions", "audio", "samples", "delta", "api_key"})
"""Field names that hold speech, text or secrets: dropped, so that a slip in a log call does not leak them."""


def configure_logs(level: str, *, json: bool, pii: bool, stream: TextIO = sys.stderr) -> None:
    """Send everything to `stream`. May be called again; the last call holds."""
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _keep_private(pii),
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *_renderers(json, stream)],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    for chatty in ("httpx", "httpcore", "watchfiles"):
        logging.getLogger(chatty).setLevel(logging.WARNING)


def _renderers(json: bool, stream: TextIO) -> list[Processor]:
    if json:
        return [structlog.processors.dict_tracebacks, structlog.processors.JSONRenderer(ensure_ascii=False)]
    return [structlog.dev.ConsoleRenderer(colors=stream.isatty())]


def _keep_private(pii: bool) -> Processor:
    def drop(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        allowed = {key: value for key, value in event.items() if key not in NEVER_LOGGED}
        return allowed if pii else {key: value for key, value in allowed.items() if PERSONAL_MARK not in key}

    return drop


@contextmanager
def call_bound(call_id: str) -> Iterator[None]:
    """Every log line from inside, in tasks started inside too, carries the call's id."""
    with structlog.contextvars.bound_contextvars(call_id=call_id):
        yield


@contextmanager
def turn_bound(turn_id: str) -> Iterator[None]:
    """As `call_bound`, for a turn."""
    with structlog.contextvars.bound_contextvars(turn_id=turn_id):
        yield
