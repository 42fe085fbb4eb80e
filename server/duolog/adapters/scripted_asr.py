"""A recogniser that computes nothing: it answers from a script, after exact delays.

For tests in virtual time and for load without models. Uses no thread.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable, Sequence

import anyio
import numpy as np

from duolog.ports.asr import SAMPLE_RATE_HZ, Transcript, TranscriptionRequest
from duolog.ports.errors import EngineError

Script = Callable[[TranscriptionRequest], str]
"""What a request's audio says; depends on nothing else, so that a repeated request gets the same text."""

SAID = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
WORDS_PER_S = 2.5
LOUD_RMS = 0.01
"""Sound below it says nothing."""


def count_aloud(request: TranscriptionRequest) -> str:
    """The default script: one number word for each 0.4 s of loud audio, so that a longer part extends a shorter."""
    loud_samples = sum(
        len(window)
        for window in np.array_split(request.samples, max(1, len(request.samples) // 512))
        if len(window) and float(np.sqrt(np.mean(np.square(window)))) >= LOUD_RMS
    )
    spoken = round(loud_samples / SAMPLE_RATE_HZ * WORDS_PER_S)
    return " ".join(SAID[index % len(SAID)] for index in range(spoken))


def in_order(*texts: str) -> Script:
    """A script that answers finals with `texts` one after another, the last again and again; partials with its half."""
    remaining = deque(texts)

    def say(request: TranscriptionRequest) -> str:
        if request.partial:
            words = remaining[0].split()
            return " ".join(words[: (len(words) + 1) // 2])
        return remaining.popleft() if len(remaining) > 1 else remaining[0]

    return say


class ScriptedRecognizer:
    """Deterministic `SpeechRecognizer`; `fail_next` and `stall_next` script what goes wrong."""

    def __init__(
        self,
        script: Script = count_aloud,
        *,
        final_delay_s: float = 0.0,
        partial_delay_s: float = 0.0,
        remembers: bool = True,
    ) -> None:
        """Delays are of one batch, whatever its size. `remembers`: keep what was asked, for tests to look at."""
        self._remembers = remembers
        self._script = script
        self._final_delay_s = final_delay_s
        self._partial_delay_s = partial_delay_s
        self._faults: deque[EngineError | None] = deque()
        self.batches: list[tuple[TranscriptionRequest, ...]] = []
        """Every batch that was begun, in order."""
        self.running = 0
        """Batches being decoded now; never more than one where the caller keeps the port's contract."""

    def fail_next(self, error: EngineError) -> None:
        """The next batch without a fault of its own raises `error`."""
        self._faults.append(error)

    def stall_next(self) -> None:
        """The next batch without a fault of its own never ends."""
        self._faults.append(None)

    async def transcribe(self, requests: Sequence[TranscriptionRequest]) -> list[Transcript]:
        if self._remembers:
            self.batches.append(tuple(requests))
        self.running += 1
        try:
            partial = all(request.partial for request in requests)
            await anyio.sleep(self._partial_delay_s if partial else self._final_delay_s)
            await self._act_out_fault()
            return [self._answer(request) for request in requests]
        finally:
            self.running -= 1

    async def warm_up(self) -> None:
        await anyio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        await anyio.lowlevel.checkpoint()

    async def _act_out_fault(self) -> None:
        if not self._faults:
            return
        fault = self._faults.popleft()
        if fault is None:
            await anyio.sleep_forever()
        else:
            raise fault

    def _answer(self, request: TranscriptionRequest) -> Transcript:
        text = self._script(request)
        encoded = text.encode()
        return Transcript(
            text=text,
            language=request.language or "en",
            mean_logprob=-0.1,
            no_speech_prob=0.01 if text else 0.99,
            compression_ratio=len(encoded) / len(zlib.compress(encoded)) if encoded else 0.0,
            audio_s=request.audio_s,
        )
