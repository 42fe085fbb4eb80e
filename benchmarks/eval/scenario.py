"""Scenario files: who speaks when, and what the server must do then. tests/scenarios/README.md explains every key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from pydantic import ConfigDict, Field

from duolog.ports.errors import ConfigurationError
from duolog.strict_yaml import build, read_document

Milliseconds = Annotated[int, Field(ge=0)]
STRICT = ConfigDict(extra="forbid")


class Engines(StrEnum):
    """With which engines something holds."""

    ANY = "any"
    REAL = "real"
    SCRIPTED = "scripted"


class Edge(StrEnum):
    BEGIN = "begin"
    """The first audible sample was sent."""
    END = "end"
    """The last voiced sample was sent."""


@dataclass(frozen=True, slots=True)
class Act:
    """One sound of the caller. Exactly one of `speech`, `clip`, `tone_ms`, `noise` and `silence_ms`."""

    __pydantic_config__ = STRICT

    name: str
    speech: str | None = None
    """Text, spoken by espeak-ng."""
    language: str = "en"
    clip: str | None = None
    """A file of the corpus."""
    tone_ms: Milliseconds | None = None
    """A hum, as a mouth makes without words."""
    noise: str | None = None
    """A kind of `benchmarks/eval/sounds.py`, such as `cough`."""
    silence_ms: Milliseconds | None = None
    after: str | None = None
    """Begin when this event comes; None: when the act before has ended."""
    wait_ms: Milliseconds = 0
    """And then after this long."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """An event that comes, or with `absent` one that does not."""

    __pydantic_config__ = STRICT

    event: str | None = None
    absent: str | None = None
    text: str | None = None
    """Somewhere in the event's texts, whatever the case; alternatives are parted by `|`."""
    where: dict[str, str | int | bool] = field(default_factory=dict)
    """Fields by dotted path, and their values."""
    since: str | None = None
    """`act.begin` or `act.end`; None: since the expectation before."""
    within_ms: Milliseconds | None = None
    for_ms: Milliseconds | None = None
    """Of an absent one: until this long after `since`; None: until the end."""
    measure: str | None = None
    """The time since `since` goes into the report under this name."""
    engines: Engines = Engines.ANY


@dataclass(frozen=True, slots=True)
class Scenario:
    __pydantic_config__ = STRICT

    description: str
    script: tuple[Act, ...]
    expect: tuple[Expectation, ...]
    name: str = ""
    persona: str = "bench"
    greeting: bool = False
    session: dict[str, object] = field(default_factory=dict)
    """Fields of a `session.update` before the first act."""
    lasts_ms: Milliseconds = 6_000
    """After the last act."""
    engines: Engines = Engines.ANY


def read_scenarios(folder: Path) -> list[Scenario]:
    """Every `*.yaml` of the folder. Raises ConfigurationError naming file and line."""
    return [read_scenario(file) for file in sorted(folder.glob("*.yaml"))]


def read_scenario(file: Path) -> Scenario:
    scenario = build(Scenario, read_document(file), {"name": file.stem})
    for problem in (*_acts_that_cannot_be(scenario.script), *_expectations_that_cannot_be(scenario)):
        raise ConfigurationError(f"{file}: {problem}")
    return scenario


def edge_of(mark: str) -> tuple[str, Edge]:
    """`act.begin` → act and edge. Raises ValueError where it is neither."""
    name, _, edge = mark.rpartition(".")
    return name, Edge(edge)


def _acts_that_cannot_be(acts: Sequence[Act]) -> list[str]:
    problems = []
    for act in acts:
        sounds = (act.speech, act.clip, act.tone_ms, act.noise, act.silence_ms)
        if sum(sound is not None for sound in sounds) != 1:
            problems.append(f"the act `{act.name}` needs one of speech, clip, tone_ms, noise and silence_ms.")
    return problems


def _expectations_that_cannot_be(scenario: Scenario) -> list[str]:
    problems, acts = [], {act.name for act in scenario.script}
    for number, expectation in enumerate(scenario.expect, 1):
        if (expectation.event is None) == (expectation.absent is None):
            problems.append(f"expectation {number} needs one of event and absent.")
        if expectation.since is not None and not _is_mark(expectation.since, acts):
            problems.append(
                f"expectation {number}: `since: {expectation.since}` names no act of the script; write act.begin."
            )
    return problems


def _is_mark(mark: str, acts: set[str]) -> bool:
    try:
        return edge_of(mark)[0] in acts
    except ValueError:
        return False
