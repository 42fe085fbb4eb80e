"""How a placed call can fail, as one sentence for the person who placed it."""

from __future__ import annotations

from duolog.ports.errors import DuologError


class AudioUnreadable(DuologError):
    """A sound file could not be read or holds no sound."""


class CallFailed(DuologError):
    """The call could not be placed, broke off, or brought no answer."""
