"""What the outside may ask of a call. The wire layer sees a call only through this Protocol."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from duolog.session.config import ResponseOptions, SessionConfig
from duolog.session.events import CallEvent
from duolog.turns.conversation import Item


@dataclass(frozen=True, slots=True)
class PlayoutReport:
    """What the page has really played, of one generation."""

    generation: int
    played_samples: int
    """Samples rendered to the loudspeaker since the generation began, at the output rate."""
    ended: bool = False
    """True: everything that was sent has been played, or was flushed at this position."""


class CallControl(Protocol):
    """One call. All methods but `events` return at once; refusals raise RequestRefused and change nothing."""

    @property
    def session_id(self) -> str: ...

    @property
    def config(self) -> SessionConfig: ...

    def update(self, config: SessionConfig) -> None:
        """Replace the session's configuration; emits SessionUpdated."""
        ...

    async def append_audio(self, samples: NDArray[np.int16]) -> None:
        """Microphone audio, mono, at `config.input_rate_hz`. Waits while the call's input queue is full."""
        ...

    def commit_audio(self) -> str:
        """End the user's turn by hand; its item's id. Refused: `input_audio_buffer_commit_empty`."""
        ...

    def clear_audio(self) -> None:
        """Forget uncommitted audio; emits InputCleared."""
        ...

    def create_item(self, item: Item, after: str | None) -> str | None:
        """Add an item; the id of the one before it. Refused: `item_id_already_exists`, `item_not_found`."""
        ...

    def delete_item(self, item_id: str) -> None:
        """Also of an answer in progress, which is then cancelled. Refused: `item_not_found`."""
        ...

    def retrieve_item(self, item_id: str) -> None:
        """Emits ItemRetrieved. Refused: `item_not_found`."""
        ...

    def truncate_item(self, item_id: str, content_index: int, audio_end_ms: int) -> None:
        """Cut an answer to what was heard until `audio_end_ms`; a value past its end is a clip. Emits ItemTruncated."""
        ...

    def create_response(self, options: ResponseOptions) -> None:
        """Ask for an answer. Refused: `conversation_already_has_active_response`."""
        ...

    def cancel_response(self, response_id: str | None) -> None:
        """Stop the answer. Refused when idle: `response_cancel_not_active`."""
        ...

    def report_playout(self, report: PlayoutReport) -> None:
        """The page's word on what was heard (extension)."""
        ...

    def set_muted(self, muted: bool) -> None:
        """While muted, arriving audio counts as silence (extension)."""
        ...

    def greet(self) -> None:
        """Speak the persona's greeting now (extension). Refused: `conversation_already_has_active_response`."""
        ...

    def events(self) -> AsyncGenerator[CallEvent, None]:
        """Everything the call says, in order; ends with the call. One consumer."""
        ...
