"""How long a pause is waited: each row of the table, the speaker's habits, the bounds."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duolog.turns.endpointing import (
    DEFAULT_RULE,
    EndpointingRule,
    Patience,
    PauseEvidence,
    SpeakerHabit,
    endpoint_delay_ms,
    is_worth_reading,
)

pytestmark = pytest.mark.pure

SENTENCE = "What is the time?"
LIKELY = DEFAULT_RULE.likely_ms
SURE, UNSURE = Patience().shortest_ms, DEFAULT_RULE.unsure_ms
UNFINISHED, DICTATION = DEFAULT_RULE.unfinished_ms, DEFAULT_RULE.dictation_ms
DOUBTFUL = DEFAULT_RULE.doubtful_ms
EVIDENCE = st.builds(
    PauseEvidence,
    probability=st.none() | st.floats(0, 1),
    text=st.none() | st.sampled_from(["", "Yes.", SENTENCE, "I want the", "My number is 555"]) | st.text(max_size=40),
    language=st.sampled_from(["en", "zh", None]),
    sentence_end=st.none() | st.floats(0, 1),
    awaits_sentence_end=st.booleans(),
)
PAUSES = st.lists(st.tuples(st.sampled_from(["on", "cut", "end"]), st.integers(64, 6_000)), max_size=20)


def delay(evidence: PauseEvidence, habit: SpeakerHabit | None = None, patience: Patience | None = None) -> int:
    return endpoint_delay_ms(evidence, patience or Patience(), habit or SpeakerHabit())


def habit_of(events: list[tuple[str, int]]) -> SpeakerHabit:
    habit = SpeakerHabit()
    for kind, pause_ms in events:
        if kind == "on":
            habit.went_on(pause_ms)
        elif kind == "cut":
            habit.was_cut(pause_ms)
        else:
            habit.turn_ended()
    return habit


@pytest.mark.parametrize(
    ("probability", "text", "language", "expected_ms"),
    [
        (0.99, SENTENCE, "en", SURE),
        (0.6, SENTENCE, "en", UNSURE),
        (None, SENTENCE, "en", LIKELY),
        (0.99, None, "en", UNSURE),
        (0.99, "", "en", UNSURE),
        (None, None, None, UNSURE),
        (0.99, "Yes.", "en", LIKELY),
        (0.99, "Yes", "en", LIKELY),
        (0.99, "今天天气怎么样", "zh", LIKELY),
        (0.05, SENTENCE, "en", UNFINISHED),
        (0.05, None, "en", UNFINISHED),
        (0.99, "I would like to go to the", "en", UNFINISHED),
        (0.99, "The child almost hurt", "en", UNFINISHED),
        (0.99, "我不去，因为", "zh", UNFINISHED),
        (0.99, "今天天气怎么样？", "zh", SURE),
        (0.05, "I would like to go to the", "en", DICTATION),
        (0.99, "My number is 555", "en", DICTATION),
        (None, "My email is john dot smith at", "en", DICTATION),
    ],
)
def test_each_row_of_the_table(probability: float | None, text: str | None, language: str, expected_ms: int) -> None:
    assert delay(PauseEvidence(probability, text, language)) == expected_ms


@pytest.mark.parametrize(
    ("probability", "sentence_end", "text", "expected_ms"),
    [
        (0.99, 0.4, SENTENCE, SURE),
        (0.6, 0.7, SENTENCE, SURE),
        (0.99, 0.06, SENTENCE, DOUBTFUL),
        (0.4, 0.4, SENTENCE, DOUBTFUL),
        (0.99, 0.001, SENTENCE, UNFINISHED),
        (0.3, 0.1, SENTENCE, UNFINISHED),
        (0.01, 0.4, SENTENCE, UNFINISHED),
        (0.99, 0.9, "I would like to go to the", UNFINISHED),
        (0.01, 0.001, "I would like to go to the", DICTATION),
        (0.99, 0.9, "My number is 555", DICTATION),
        (None, 0.8, SENTENCE, SURE),
        (None, 0.005, SENTENCE, UNFINISHED),
        (0.0, 0.0, SENTENCE, UNFINISHED),
        (1.0, 1.0, SENTENCE, SURE),
    ],
)
def test_what_is_heard_and_what_is_read_are_weighed(
    probability: float | None, sentence_end: float, text: str, expected_ms: int
) -> None:
    assert delay(PauseEvidence(probability, text, "en", sentence_end)) == expected_ms


def test_the_chat_model_is_awaited_a_little_where_all_else_is_over() -> None:
    complete = PauseEvidence(0.99, SENTENCE, "en", awaits_sentence_end=True)
    assert delay(complete) == SURE + DEFAULT_RULE.awaited_ms
    assert delay(replace(complete, probability=0.6)) == UNSURE


@pytest.mark.parametrize(
    ("text", "language", "worth"),
    [
        ("What is the time in Rome?", "en", True),
        ("Can you help me?", "en", False),
        ("Yes.", "en", False),
        ("I would like to go to the", "en", False),
        ("The child had almost hurt himself", "en", False),
        ("My number is 555.", "en", False),
        ("Wie spät ist es jetzt in Rom?", "de", False),
        ("今天天气怎么样？", "zh", False),
        ("What is the time in Rome?", None, False),
        ("", "en", False),
        (None, "en", False),
    ],
)
def test_the_chat_model_is_asked_where_it_matters(text: str | None, language: str | None, worth: bool) -> None:
    assert is_worth_reading(PauseEvidence(0.99, text, language)) is worth


@given(EVIDENCE, PAUSES, st.floats(0, 1), st.floats(0, 1))
def test_the_more_it_reads_complete_the_shorter(
    evidence: PauseEvidence, events: list[tuple[str, int]], one: float, other: float
) -> None:
    habit = habit_of(events)
    low, high = (replace(evidence, sentence_end=value, awaits_sentence_end=False) for value in sorted((one, other)))
    assert delay(high, habit) <= delay(low, habit)


def test_patience_scales_and_bounds() -> None:
    complete, open_ended = PauseEvidence(0.99, SENTENCE, "en"), PauseEvidence(0.99, "I want the", "en")
    assert delay(complete, patience=Patience(200, 2_500, 2.0)) == 200
    assert delay(PauseEvidence(0.6, SENTENCE, "en"), patience=Patience(200, 2_500, 2.0)) == 2 * UNSURE
    assert delay(complete, patience=Patience(500, 2_500, 1.0)) == 500
    assert delay(open_ended, patience=Patience(300, 900, 1.0)) == 900


def test_who_pauses_long_is_given_longer_pauses() -> None:
    slow = habit_of([("on", UNSURE + 200)] * SpeakerHabit.KNOWN)
    unsure = PauseEvidence(0.6, SENTENCE, "en")
    assert delay(unsure, slow) == UNSURE + 200 + SpeakerHabit.MARGIN_MS
    assert delay(PauseEvidence(0.99, SENTENCE, "en"), slow) == SURE, "what is surely over needs no patience"
    assert delay(unsure, habit_of([("on", 60_000)] * 8)) == UNFINISHED, "never more than what sounds unfinished gets"


def test_a_few_pauses_are_no_habit() -> None:
    assert delay(PauseEvidence(0.6, SENTENCE, "en"), habit_of([("on", 1_400)])) == UNSURE


def test_who_is_cut_again_and_again_is_given_more_than_those_pauses() -> None:
    complete = PauseEvidence(0.99, SENTENCE, "en")
    assert delay(complete, habit_of([("cut", 420)])) == SURE, "once is chance"
    twice = [("cut", 420)] * SpeakerHabit.CUTS
    assert delay(complete, habit_of(twice)) == 420 + SpeakerHabit.MARGIN_MS
    assert delay(complete, habit_of([("cut", 5_000)] * SpeakerHabit.CUTS)) == UNSURE
    forgiven = habit_of([*twice, *[("end", 0)] * SpeakerHabit.CUT_TURNS])
    assert delay(complete, forgiven) == SURE


@given(EVIDENCE, PAUSES, st.floats(0.5, 2.0))
def test_the_bounds_hold_whatever_is_known(
    evidence: PauseEvidence, events: list[tuple[str, int]], factor: float
) -> None:
    assert 300 <= delay(evidence, habit_of(events), Patience(300, 2_500, factor)) <= 2_500


@given(EVIDENCE, PAUSES, st.floats(0, 1), st.floats(0, 1))
def test_the_more_it_sounds_complete_the_shorter(
    evidence: PauseEvidence, events: list[tuple[str, int]], one: float, other: float
) -> None:
    habit = habit_of(events)
    low, high = sorted((one, other))
    assert delay(replace(evidence, probability=high), habit) <= delay(replace(evidence, probability=low), habit)


def test_the_rule_can_be_another() -> None:
    rule = EndpointingRule(sure_probability=0.6)
    assert endpoint_delay_ms(PauseEvidence(0.65, SENTENCE, "en"), Patience(100), SpeakerHabit(), rule) == 100
