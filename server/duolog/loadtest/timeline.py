"""Where the time of a turn went, all of it counted from the last voiced sample. Pure; no socket, no clock.

The two ends of the measurement are defined here once and used for every system that is compared:
the last voiced sample is the end of the last 20 ms frame whose level is within 30 dB of the recording's loudest frame;
the first audible sample is the first one above 1 % of full scale.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

VOICED_BELOW_PEAK_DB = 30.0
VOICED_FRAME_SAMPLES = 320
"""20 ms at 16 kHz."""
AUDIBLE_LEVEL = 328
"""1 % of full scale in PCM16."""

PERCENTILES = (50, 90, 99)


def last_voiced_sample(samples: NDArray[np.int16]) -> int:
    """Index of the last voiced sample of a 16 kHz recording; 0 where there is no sound."""
    if len(samples) < VOICED_FRAME_SAMPLES:
        return max(0, len(samples) - 1)
    voiced = _voiced_frames(samples)
    return int(voiced[-1] + 1) * VOICED_FRAME_SAMPLES - 1 if len(voiced) else 0


def first_voiced_sample(samples: NDArray[np.int16]) -> int:
    """Index of the first sample of the first voiced frame of a 16 kHz recording; 0 where there is no sound."""
    voiced = _voiced_frames(samples)
    return int(voiced[0]) * VOICED_FRAME_SAMPLES if len(voiced) else 0


def _voiced_frames(samples: NDArray[np.int16]) -> NDArray[np.intp]:
    """Numbers of the whole frames within 30 dB of the loudest; none where there is no sound."""
    frames = len(samples) // VOICED_FRAME_SAMPLES
    shaped = samples[: frames * VOICED_FRAME_SAMPLES].astype(np.float64).reshape(frames, VOICED_FRAME_SAMPLES)
    levels = np.sqrt(np.mean(shaped**2, axis=1))
    if not frames or not levels.max():
        return np.zeros(0, dtype=np.intp)
    return np.nonzero(levels >= levels.max() * 10 ** (-VOICED_BELOW_PEAK_DB / 20))[0]


def first_audible_sample(samples: NDArray[np.int16]) -> int | None:
    """Index of the first sample above 1 % of full scale, None where all of it is quieter."""
    audible = np.nonzero(np.abs(samples.astype(np.int32)) >= AUDIBLE_LEVEL)[0]
    return int(audible[0]) if len(audible) else None


@dataclass(frozen=True, slots=True)
class TurnTimeline:
    """Milliseconds after the last voiced sample was sent (a typed turn: after its text was sent). None: not seen."""

    endpoint_ms: float | None = None
    """The turn was declared over."""
    transcript_ms: float | None = None
    """The final transcript was there; before the endpoint where it was speculative."""
    admitted_ms: float | None = None
    """The request was handed to the model's server."""
    first_token_ms: float | None = None
    first_phrase_ms: float | None = None
    """The first phrase was cut and given to the synthesizer."""
    first_audio_ms: float | None = None
    """The synthesizer returned its first samples."""
    first_audio_sent_ms: float | None = None
    heard_ms: float | None = None
    """The first audible sample was played at the caller's."""
    silence_wait_ms: float | None = None
    """A duration, not a mark: the silence the server waits for by design before it calls a turn over."""

    def after_endpoint_ms(self) -> float | None:
        """From the decision that the turn is over to the first audible sample: the latency without the wait."""
        if self.heard_ms is None or self.endpoint_ms is None:
            return None
        return self.heard_ms - self.endpoint_ms

    def sent_after_endpoint_ms(self) -> float | None:
        """From the decision to the first sound that left; with engines that take no time, our own code's share."""
        if self.first_audio_sent_ms is None or self.endpoint_ms is None:
            return None
        return self.first_audio_sent_ms - self.endpoint_ms

    def marks(self) -> list[tuple[str, float]]:
        """The marks that were seen, in order of time, named without their unit."""
        named = [
            (field.name.removesuffix("_ms"), getattr(self, field.name))
            for field in fields(self)
            if field.name != "silence_wait_ms"
        ]
        return sorted(((name, value) for name, value in named if value is not None), key=lambda mark: mark[1])


@dataclass(frozen=True, slots=True)
class Percentiles:
    p50: float
    p90: float
    p99: float


def percentiles(values: Iterable[float | None]) -> Percentiles | None:
    """Linear-interpolated percentiles of the values that are there, one decimal; None where there are none."""
    present = [value for value in values if value is not None]
    if not present:
        return None
    p50, p90, p99 = (round(float(value), 1) for value in np.percentile(np.array(present), PERCENTILES))
    return Percentiles(p50, p90, p99)


def first_phrase_words(answer: str) -> int:
    """Words before the answer's first pause sign: a filler such as "Well," or "Sure!" has one."""
    clause = re.split(r"[.,;:!?—。,、;:!?]", answer.strip(), maxsplit=1)[0]
    chinese = len(re.findall(r"[\u4e00-\u9fff]", clause))
    return chinese or len(clause.split())


def median_of_medians(rounds: Sequence[Sequence[float]]) -> float | None:
    """The median over rounds of each round's median: one slow round does not move it."""
    medians = [float(np.median(values)) for values in rounds if len(values)]
    return round(float(np.median(medians)), 1) if medians else None
