"""Every error Duolog raises on purpose.

DuologError
├── ConfigurationError          a setting, persona or manifest is wrong; the message names file, line and mending
├── ModelMissing                a model file is absent or damaged
├── RequestRefused              a client asked for something that cannot be done; `code` and `param` go on the wire
├── Overloaded                  no capacity; `retry_after_s` says when to try again
└── EngineError                 an engine or service failed; `engine` names it
    ├── EngineUnavailable       refused, gone, or not yet ready: a retry may help
    ├── EngineTimeout           no answer within the limit
    ├── EngineRejected          the engine understood and said no: a retry of the same request will not help
    └── EngineProtocolError     the engine's answer could not be understood
"""

from __future__ import annotations


class DuologError(Exception):
    """Base of all of them. The message is one sentence for a person: what, where and how to mend it."""


class ConfigurationError(DuologError):
    """A setting, persona or manifest is wrong."""


class ModelMissing(DuologError):
    """A model file is absent or does not match its hash."""


class RequestRefused(DuologError):
    """A client's request that cannot be carried out. The call goes on."""

    def __init__(self, message: str, *, code: str, param: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        """Machine-readable, e.g. `response_cancel_not_active` (REALTIME error codes)."""
        self.param = param
        """Path of the offending field, e.g. `session.audio.input.format.rate`."""


class Overloaded(DuologError):
    """No capacity for this now."""

    def __init__(self, message: str, *, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class EngineError(DuologError):
    """An engine or service failed."""

    def __init__(self, message: str, *, engine: str) -> None:
        super().__init__(message)
        self.engine = engine
        """`asr`, `llm`, `tts`, `vad` or `store`."""


class EngineUnavailable(EngineError):
    """Refused the connection, is gone, or is not yet ready."""


class EngineTimeout(EngineError):
    """Did not answer within its limit."""


class EngineRejected(EngineError):
    """Understood the request and refused it."""


class EngineProtocolError(EngineError):
    """Answered something that could not be understood."""
