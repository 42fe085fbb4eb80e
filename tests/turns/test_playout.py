"""What was heard: samples to words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duolog.turns.playout import HeardWord, PlayoutLedger

pytestmark = pytest.mark.pure


def ledger_of(text: str, samples_per_word: int = 100) -> PlayoutLedger:
    ledger = PlayoutLedger(1, "item_1", 24_000)
    ledger.add_text(text)
    end = 0
    for number, word in enumerate(text.split(), start=1):
        end = text.index(word, end) + len(word)
        ledger.add_words([HeardWord(number * samples_per_word, end)])
    ledger.add_sent(len(text.split()) * samples_per_word)
    return ledger


@pytest.mark.parametrize(
    ("played", "heard"),
    [(0, ""), (99, ""), (100, "The"), (101, "The"), (299, "The cat"), (300, "The cat sat."), (900, "The cat sat.")],
)
def test_heard_text_ends_at_the_last_whole_word(played: int, heard: str) -> None:
    ledger = ledger_of("The cat sat.")
    ledger.report(played)
    assert ledger.heard_text() == heard


@pytest.mark.parametrize(
    ("start", "end", "said"),
    [
        (0, 100, "The cat"),
        (0, 99, "The"),
        (100, 200, " cat sat."),
        (150, 160, " cat"),
        (-50, 1_000, "The cat sat."),
        (300, 400, ""),
    ],
)
def test_words_that_sound_in_a_stretch(start: int, end: int, said: str) -> None:
    assert ledger_of("The cat sat.").said_between(start, end) == said


def test_without_timings_all_of_the_text_may_be_sounding() -> None:
    ledger = PlayoutLedger(1, "item", 1_000)
    ledger.add_text("The cat sat.")
    assert ledger.said_between(0, 1) == "The cat sat."


def test_trailing_text_counts_as_heard_once_all_was_played() -> None:
    ledger = ledger_of("Yes. ")
    ledger.complete = True
    ledger.report(100)
    assert ledger.heard_text() == "Yes. "
    assert ledger.finished


def test_reports_never_go_back_nor_beyond_what_was_sent() -> None:
    ledger = ledger_of("one two three")
    assert ledger.report(250)
    assert not ledger.report(10)
    assert ledger.played_samples == 250
    ledger.report(10_000)
    assert ledger.played_samples == 300


def test_more_text_may_follow_what_was_played() -> None:
    ledger = ledger_of("One. ")
    ledger.report(100)
    start = ledger.add_text("Two.")
    assert start == 5
    ledger.add_words([HeardWord(200, 9)])
    assert not ledger.finished
    assert ledger.heard_text() == "One."


@given(st.lists(st.text("ab c.,", min_size=1), min_size=1), st.integers(0, 5_000), st.integers(0, 5_000))
def test_heard_text_is_a_growing_prefix(texts: list[str], first: int, more: int) -> None:
    ledger = ledger_of(" ".join(texts))
    before = ledger.heard_text(first)
    assert ledger.text.startswith(before)
    assert ledger.heard_text(first + more).startswith(before)
