"""What a call still has to tell its client: control events in order, audio with a bound, and a flush that overtakes.

One producer side (the call), one consumer (`drain`). Stale audio never leaves: a frame whose generation is below the
newest flush is dropped when it is put and again when it is taken.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator

import anyio

from duolog.session.events import AudioDelta, CallEvent, PlayoutFlush

MAX_AUDIO_MS = 10_000
"""Audio that may wait for a client that reads slowly; the voice stage waits beyond it."""
MAX_EVENTS = 4_096
"""Control events that may wait; a client that lets more pile up does not read at all."""


class SlowConsumer(Exception):
    """The client does not read what it is sent."""


class Outbox:
    """Events of one call on their way out."""

    def __init__(self, *, max_audio_ms: int = MAX_AUDIO_MS, max_events: int = MAX_EVENTS) -> None:
        self._max_audio_ms = max_audio_ms
        self._max_events = max_events
        self._queue: deque[CallEvent] = deque()
        self._audio_ms = 0.0
        self._floor = 0
        self._closed = False
        self._filled = anyio.Event()
        self._drained = anyio.Event()

    def __len__(self) -> int:
        return len(self._queue)

    def put(self, event: CallEvent) -> None:
        """Append a control event; ignored once closed. Raises SlowConsumer where too many wait."""
        if self._closed:
            return
        if len(self._queue) >= self._max_events:
            raise SlowConsumer
        self._queue.append(event)
        self._filled.set()

    async def put_audio(self, event: AudioDelta) -> bool:
        """Append audio, waiting for room. False where its generation was flushed meanwhile or the call is over."""
        while not self._stale(event) and self._audio_ms >= self._max_audio_ms:
            self._drained = anyio.Event()
            await self._drained.wait()
        if self._stale(event):
            return False
        self._queue.append(event)
        self._audio_ms += _duration_ms(event)
        self._filled.set()
        return True

    def flush(self, generation: int) -> None:
        """Drop waiting audio of every generation below this and send the flush ahead of all else."""
        if self._closed:
            return
        self._floor = max(self._floor, generation)
        kept = [event for event in self._queue if not (isinstance(event, AudioDelta) and self._stale(event))]
        self._queue = deque(kept)
        self._audio_ms = sum(_duration_ms(event) for event in kept if isinstance(event, AudioDelta))
        self._queue.appendleft(PlayoutFlush(generation))
        self._filled.set()
        self._drained.set()

    def close(self) -> None:
        """No more events; what waits is still drained."""
        self._closed = True
        self._filled.set()
        self._drained.set()

    async def drain(self) -> AsyncGenerator[CallEvent, None]:
        """Events in order, until closed and empty."""
        while True:
            while self._queue:
                event = self._queue.popleft()
                if isinstance(event, AudioDelta):
                    self._audio_ms -= _duration_ms(event)
                    self._drained.set()
                    if self._stale(event):
                        continue
                yield event
            if self._closed:
                return
            self._filled = anyio.Event()
            await self._filled.wait()

    def _stale(self, event: AudioDelta) -> bool:
        return self._closed or event.generation < self._floor


def _duration_ms(event: AudioDelta) -> float:
    return len(event.samples) * 1000 / event.sample_rate_hz
