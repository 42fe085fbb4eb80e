"""The ear of one call: microphone audio in, voice events and utterances out. Synchronous; time is samples received.

int16 at the client's rate → 16 kHz → 512-sample windows → voice probability → VoiceActivity
                                          └── kept: pre-roll, and all of the running utterance
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from duolog.audio.framing import Framer
from duolog.audio.resample import Resampler
from duolog.ports.asr import SAMPLE_RATE_HZ
from duolog.ports.vad import WINDOW_SAMPLES, VoiceActivityDetector
from duolog.turns.activity import SAMPLES_PER_MS, ActivityOptions, VoiceActivity, VoiceEvent


@dataclass(frozen=True, slots=True)
class Utterance:
    """What the user said between two silences, or so far."""

    item_id: str
    samples: NDArray[np.float32]
    """16 kHz mono, pre-roll and a little silence after the last voice included."""
    start_sample: int
    """Index of its first sample since the call began, at 16 kHz."""
    end_sample: int
    """Index just after the last voiced sample."""
    voiced_ms: int
    heard_at: float
    """Loop time at which the last voiced sample arrived."""


@dataclass(frozen=True, slots=True)
class _Window:
    samples: NDArray[np.float32]
    voiced: bool
    heard_at: float


class Ear:
    """Hears one caller."""

    def __init__(
        self, vad: VoiceActivityDetector, options: ActivityOptions, input_rate_hz: int, preroll_ms: int
    ) -> None:
        self._vad = vad
        self._preroll_samples = preroll_ms * SAMPLES_PER_MS
        self.activity = VoiceActivity(options)
        self.muted = False
        self.keep_all = False
        """Manual turns: everything since the last clear is kept, voiced or not."""
        self._input_rate_hz = input_rate_hz
        self._resampler = Resampler(input_rate_hz, SAMPLE_RATE_HZ)
        self._framer = Framer(WINDOW_SAMPLES)
        self._kept: deque[_Window] = deque()
        self._kept_start = 0
        self._voice_start = 0
        """Voice before it belongs to an earlier utterance."""
        self._heard = 0
        self._collecting = False
        self._max_kept = options.max_utterance_ms * SAMPLES_PER_MS + self._preroll_samples

    @property
    def heard_ms(self) -> int:
        """Audio received since the call began."""
        return self._heard // SAMPLES_PER_MS

    @property
    def kept_samples(self) -> int:
        return self._heard - self._kept_start

    def configure(self, options: ActivityOptions, input_rate_hz: int, preroll_ms: int) -> None:
        """New settings from here on; the running utterance goes on."""
        self._preroll_samples = preroll_ms * SAMPLES_PER_MS
        self.activity.options = options
        self.activity.endpoint_ms = options.endpoint_ms
        if input_rate_hz != self._input_rate_hz:
            self._input_rate_hz = input_rate_hz
            self._resampler = Resampler(input_rate_hz, SAMPLE_RATE_HZ)

    def hear(self, samples: NDArray[np.int16], now: float) -> Iterator[VoiceEvent]:
        """Take the next samples; `now` is the loop time of their arrival.

        Each event is to be acted on before the next is asked for, and all are to be asked for: what comes after an
        endpoint in the same samples belongs to the next utterance.
        """
        if self.muted:
            samples = np.zeros_like(samples)
        for window in self._framer.push(self._resampler.push(samples)):
            self._forget_old()
            events = self.activity.feed(self._vad.probability(window), len(window))
            self._keep(_Window(window, self.activity.voiced, now))
            yield from events

    def begin_utterance(self, voice_start: int) -> int:
        """Keep from the pre-roll before `voice_start` on; returns the index of the first sample kept."""
        self._collecting = True
        self._voice_start = voice_start
        self._drop_before(voice_start - self._preroll_samples)
        return self._kept_start

    def utterance(self, item_id: str) -> Utterance:
        """What there is of the running utterance."""
        kept = list(self._kept)
        samples = np.concatenate([window.samples for window in kept]) if kept else np.zeros(0, np.float32)
        before = (self._voice_start - self._kept_start) // WINDOW_SAMPLES
        voiced = [number for number, window in enumerate(kept) if window.voiced and number >= before]
        last = voiced[-1] if voiced else len(kept) - 1
        return Utterance(
            item_id=item_id,
            samples=samples,
            start_sample=self._kept_start,
            end_sample=self._kept_start + (last + 1) * WINDOW_SAMPLES,
            voiced_ms=len(voiced) * WINDOW_SAMPLES // SAMPLES_PER_MS,
            heard_at=kept[last].heard_at if kept else 0.0,
        )

    def end_utterance(self) -> None:
        """Forget the running utterance, but for the pre-roll of a next one."""
        self.activity.end_utterance()
        self._collecting = False
        self._drop_before(self._heard - (0 if self.keep_all else self._preroll_samples))

    def _keep(self, window: _Window) -> None:
        self._kept.append(window)
        self._heard += len(window.samples)

    def _forget_old(self) -> None:
        """What a voice event refers to must still be there when it is acted on."""
        if not self.keep_all and not self._collecting:
            onset = self.activity.options.onset_ms * SAMPLES_PER_MS
            self._drop_before(self._heard - self._preroll_samples - onset - WINDOW_SAMPLES)
        self._drop_before(self._heard - self._max_kept)

    def _drop_before(self, sample: int) -> None:
        while self._kept and self._kept_start + len(self._kept[0].samples) <= sample:
            self._kept_start += len(self._kept.popleft().samples)
