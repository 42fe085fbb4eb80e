"""What every caller will say and when, fixed before the first call is placed. Pure: the same seed, the same plan.

Callers keep this plan whatever the server does. A server that stalls cannot slow them down and so cannot hide how long
they waited: each latency counts from the moment at which the plan, not the caller, had finished speaking.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random

import numpy as np
from numpy.typing import NDArray

from duolog.loadtest.audio_files import SAMPLE_RATE_HZ
from duolog.loadtest.profile import LoadProfile, Mode, Phase
from duolog.loadtest.repertoire import Sound, room_noise

PLANS_FOR_THE_MEAN = 200


class TurnKind(StrEnum):
    TALK = "talk"
    BARGE_IN = "barge_in"
    THINK = "think"
    SILENCE = "silence"
    NOISE = "noise"
    TYPED = "typed"

    @property
    def expects_answer(self) -> bool:
        return self not in (TurnKind.SILENCE, TurnKind.NOISE)


@dataclass(frozen=True, slots=True)
class TurnPlan:
    """Times in seconds after the call was to be placed."""

    kind: TurnKind
    label: str
    start_s: float
    voiced_from_s: float
    end_s: float
    """Of the last voiced sample; a typed message: when it is sent."""
    deadline_s: float
    """The caller goes on then: what was not heard by now is missed."""
    parts: tuple[Sound, ...] = ()
    pause_s: float = 0.0
    """Between the parts."""

    def samples(self) -> NDArray[np.int16]:
        """What is spoken."""
        pause = np.zeros(round(self.pause_s * SAMPLE_RATE_HZ), dtype=np.int16)
        pieces = [piece for part in self.parts for piece in (pause, part.samples)][1:]
        return np.concatenate(pieces) if pieces else pause


@dataclass(frozen=True, slots=True)
class CallPlan:
    index: int
    arrives_s: float
    """After the run began."""
    turns: tuple[TurnPlan, ...]

    @property
    def length_s(self) -> float:
        return self.turns[-1].deadline_s


class Playwright:
    """Writes calls of a profile. Each is drawn from the seed and its own number, so one call more changes no other."""

    def __init__(self, profile: LoadProfile, sounds: Sequence[Sound]) -> None:
        """`sounds` may be empty in text mode."""
        self._profile = profile
        self._sounds = sounds
        pacing = profile.pacing
        self._noise = room_noise(pacing.quiet_s, pacing.noise_rms, profile.seed)
        drawn = [self.call(index, 0.0).length_s for index in range(PLANS_FOR_THE_MEAN)]
        self.mean_call_s = sum(drawn) / len(drawn)

    def call(self, index: int, arrives_s: float) -> CallPlan:
        rng = Random(f"{self._profile.seed}:{index}")
        at_s = self._profile.pacing.lead_s
        turns: list[TurnPlan] = []
        kinds = self._kinds(rng)
        for number, kind in enumerate(kinds):
            interrupted = number + 1 < len(kinds) and kinds[number + 1] is TurnKind.BARGE_IN
            turns.append(self._turn(kind, at_s, rng, interrupted=interrupted))
            at_s = turns[-1].deadline_s
        return CallPlan(index, arrives_s, tuple(turns))

    def calls(self, phases: Sequence[Phase], *, first_index: int, most: int) -> list[CallPlan]:
        """The calls that arrive in these phases, in order, at most so many."""
        rng = Random(f"{self._profile.seed}:arrivals:{first_index}")
        times = arrival_times(phases, self.mean_call_s, rng)[:most]
        return [self.call(first_index + number, at_s) for number, at_s in enumerate(times)]

    def _kinds(self, rng: Random) -> list[TurnKind]:
        count = rng.randint(*self._profile.turns)
        if self._profile.mode is Mode.TEXT:
            return [TurnKind.TYPED] * count
        mix = self._profile.mix
        weights = {
            TurnKind.TALK: mix.talk,
            TurnKind.BARGE_IN: mix.barge_in,
            TurnKind.THINK: mix.think,
            TurnKind.SILENCE: mix.silence,
            TurnKind.NOISE: mix.noise,
        }
        kinds = rng.choices(list(weights), list(weights.values()), k=count)
        for number, kind in enumerate(kinds):
            if kind is TurnKind.BARGE_IN and (number == 0 or not kinds[number - 1].expects_answer):
                kinds[number] = TurnKind.TALK
        return kinds

    def _turn(self, kind: TurnKind, at_s: float, rng: Random, *, interrupted: bool) -> TurnPlan:
        """`interrupted`: the caller barges in on the answer."""
        pacing = self._profile.pacing
        gap_s = rng.uniform(*pacing.gap_s)
        if interrupted:
            gap_s = pacing.barge_in_after_s
        if kind is TurnKind.TYPED:
            return TurnPlan(kind, rng.choice(self._profile.says), at_s, at_s, at_s, at_s + gap_s)
        if not kind.expects_answer:
            noise = (self._noise,) if kind is TurnKind.NOISE else ()
            ends_s = at_s + pacing.quiet_s
            return TurnPlan(kind, kind.value, at_s, at_s, ends_s, ends_s, noise)
        parts = tuple(rng.choice(self._sounds) for _ in range(2 if kind is TurnKind.THINK else 1))
        return _spoken(kind, at_s, gap_s, parts, pacing.think_pause_s if len(parts) > 1 else 0.0)


def _spoken(kind: TurnKind, at_s: float, gap_s: float, parts: tuple[Sound, ...], pause_s: float) -> TurnPlan:
    last_starts_s = at_s + sum(part.length_s + pause_s for part in parts[:-1])
    ends_s = last_starts_s + parts[-1].voiced_until_s
    deadline_s = max(ends_s + gap_s, last_starts_s + parts[-1].length_s)
    label = " … ".join(part.label for part in parts)
    return TurnPlan(kind, label, at_s, at_s + parts[0].voiced_from_s, ends_s, deadline_s, parts, pause_s)


def arrival_times(phases: Sequence[Phase], mean_call_s: float, rng: Random) -> list[float]:
    """When calls arrive so that the phases' calls are on the line at once: calls / mean length a second
    (Little's law).

    In each phase a Poisson process given its number of arrivals: the number is the expected one, rounded, the moments
    are chance. So two runs of one load differ in their bursts and not in how much they asked for.
    """
    times: list[float] = []
    starts_s, due = 0.0, 0.0
    for phase in phases:
        expected = _expected(phase, phase.seconds, mean_call_s)
        due += expected
        count = math.floor(due + 0.5) - len(times)
        ranks = sorted(rng.uniform(0, expected) for _ in range(count))
        times += [starts_s + _moment(phase, mean_call_s, rank) for rank in ranks]
        starts_s += phase.seconds
    return times


def offered_calls(phases: Sequence[Phase], at_s: float) -> float:
    """The calls at once that the phases ask for at this time; 0 after the last."""
    for phase in phases:
        if at_s < phase.seconds:
            return phase.first_calls + (phase.calls - phase.first_calls) * at_s / phase.seconds
        at_s -= phase.seconds
    return 0.0


def _expected(phase: Phase, until_s: float, mean_call_s: float) -> float:
    """Arrivals to expect from the phase's start until then."""
    slope = (phase.calls - phase.first_calls) / phase.seconds
    return (phase.first_calls * until_s + slope * until_s**2 / 2) / mean_call_s


def _moment(phase: Phase, mean_call_s: float, rank: float) -> float:
    """Seconds into the phase at which so many arrivals were to be expected: the inverse of `_expected`."""
    wanted = rank * mean_call_s
    slope = (phase.calls - phase.first_calls) / phase.seconds
    root = math.sqrt(max(0.0, phase.first_calls**2 + 2 * slope * wanted))
    return min(phase.seconds, 2 * wanted / (phase.first_calls + root)) if wanted else 0.0
