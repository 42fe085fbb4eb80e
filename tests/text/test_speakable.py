"""What is spoken of an answer, and the way back from heard words to the answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duolog.text.speakable import speakable

pytestmark = pytest.mark.pure

WORDS = (
    "Hello **bold** _it_ `code` [link](https://a.b) https://example.com 😀 ❤️ $5.50 5% 10:30 a.m. July 4, 2020 1/2 3.14 "
    "e.g. Mr. U.S. 1,000 in 1984 = + ( "
    "5–10 km 35°C # - | * ~~ ``` → & © 1st 1990s 555-1234 me@x.org 你好 。 ， < > &amp; <br> No. 9"
)
TEXTS = st.one_of(
    st.text(max_size=80),
    st.lists(st.sampled_from([*WORDS.split(), "\n", " ", "\n\n"]), max_size=30).map(" ".join),
    st.lists(st.sampled_from([*WORDS.split(), "\n", " "]), max_size=30).map("".join),
)


@given(TEXTS, st.sampled_from(["en", "en-US", "zh", "de"]))
def test_spans_cover_the_spoken_text_and_lead_back_in_order(text: str, language: str) -> None:
    spoken = speakable(text, language)
    assert [span.spoken_start for span in spoken.spans] == [0, *(span.spoken_end for span in spoken.spans)][:-1] or (
        spoken.text == ""
    )
    assert (spoken.spans[-1].spoken_end if spoken.spans else 0) == len(spoken.text)
    ends = [spoken.source_end(offset) for offset in range(len(spoken.text) + 1)]
    assert ends == sorted(ends)
    assert ends[-1] == len(text)
    for span in spoken.spans:
        assert 0 <= span.source_start < span.source_end <= len(text)
        if span.verbatim:
            length = span.spoken_end - span.spoken_start
            assert text[span.source_start :][:length] == spoken.text[span.spoken_start : span.spoken_end]


@given(st.lists(st.sampled_from(["hello", "there", "what", "你好", "fine,", "yes."]), min_size=1).map(" ".join))
def test_plain_words_are_spoken_as_they_stand(text: str) -> None:
    assert speakable(text, "en").text == text


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("**Hello** _world_, ***you*** ~~there~~!", "Hello world, you there!"),
        ("# Title\nText", "Title. Text"),
        ("- one\n- two", "one. two"),
        ("* [ ] milk\n* [x] bread", "milk. bread"),
        ("> quoted", "quoted"),
        ("2 * 3 = 6 and x*y", "two times three equals six and x*y"),
        ("snake_case stays_whole", "snake case stays whole"),
        ("| a | b |\n|---|---|\n| c | d |", "a, b. c, d"),
        ("Use `pip` now", "Use pip now"),
        ("Like so:\n```py\nx = 1\n```\nDone.", "Like so: code block. Done."),
        ("See [the docs](https://a.org/x_(y)) now", "See the docs now"),
        ("Look: ![a cat](cat.png)", "Look: a cat"),
        ("Go to https://www.example.com/docs.", "Go to example dot com slash docs."),
        ("Go to https://example.com/a/b?c=d, then", "Go to example dot com, then"),
        ("Write to ann.lee@example.org.", "Write to ann dot lee at example dot org."),
        ("Great 😀👍🏽 👨‍👩‍👧 ❤️ news", "Great news"),
        ("Salt &amp; pepper<br>and more", "Salt and pepper and more"),
        ("A → B", "A, B"),
        ("😀", ""),
        ("...", ""),
        ("", ""),
    ],
)
def test_markup(written: str, said: str) -> None:
    assert speakable(written, "en").text == said


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("3.14", "three point one four"),
        ("1,000", "one thousand"),
        ("-5 degrees", "minus five degrees"),
        ("007", "zero zero seven"),
        ("$5", "five dollars"),
        ("$1.01", "one dollar and one cent"),
        ("$0.50", "fifty cents"),
        ("$3.5 million", "three point five million dollars"),
        ("€20 or 30 EUR", "twenty euros or thirty euros"),
        ("5%", "five percent"),
        ("2.5 %", "two point five percent"),
        ("10:30", "ten thirty"),
        ("10:05 p.m.", "ten oh five p m"),
        ("9am", "nine a m"),
        ("12:00", "twelve o'clock"),
        ("July 4, 2020", "July fourth, twenty twenty"),
        ("on 4 July 1999", "on the fourth of July, nineteen ninety nine"),
        ("2024-05-03", "May third, twenty twenty four"),
        ("12/25/2024", "December twenty fifth, twenty twenty four"),
        ("in 1984", "in nineteen eighty four"),
        ("the 1990s", "the nineteen nineties"),
        ("2048 tokens", "two thousand and forty eight tokens"),
        ("the 21st", "the twenty first"),
        ("1/2 and 3/4", "one half and three quarters"),
        ("24/7", "twenty four seven"),
        ("5-10 km", "five to ten kilometers"),
        ("5–10%", "five to ten percent"),
        ("won 3-2", "won three to two"),
        ("1 km, 2 km/h, 35°C", "one kilometer, two kilometers per hour, thirty five degrees Celsius"),
        ("call 555-123-4567", "call five five five, one two three, four five six seven"),
        ("version 1.2.3", "version one point two point three"),
        ("an H200 and mp3", "an H200 and mp3"),
        ("Dr. Who, e.g. Mr. X etc.", "Doctor Who, for example Mister X et cetera."),
        ("No. 5 & #6", "number five and number six"),
        ("the U.S. army", "the U S army"),
        ("That is no. I mean it.", "That is no. I mean it."),
    ],
)
def test_english_words(written: str, said: str) -> None:
    assert speakable(written, "en").text == said


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("你好，**世界**！😀", "你好，世界！"),
        ("今天25度，涨了5%。", "今天25度，涨了5%。"),
        ("# 标题\n- 一\n- 二", "标题。一。二"),
        ("用 Python 写", "用 Python 写"),
    ],
)
def test_chinese_passes_with_its_markup_removed(written: str, said: str) -> None:
    assert speakable(written, "zh").text == said


def heard(text: str, until: str) -> str:
    """The part of the source that was heard when the spoken text was heard to the end of `until`."""
    spoken = speakable(text, "en")
    return text[: spoken.source_end(spoken.text.index(until) + len(until))]


def test_heard_words_lead_back_to_the_source() -> None:
    text = "It **really** costs $5.50 today 😀, my friend."
    assert heard(text, "It") == "It"
    assert heard(text, "really") == "It **really**"
    assert heard(text, "costs") == "It **really** costs"
    assert heard(text, "five") == "It **really** costs "
    assert heard(text, "fifty cents") == "It **really** costs $5.50"
    assert heard(text, "today") == "It **really** costs $5.50 today"
    assert heard(text, "my friend.") == text
    assert heard("Born in 1984 here.", "in") == "Born in"


def test_what_is_left_out_at_the_end_was_heard_with_the_rest() -> None:
    assert heard("Bye! 👋", "Bye!") == "Bye! 👋"
    assert speakable("👋", "en").source_end(0) == 1
