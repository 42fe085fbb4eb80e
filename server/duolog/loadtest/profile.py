"""What a load test does: who talks how, how much and for how long. A small YAML file, every mistake in it named."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from duolog.ports.errors import ConfigurationError
from duolog.strict_yaml import build, read_document

Weight = Annotated[float, Field(ge=0)]
Seconds = Annotated[float, Field(ge=0, le=3_600)]
Calls = Annotated[float, Field(ge=0, le=2_000)]


def _ascending(span: tuple[float, float]) -> tuple[float, float]:
    if span[0] > span[1]:
        raise ValueError("write the smaller number first")
    return span


SecondsSpan = Annotated[tuple[Seconds, Seconds], AfterValidator(_ascending)]
CountSpan = Annotated[
    tuple[Annotated[int, Field(ge=1)], Annotated[int, Field(ge=1, le=200)]], AfterValidator(_ascending)
]


class Mode(StrEnum):
    VOICE = "voice"
    TEXT = "text"
    """Typed messages and written answers: the model's stage alone."""


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of the test. The calls at once are an average: arrivals are chance."""

    name: str
    seconds: Annotated[float, Field(gt=0, le=86_400)]
    calls: Calls
    """At once, at the phase's end."""
    from_calls: Calls | None = None
    """At once, at its start; as `calls` where left out. Between them the load changes evenly."""
    counts: bool = True
    """False: a ramp or a warm-up, left out of the figures."""

    @property
    def first_calls(self) -> float:
        return self.calls if self.from_calls is None else self.from_calls


@dataclass(frozen=True, slots=True)
class Mix:
    """How often each kind of turn comes, relative to the others."""

    talk: Annotated[float, Field(gt=0)] = 8
    barge_in: Weight = 1
    """Speaks while the answer to the turn before is being spoken."""
    think: Weight = 1
    """Stops in the middle to think, then goes on."""
    silence: Weight = 1
    """Says nothing; nothing must be answered."""
    noise: Weight = 1
    """Room noise and no voice; nothing must be answered."""


@dataclass(frozen=True, slots=True)
class Pacing:
    """The callers' own clock. Nothing here waits for the server."""

    lead_s: Seconds = 1.0
    """From placing the call to the first word."""
    gap_s: SecondsSpan = (7.0, 11.0)
    """From the end of what is said to the next word: the time in which the answer must begin and should end."""
    barge_in_after_s: Seconds = 2.5
    """The same, before a barge-in."""
    think_pause_s: Seconds = 0.35
    quiet_s: Seconds = 3.0
    """Length of a silence or a noise."""
    noise_rms: Annotated[float, Field(gt=0, le=0.5)] = 0.004
    """Of full scale."""


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """How the most calls with a tail below the goal are looked for."""

    first_calls: Annotated[int, Field(ge=1)] = 1
    most_calls: Annotated[int, Field(ge=1, le=2_000)] = 64
    step_s: Annotated[float, Field(gt=0, le=3_600)] = 60
    """Measured at each level, after a warm-up of a call's length and a quarter."""
    most_steps: Annotated[int, Field(ge=1, le=30)] = 9
    refused_share: Annotated[float, Field(ge=0, le=1)] = 0.01
    """Calls that may be refused at a level that holds."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Where the test ends by itself."""

    most_calls: Annotated[int, Field(ge=1)] = 5_000
    """Placed in all."""
    most_s: Annotated[float, Field(gt=0, le=86_400)] = 3_600


SAYS = (
    "What is the weather like in the mountains today?",
    "Could you tell me how to bake a loaf of bread?",
    "I would like to know more about the history of the city.",
    "Please remind me what we talked about a moment ago.",
    "How long does it take to walk from here to the station?",
    "What would you cook for four friends on a rainy evening?",
    "Tell me something surprising about the sea.",
    "Which book should I read when I cannot sleep?",
)


@dataclass(frozen=True, slots=True)
class LoadProfile:
    name: str = "talk"
    description: str = "A few callers in a mixed conversation: turns, interruptions, pauses, silence and noise."
    mode: Mode = Mode.VOICE
    persona: str = "ava"
    seed: int = 1
    turns: CountSpan = (3, 5)
    """In a call."""
    says: Annotated[tuple[str, ...], Field(min_length=1)] = SAYS
    """Typed in text mode; spoken by espeak-ng where no recordings are given."""
    mix: Mix = field(default_factory=Mix)
    pacing: Pacing = field(default_factory=Pacing)
    load: Annotated[tuple[Phase, ...], Field(min_length=1)] = (
        Phase("ramp", 30, 2, from_calls=0, counts=False),
        Phase("soak", 60, 2),
    )
    search: SearchPlan = field(default_factory=SearchPlan)
    bounds: Bounds = field(default_factory=Bounds)


def load_profile(path: Path | None) -> LoadProfile:
    """The profile of a file, or the built-in one. Raises ConfigurationError with file, line and the allowed keys."""
    if path is None:
        return LoadProfile()
    profile = build(LoadProfile, read_document(path))
    if not any(phase.counts for phase in profile.load):
        raise ConfigurationError(f"{path}: no phase of `load` counts, so nothing would be measured; let one count.")
    if not any(phase.calls or phase.first_calls for phase in profile.load):
        raise ConfigurationError(f"{path}: no phase of `load` has calls; give one `calls` above 0.")
    if profile.search.first_calls > profile.search.most_calls:
        raise ConfigurationError(f"{path}: `search.first_calls` is above `search.most_calls`; lower it.")
    return profile
