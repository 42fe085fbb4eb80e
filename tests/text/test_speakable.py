"""What is spoken of an answer, and the way back from heard words to the answer."""

from __future__ import annotations

import pytest
import regex  # type: ignore[import-untyped]  # rejected: its type information is a package of its own
from hypothesis import given
from hypothesis import strategies as st

from duolog.text.speakable import speakable

pytestmark = pytest.mark.pure

WORDS = (
    "Hello **bold** _it_ `code` [link](https://a.b) https://example.com 😀 ❤️ $5.50 5% 10:30 a.m. July 4, 2020 1/2 3.14 "
    "e.g. Mr. U.S. 1,000 in 1984 = + ( "
    "2024年5月3日 3个 ¥12.50 50% 1e6 x² v1.2 <b> $x$ \\frac{1}{2} [1] [^2] ** __ ~ ^ @ \\ {a} | --x 2-3 18:05 "
    "Mon-Fri 9am-5pm ½ VIII 第2 下午3点 10:05 百分之 "
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


READ_OUT = regex.compile(r"[\p{S}\p{C}*#_|`~^@\\\[\]{}<>]")
"""Signs that a voice reads by their names."""
READ_OUT_ELSEWHERE = regex.compile(r"[\p{So}\p{C}*#_|`~^\\\[\]{}--[°]]", regex.VERSION1)


@given(TEXTS, st.sampled_from(["en", "zh"]))
def test_no_sign_is_left_that_a_voice_would_read_out(text: str, language: str) -> None:
    assert READ_OUT.findall(speakable(text, language).text) == []


@given(TEXTS)
def test_no_markup_or_emoji_is_left_in_other_languages(text: str) -> None:
    assert READ_OUT_ELSEWHERE.findall(speakable(text, "de").text) == []


@given(TEXTS, st.sampled_from(["en", "zh"]))
def test_no_figure_that_stands_alone_is_left(text: str, language: str) -> None:
    spoken = speakable(text, language).text
    assert regex.findall(r"(?<![\p{L}\p{M}\p{N}])[0-9]+(?![\p{L}\p{M}\p{N}])", spoken) == []


@given(TEXTS, st.sampled_from(["en", "zh", "de"]))
def test_what_is_spoken_has_a_bounded_length(text: str, language: str) -> None:
    assert len(speakable(text, language).text) <= 16 * len(text) + 16


@given(st.text("abcdefg ,.?!'你好吗，。", max_size=60), st.sampled_from(["en", "zh", "de"]))
def test_plain_text_said_twice_is_the_same(text: str, language: str) -> None:
    once = speakable(text, language).text
    assert speakable(once, language).text == once


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
        ("a<b and b>c", "a is less than b and b is more than c"),
        ("5 < 10", "five is less than ten"),
        ("&lt;b&gt; is <your name>", "b is your name"),
        ("Facts[^1] matter.[2]", "Facts matter."),
        ("[text][ref] here", "text here"),
        ("It is $x^2$ and \\(\\alpha\\)", "It is x squared and alpha"),
        ("Hi :-) :smile: <3 bye", "Hi bye"),
        ("#topic and {braces} and [brackets]", "topic and braces and brackets"),
        ("Run `ls --all -l`", "Run ls all l"),
        ("Edit main.py in /usr/local/lib", "Edit main dot py in slash usr slash local slash lib"),
        ("Ask example.com or http://localhost:8080", "Ask example dot com or localhost"),
        ("ping 192.168.1.1", "ping one nine two dot one six eight dot one dot one"),
        ("Stop (😀) now", "Stop now"),
        ("~~~\ncode\n~~~", "code block."),
        ("2 * 3 = 6 and x*y", "two times three equals six and x times y"),
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
        ("你好，**世界**！😀", "你好，世界！"),
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
