"""Texts that go round in circles."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duolog.turns.repetition import ends_in_repeat, longest_run, without_repeated_end

pytestmark = pytest.mark.pure


@pytest.mark.parametrize(
    ("text", "once"),
    [
        ("Charlie Charlie Charlie", "Charlie"),
        ("Turn on the lamp. Turn on the lamp. Turn on the", "Turn on the lamp."),
        ("First. Press seven to jump back. Press seven to jump back.", "First. Press seven to jump back."),
        ("No. No.", "No."),
        ("Good bye good", "Good bye"),
        ("好好好", "好"),
    ],
)
def test_a_repeated_end_is_seen_and_can_be_cut_off(text: str, once: str) -> None:
    assert ends_in_repeat(text)
    assert without_repeated_end(text) == once


@pytest.mark.parametrize(
    "text",
    [
        "",
        "No.",
        "Press one to record your temporary greeting, or press two to erase your temporary greeting.",
        "Try again. Fail again. Fail better.",
        "That is very very good",
        "It was not the loss of the cotton but the dreams built around it.",
        "I know that I",
    ],
)
def test_ordinary_speech_is_left_alone(text: str) -> None:
    assert not ends_in_repeat(text)
    assert without_repeated_end(text) == text


@pytest.mark.parametrize(
    ("text", "run"),
    [("", 0), ("yes", 1), ("no, no, no", 3), ("a b a b a b c", 3), ("one two three", 1), ("a b b c", 2)],
)
def test_the_longest_run(text: str, run: int) -> None:
    assert longest_run(text) == run


@settings(deadline=None)
@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=5), st.integers(2, 5))
def test_a_phrase_said_over_is_always_seen(phrase: list[str], times: int) -> None:
    text = " ".join(phrase * times)
    assert ends_in_repeat(text)
    assert longest_run(text) >= times
