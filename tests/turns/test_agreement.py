"""Stable words: append-only, in step with what two hypotheses agree on, and never ahead of them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duolog.turns.agreement import StableWords
from duolog.turns.wording import words_of

pytestmark = pytest.mark.pure

WORDS = st.sampled_from(["I", "would", "like", "to", "go", "home.", "go,", "你", "好", "Well"])
TEXTS = st.lists(WORDS, max_size=8).map(" ".join)


def keys(text: str) -> list[str]:
    return [word.key for word in words_of(text)]


def test_words_come_out_when_two_hypotheses_agree_and_the_newest_is_held_back() -> None:
    stable = StableWords()
    assert stable.push("I would like a") == ""
    assert stable.push("I would like to go") == "I would like"
    assert stable.push("I would like to go") == " to"
    assert stable.push("I would like to go home") == " go"
    assert stable.text == "I would like to go"


def test_case_and_punctuation_do_not_matter() -> None:
    stable = StableWords()
    stable.push("well, I think")
    assert stable.push("Well I think so") == "Well I think"


def test_chinese_is_counted_by_character() -> None:
    stable = StableWords()
    stable.push("今天天气")
    assert stable.push("今天天气很好") == "今天天气"
    assert stable.push("今天天气很好啊") == "很好"


def test_mixed_languages_keep_their_spacing() -> None:
    stable = StableWords()
    stable.push("我想 buy a 手机")
    stable.push("我想 buy a 手机 today")
    assert stable.text == "我想 buy a 手机"


def test_a_word_put_in_before_what_is_out_does_not_repeat_words() -> None:
    stable = StableWords()
    stable.push("want to go home now")
    stable.push("want to go home now please")
    said = stable.text
    stable.push("I want to go home now please do")
    assert stable.text == said + " please"


def test_settled_audio_is_said_in_full_and_hypotheses_begin_after_it() -> None:
    stable = StableWords()
    stable.push("one two three four")
    assert stable.push("one two three four") == "one two three"
    assert stable.settle("One, two, three, four.") == " four."
    assert stable.push("five six") == ""
    assert stable.push("five six seven") == " five six"
    assert stable.text == "one two three four. five six"


def test_nothing_heard_says_nothing() -> None:
    stable = StableWords()
    assert stable.push("") == stable.push(" ... ") == stable.settle("") == stable.text == ""


@settings(deadline=None)
@given(st.lists(TEXTS, max_size=8))
def test_what_was_said_is_never_taken_back(hypotheses: list[str]) -> None:
    stable, said = StableWords(), ""
    for hypothesis in hypotheses:
        said += stable.push(hypothesis)
        assert stable.text == said


@settings(deadline=None)
@given(st.lists(TEXTS, max_size=8))
def test_a_word_is_said_only_if_the_newest_two_hypotheses_hold_it(hypotheses: list[str]) -> None:
    stable, previous = StableWords(), ""
    for hypothesis in hypotheses:
        new = keys(stable.push(hypothesis))
        assert " ".join(new) in " ".join(keys(hypothesis))
        assert " ".join(new) in " ".join(keys(previous))
        previous = hypothesis


@settings(deadline=None)
@given(TEXTS, st.data())
def test_a_recogniser_that_never_changes_its_mind_is_followed_exactly(text: str, data: st.DataObject) -> None:
    words, stable = words_of(text), StableWords()
    for end in sorted(data.draw(st.lists(st.integers(0, len(words)), max_size=6))):
        stable.push("".join(word.surface for word in words[:end]))
        assert keys(stable.text) == [word.key for word in words][: len(keys(stable.text))]


@settings(deadline=None)
@given(TEXTS)
def test_words_hold_the_whole_text(text: str) -> None:
    assert "".join(word.surface for word in words_of(text)) == text
