"""How a placed call can fail, as one sentence for the person who placed it."""

from __future__ import annotations

from duolog.ports.errors import DuologError


class AudioUnreadable(DuologError):
    """A sound file could not be read or holds no sound."""


class CallFailed(DuologError):
    """The call could not be placed, broke off, or brought no answer."""


class CallRefused(CallFailed):
    """The server answered and would not take the call."""

    def __init__(self, message: str, *, code: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.code = code
        """The wire's error code, such as `session_limit_reached`; `http_503` where there is none."""
        self.retry_after_s = retry_after_s
        """When the server says to try again, None where it does not."""
