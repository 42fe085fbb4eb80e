"""From voice probabilities, one per window, to what the user's voice does. Time is samples received at 16 kHz.

    probability ──hysteresis──▶ voiced windows ──run length──▶ ONSET ─▶ CONFIRMED ─▶ PAUSE ─▶ (ONSET | ENDPOINT | FADED)

Knows nothing of what is said, nor of the bot.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

SAMPLES_PER_MS = 16


class VoiceEventKind(StrEnum):
    ONSET = "onset"
    """Voice for `onset_ms`: an utterance begins, or goes on after a pause."""
    CONFIRMED = "confirmed"
    """The utterance has held `confirm_ms` of voice: no click, no cough."""
    PAUSE = "pause"
    """Silence for `pause_ms` inside an utterance."""
    ENDPOINT = "endpoint"
    """Silence for `endpoint_ms` after a confirmed utterance, or it reached its longest."""
    FADED = "faded"
    """The same after an utterance that was never confirmed: a short word, a cough, a click."""


@dataclass(frozen=True, slots=True)
class VoiceEvent:
    kind: VoiceEventKind
    at_sample: int
    """ONSET: first voiced sample. Others: end of the last voiced window."""


@dataclass(frozen=True, slots=True)
class ActivityOptions:
    on_probability: float = 0.5
    """From silence, a window is voiced at this probability or above."""
    off_probability: float = 0.35
    """Within voice, a window stays voiced down to this (96 ms behind labelled speech ends, median of the corpus)."""
    onset_ms: int = 64
    confirm_ms: int = 200
    pause_ms: int = 64
    endpoint_ms: int = 500
    max_utterance_ms: int = 60_000


class VoiceActivity:
    """Follows one call's voice. `endpoint_ms` may be changed at any time, for the pause that is running, too."""

    def __init__(self, options: ActivityOptions) -> None:
        self.options = options
        self.endpoint_ms = options.endpoint_ms
        self._now = 0
        self._voiced = False
        self._run_start = 0
        self._in_utterance = False
        self._paused = False
        self._confirmed = False
        self._voiced_samples = 0
        self._utterance_start = 0
        self._last_voice = 0

    @property
    def in_utterance(self) -> bool:
        return self._in_utterance

    @property
    def voiced_ms(self) -> int:
        """Voice in this utterance so far."""
        return self._voiced_samples // SAMPLES_PER_MS

    @property
    def silence_ms(self) -> int:
        """Length of the pause that is running; 0 where none is."""
        return (self._now - self._last_voice) // SAMPLES_PER_MS if self._paused else 0

    @property
    def voiced(self) -> bool:
        """The last window held voice."""
        return self._voiced

    def feed(self, probability: float, window_samples: int) -> list[VoiceEvent]:
        """Take the next window's probability; returns what happened, in order."""
        start, self._now = self._now, self._now + window_samples
        floor = self.options.off_probability if self._voiced else self.options.on_probability
        voiced = probability >= floor
        if voiced and not self._voiced:
            self._run_start = start
        self._voiced = voiced
        return self._on_voice(window_samples) if voiced else self._on_silence()

    def end_utterance(self) -> None:
        """Forget the utterance: it was committed, discarded or cleared from outside."""
        self._forget_utterance()
        self._voiced = False

    def force_endpoint(self) -> list[VoiceEvent]:
        """End the running utterance now: its audio stopped arriving."""
        if not self._in_utterance:
            return []
        events = [] if self._paused else [self._event(VoiceEventKind.PAUSE)]
        return [*events, self._endpoint()]

    def _on_voice(self, window_samples: int) -> list[VoiceEvent]:
        events: list[VoiceEvent] = []
        run = self._now - self._run_start
        if (not self._in_utterance or self._paused) and run >= self.options.onset_ms * SAMPLES_PER_MS:
            events.append(VoiceEvent(VoiceEventKind.ONSET, self._run_start))
            self._in_utterance, self._paused = True, False
            self._utterance_start = self._utterance_start or self._run_start
            self._voiced_samples += run - window_samples
        if not self._in_utterance or self._paused:
            return events
        self._voiced_samples += window_samples
        self._last_voice = self._now
        if not self._confirmed and self.voiced_ms >= self.options.confirm_ms:
            self._confirmed = True
            events.append(self._event(VoiceEventKind.CONFIRMED))
        if self._now - self._utterance_start >= self.options.max_utterance_ms * SAMPLES_PER_MS:
            events += [self._event(VoiceEventKind.PAUSE), self._endpoint()]
        return events

    def _on_silence(self) -> list[VoiceEvent]:
        if not self._in_utterance:
            return []
        events: list[VoiceEvent] = []
        silence_ms = (self._now - self._last_voice) // SAMPLES_PER_MS
        if not self._paused and silence_ms >= self.options.pause_ms:
            self._paused = True
            events.append(self._event(VoiceEventKind.PAUSE))
        if self._paused and silence_ms >= self.endpoint_ms:
            events.append(self._endpoint())
        return events

    def _endpoint(self) -> VoiceEvent:
        event = self._event(VoiceEventKind.ENDPOINT if self._confirmed else VoiceEventKind.FADED)
        self._forget_utterance()
        return event

    def _event(self, kind: VoiceEventKind) -> VoiceEvent:
        return VoiceEvent(kind, self._last_voice)

    def _forget_utterance(self) -> None:
        self._in_utterance = False
        self._paused = False
        self._confirmed = False
        self._voiced_samples = 0
        self._utterance_start = 0
        self._last_voice = self._now
