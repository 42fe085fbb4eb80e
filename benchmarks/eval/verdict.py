"""Holds what came against what was expected. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.eval.scenario import Edge, Engines, Expectation, Scenario, edge_of
from duolog.loadtest.wire_text import Message, text_field
from duolog.loadtest.wire_text import field as field_of
from duolog.turns.wording import words_of

FLUSH = "duolog.flush"
"""What was not yet heard of an answer is not to be played."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One event of the server."""

    at_s: float
    message: Message

    @property
    def kind(self) -> str:
        return text_field(self.message, "type")


@dataclass(slots=True)
class Performance:
    """What happened while a scenario was played."""

    began_s: float
    marks: dict[tuple[str, Edge], float] = field(default_factory=dict)
    """When each act began and ended."""
    events: list[Seen] = field(default_factory=list)
    problem: str | None = None
    """The call itself failed."""


@dataclass(frozen=True, slots=True)
class Verdict:
    scenario: str
    problems: tuple[str, ...]
    measured_ms: Mapping[str, float]

    @property
    def passed(self) -> bool:
        return not self.problems

    @property
    def interrupted(self) -> bool:
        """The answer was cut off though it should not have been."""
        return any(problem.startswith(f"no {FLUSH}: ") for problem in self.problems)


@dataclass(frozen=True, slots=True)
class LostWords:
    """Of what was said over the answers, as an interruption."""

    said: int
    lost: tuple[str, ...]


def lost_words(scenario: Scenario, performance: Performance) -> LostWords:
    """Words of the interrupting acts that no later transcript has. Empty where nothing was to interrupt."""
    if not any(expectation.event == FLUSH for expectation in scenario.expect):
        return LostWords(0, ())
    acts = [act for act in scenario.script if act.after and act.speech]
    since_s = min((performance.marks.get((act.name, Edge.BEGIN), 0.0) for act in acts), default=0.0)
    heard = {
        word.key
        for seen in performance.events
        if seen.kind == "conversation.item.input_audio_transcription.completed" and seen.at_s >= since_s
        for word in words_of(text_field(seen.message, "transcript"))
    }
    said = [word.key for act in acts for word in words_of(act.speech or "")]
    return LostWords(len(said), tuple(word for word in said if word not in heard))


def judge(scenario: Scenario, performance: Performance, engines: Engines) -> Verdict:
    """Every expectation that holds with these engines, in order."""
    problems = [performance.problem] if performance.problem else []
    measured: dict[str, float] = {}
    last_s, next_event = performance.began_s, 0
    for expectation in scenario.expect:
        if expectation.engines not in (Engines.ANY, engines):
            continue
        since_s = _since(expectation, performance, last_s)
        if since_s is None:
            problems.append(f"{_name(expectation)}: {expectation.since} never came")
        elif expectation.absent is not None:
            problems += _came_all_the_same(expectation, performance.events, since_s)
        else:
            first = next_event if expectation.since is None else 0
            found = _find(expectation, performance.events, first, since_s)
            if found is None:
                problems.append(f"{_name(expectation)}: did not come; came: {_kinds(performance.events, since_s)}")
                continue
            next_event, last_s = found + 1, performance.events[found].at_s
            took_ms = (last_s - since_s) * 1000
            if expectation.within_ms is not None and took_ms > expectation.within_ms:
                problems.append(f"{_name(expectation)}: came after {took_ms:.0f} ms, not {expectation.within_ms}")
            if expectation.measure is not None:
                measured[expectation.measure] = round(took_ms, 1)
    return Verdict(scenario.name, tuple(problems), measured)


def _since(expectation: Expectation, performance: Performance, last_s: float) -> float | None:
    return last_s if expectation.since is None else performance.marks.get(edge_of(expectation.since))


def _find(expectation: Expectation, events: Sequence[Seen], first: int, since_s: float) -> int | None:
    for index in range(first, len(events)):
        seen = events[index]
        if seen.at_s >= since_s and seen.kind == expectation.event and fits(expectation, seen.message):
            return index
    return None


def _came_all_the_same(expectation: Expectation, events: Iterable[Seen], since_s: float) -> Iterator[str]:
    until_s = float("inf") if expectation.for_ms is None else since_s + expectation.for_ms / 1000
    for seen in events:
        if since_s <= seen.at_s <= until_s and seen.kind == expectation.absent and fits(expectation, seen.message):
            yield f"{_name(expectation)}: came after {(seen.at_s - since_s) * 1000:.0f} ms"
            return


def fits(expectation: Expectation, message: Message) -> bool:
    """Its fields have the wanted values, and one of the wanted texts is in it: whole words, where words have spaces."""
    if any(field_of(message, *path.split(".")) != value for path, value in expectation.where.items()):
        return False
    if expectation.text is None:
        return True
    said = " ".join(_texts(message)).lower()
    wanted = (re.escape(text.strip().lower()) for text in expectation.text.split("|"))
    return any(re.search(rf"(?<![a-z]){text}(?![a-z])", said) for text in wanted)


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)


def _name(expectation: Expectation) -> str:
    wanted = expectation.event or f"no {expectation.absent}"
    return f"{wanted} ({expectation.text})" if expectation.text else wanted


def _kinds(events: Iterable[Seen], since_s: float) -> str:
    return ", ".join(dict.fromkeys(seen.kind for seen in events if seen.at_s >= since_s)) or "nothing"
