"""What sounds as if more is coming, and what does not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duolog.turns.completeness import Unfinished, ends_sentence, unfinished

pytestmark = pytest.mark.pure

MORE_TO_COME = [
    ("I'd like to book a table for the", Unfinished.FUNCTION_WORD),
    ("He was the.", Unfinished.FUNCTION_WORD),
    ("I would have come, but", Unfinished.FUNCTION_WORD),
    ("I want to", Unfinished.FUNCTION_WORD),
    ("Yes, and.", Unfinished.FUNCTION_WORD),
    ("It's", Unfinished.FUNCTION_WORD),
    ("I think it was um", Unfinished.FILLER),
    ("Well, you know.", Unfinished.FILLER),
    ("Can you tell me the um...", Unfinished.TRAILING),
    ("In this regard,", Unfinished.TRAILING),
    ("the cold-", Unfinished.TRAILING),
    ("My number is 555", Unfinished.NUMBER),
    ("It's 555, 123.", Unfinished.NUMBER),
    ("My number is five five five one two", Unfinished.NUMBER),
    ("Call me at double five, three, two", Unfinished.NUMBER),
    ("My card is 4111 1111 1111", Unfinished.NUMBER),
    ("My email is john dot smith at", Unfinished.ADDRESS),
    ("My e-mail address is john", Unfinished.ADDRESS),
    ("john@", Unfinished.ADDRESS),
    ("john at gmail dot", Unfinished.ADDRESS),
    ("It's spelled J-O-H", Unfinished.SPELLING),
    ("That is S, M, I.", Unfinished.SPELLING),
    ("Eggs, milk, bread.", Unfinished.LIST),
    ("Hello. Goodbye. Banana.", Unfinished.LIST),
]

COMPLETE = [
    "What's the weather like?",
    "Where are you from?",
    "Turn it on.",
    "Yes.",
    "No",
    "Stop!",
    "I am 25.",
    "In 1813.",
    "See you at 7:30.",
    "What's 37.67 minus 75.7?",
    "It costs 300 dollars.",
    "My number is 555-123-4567.",
    "My number is 5551234.",
    "My card is 4111 1111 1111 1111.",
    "Send me an email.",
    "My email is john.smith@gmail.com.",
    "john at gmail dot com",
    "Eggs, milk, and bread.",
    "Contoso, how's the weather?",
    "He lives in the U.S.",
    "Go to plan B.",
    "He is ill.",
]

MORE_TO_COME_ZH = [
    ("我想", Unfinished.FUNCTION_WORD),
    ("我不去，因为", Unfinished.FUNCTION_WORD),
    ("我喜歡蘋果還有", Unfinished.FUNCTION_WORD),
    ("请问", Unfinished.FUNCTION_WORD),
    ("嗯", Unfinished.FILLER),
    ("我觉得那个。", Unfinished.FILLER),
    ("先去北京，", Unfinished.TRAILING),
    ("我的电话是一三八", Unfinished.NUMBER),
    ("电话是138 1234", Unfinished.NUMBER),
    ("我的邮箱是wang", Unfinished.ADDRESS),
    ("苹果、香蕉、牛奶", Unfinished.LIST),
]

COMPLETE_ZH = [
    "你好。",
    "是的",
    "对",
    "不",
    "可以",
    "我没有担当",
    "电话是13812345678",
    "苹果、香蕉和牛奶",
    "今天天气怎么样？",
]


@pytest.mark.parametrize(("text", "reason"), MORE_TO_COME)
def test_more_is_to_come(text: str, reason: Unfinished) -> None:
    assert unfinished(text, "en") is reason


@pytest.mark.parametrize("text", COMPLETE)
def test_nothing_says_that_more_is_to_come(text: str) -> None:
    assert unfinished(text, "en") is None


@pytest.mark.parametrize(("text", "reason"), MORE_TO_COME_ZH)
def test_more_is_to_come_in_chinese(text: str, reason: Unfinished) -> None:
    assert unfinished(text, "zh") is reason


@pytest.mark.parametrize("text", COMPLETE_ZH)
def test_nothing_says_that_more_is_to_come_in_chinese(text: str) -> None:
    assert unfinished(text, "zh") is None


def test_an_unknown_language_is_asked_of_both_lists() -> None:
    assert unfinished("I want the", None) is Unfinished.FUNCTION_WORD
    assert unfinished("我不去，因为", None) is Unfinished.FUNCTION_WORD


@pytest.mark.parametrize("text", ["Yes.", "Who?", '"Go!"', "好。"])
def test_a_sentence_end_is_seen(text: str) -> None:
    assert ends_sentence(text)


@pytest.mark.parametrize("text", ["", "four", "The cab is...", "so,"])
def test_its_absence_too(text: str) -> None:
    assert not ends_sentence(text)


@given(st.text(max_size=60), st.sampled_from(["en", "zh", "de", None]))
def test_any_text_is_taken(text: str, language: str | None) -> None:
    assert unfinished(text, language) in {None, *Unfinished}


@given(st.integers(min_value=1, max_value=9).flatmap(lambda n: st.lists(st.sampled_from("0123456789"), min_size=n)))
def test_a_phone_number_is_open_until_it_has_its_digits(digits: list[str]) -> None:
    is_open = unfinished("My phone number is " + " ".join(digits), "en") is Unfinished.NUMBER
    assert is_open == (len(digits) < 13 and len(digits) not in {7, 10, 11, 12})
