"""The batcher's benchmark: the same load for everybody, and only delivered answers count."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest
from benchmarks.batcher import LOAD, Loads
from benchmarks.batcher_engines import shuffled
from benchmarks.batcher_report import BASELINE, DIRECT, EMBEDDED, SLO, WINDOW, Played, drawing, figures, verdicts
from benchmarks.mixed_load import Arrival, Outcome, answer_load, mixed_load

from duolog.ports.llm import TokenUsage
from duolog.serving.policies import RequestClass
from duolog.strict_yaml import build, read_document

pytestmark = pytest.mark.pure

WORDS = tuple(range(100, 180))
LOADS = build(Loads, read_document(LOAD))


def final(first_token_s: float | None, *, finished: bool = True, at_s: float = 0.0) -> Outcome:
    arrival = Arrival(at_s, "anna", RequestClass.FINAL, (1, 2, 3), 20)
    return Outcome(arrival, 0.0, first_token_s, 2.0, finished, TokenUsage(3, 1, 20) if finished else TokenUsage())


def prefill(*, finished: bool) -> Outcome:
    return Outcome(Arrival(1.0, "ben", RequestClass.PARTIAL, (1, 2, 3)), 0.0, None, 0.5, finished)


def test_every_run_has_the_same_times_and_lengths_and_other_prompts() -> None:
    shape = LOADS.calls.at(LOADS.levels[0])
    one, other = (mixed_load(shape, LOADS.seed, shuffled(WORDS, salt)) for salt in (1, 2))
    assert [(a.at_s, a.klass, len(a.prompt_ids), a.max_tokens) for a in one] == [
        (a.at_s, a.klass, len(a.prompt_ids), a.max_tokens) for a in other
    ]
    assert all(a.prompt_ids[:16] != b.prompt_ids[:16] for a, b in zip(one, other, strict=True))
    assert sorted(shuffled(WORDS, 1)) == sorted(WORDS)


def test_the_answer_load_has_finals_alone() -> None:
    arrivals = answer_load(LOADS.answers, LOADS.seed, WORDS)
    assert len(arrivals) == LOADS.answers.count
    assert {arrival.klass for arrival in arrivals} == {RequestClass.FINAL}
    assert [a.at_s for a in arrivals] == sorted(a.at_s for a in arrivals)


def test_only_answers_that_were_delivered_count() -> None:
    outcomes = [final(0.1), final(0.3, at_s=8.0), final(None, finished=False), prefill(finished=True)]
    row = figures([Played(SLO, outcomes)], 4)
    assert (row["finals"], row["delivered"], row["answers_per_s"], row["tokens_per_s"]) == (3, 2, 0.2, 4.0)
    assert (row["prefills"], row["prefills_done"], row["offered_per_s"]) == (1, 1, 0.375)
    assert row["first_token_p50_ms"] == 300.0
    assert row["first_token_p99_ms"] is None, "one never came"
    assert row["cached_share"] == 0.333


def level(system: str, p99_ms: float | None, answers_per_s: float) -> dict[str, Any]:
    return {"system": system, "calls": 8, "first_token_p99_ms": p99_ms, "answers_per_s": answers_per_s}


def test_verdicts_are_about_the_levels_where_direct_is_too_slow() -> None:
    rows = [level(DIRECT, 1_200.0, 1.0), level(WINDOW, 1_000.0, 1.02), level(SLO, 400.0, 1.0)]
    answers = [{"system": name, "answers_per_s": value} for name, value in ((BASELINE, 0.5), (EMBEDDED, 0.9), (SLO, 2))]
    found = {"calls": rows, "answers": answers, "alone": {"added_p99_ms": 0.4}}
    assert [(verdict["seen"], verdict["ok"]) for verdict in verdicts(found)] == [
        ("1.80", False),
        ("4.00", True),
        ("400 ms", True),
        ("0.40", True),
        ("0.98", True),
        ("0.4 ms", True),
    ]
    assert verdicts({"calls": [level(DIRECT, 300.0, 1.0), *rows[1:]]}) == []


def test_a_tail_that_never_came_is_longer_than_any() -> None:
    rows = [level(DIRECT, None, 0.4), level(WINDOW, None, 0.3), level(SLO, 900.0, 0.9)]
    assert [verdict["seen"] for verdict in verdicts({"calls": rows})] == ["900 ms", "0.00", "2.25"]
    assert verdicts({"calls": [*rows[:2], level(SLO, None, 0.9)]}) == []
    assert drawing({"calls": rows})


def test_the_drawing_has_one_line_for_each_system() -> None:
    rows = [level(DIRECT, 1_200.0, 1.0), level(SLO, 400.0, 1.0), {**level(SLO, 450.0, 1.8), "calls": 12}]
    root = ElementTree.fromstring(drawing({"calls": rows}))
    groups = root.findall(".//{*}g")
    assert len(groups) == 2
    assert [len(group.findall("{*}circle")) for group in groups] == [1, 2]
