"""Which waiting requests are transcribed together. Pure.

    the oldest final, or where none waits the oldest partial ─▶ with it what waits and is like it, finals first

Alike means the same language and the same length to within four seconds, so that nobody pays for a neighbour's window
or for the search of its language. Nothing waits for a batch to fill: a lone request is a batch.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from duolog.ports.asr import TranscriptionRequest

LENGTH_STEP_S = 4.0
"""Lengths are rounded up to it: as much as Whisper's short window is padded anyway (docs/decisions/0002)."""


@dataclass(frozen=True, slots=True)
class BatchLimits:
    requests: int = 1
    """1: one at a time, which is faster for everybody where an engine computes on few cores (docs/benchmarks.md)."""
    audio_s: float = 120.0
    """Of all requests of a batch together. A request that is longer is not refused: it runs alone."""


def next_batch(waiting: Sequence[TranscriptionRequest], limits: BatchLimits) -> list[int]:
    """Places in `waiting`, which is in order of arrival, of what the engine takes next; none only where none waits."""
    if not waiting:
        return []
    first, *others = sorted(range(len(waiting)), key=lambda place: waiting[place].partial)
    batch, audio_s = [first], waiting[first].audio_s
    for place in others:
        request = waiting[place]
        fits = len(batch) < limits.requests and audio_s + request.audio_s <= limits.audio_s
        if fits and _likeness(request) == _likeness(waiting[first]):
            batch.append(place)
            audio_s += request.audio_s
    return batch


def _likeness(request: TranscriptionRequest) -> Hashable:
    return request.language, math.ceil(request.audio_s / LENGTH_STEP_S)
