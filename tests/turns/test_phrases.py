"""Phrases: nothing lost, nothing cut that belongs together, the same cuts however the answer arrives."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duolog.text.english_words import ABBREVIATIONS
from duolog.turns.phrases import Phrase, PhraseCutter

pytestmark = pytest.mark.pure

WORDS = (
    'Well... Mr. Smith and I went, " ( ) ``` ` “ ” 。 ， 你 好 3.5 10:30 U.S. e.g. https://a.b/c?d=e,f - 1. ! ? … — 😀'
)
FRAGMENTS = st.sampled_from([*WORDS.split(), "\n", "\n\n"])
ANSWERS = st.one_of(
    st.text(max_size=120), st.lists(FRAGMENTS, max_size=60).map(" ".join), st.lists(FRAGMENTS, max_size=60).map("".join)
)
LANGUAGES = st.sampled_from(["en", "zh", "de"])


def cut(text: str, language: str = "en") -> list[Phrase]:
    cutter = PhraseCutter(language)
    return cutter.feed(text) + cutter.finish()


def texts(text: str, language: str = "en") -> list[str]:
    return [phrase.text for phrase in cut(text, language)]


@given(ANSWERS, LANGUAGES)
def test_the_phrases_together_are_the_answer(answer: str, language: str) -> None:
    phrases = cut(answer, language)
    assert "".join(phrase.text for phrase in phrases) == answer
    assert [phrase.index for phrase in phrases] == list(range(len(phrases)))
    assert all(answer[phrase.start : phrase.end] == phrase.text != "" for phrase in phrases)


@given(ANSWERS, LANGUAGES, st.data())
def test_cuts_do_not_depend_on_the_deltas(answer: str, language: str, data: st.DataObject) -> None:
    cutter = PhraseCutter(language)
    phrases, rest = [], answer
    while rest:
        length = data.draw(st.integers(1, 7))
        phrases += cutter.feed(rest[:length])
        rest = rest[length:]
    phrases += cutter.finish()
    assert phrases == cut(answer, language)


@given(st.lists(st.sampled_from(["alpha", "beta", "the", "of", "and", "12", "to"]), min_size=40, max_size=90))
def test_an_answer_without_punctuation_still_becomes_phrases(words: list[str]) -> None:
    assert all(len(phrase.text.split()) <= 30 for phrase in cut(" ".join(words)))


@pytest.mark.parametrize(
    ("answer", "first"),
    [
        ("Sure, I can do that for you.", "Sure, I can do that for you."),
        ("That is a good question, and I like it.", "That is a good question, "),
        ("Paris is the capital of France and it is old.", "Paris is the capital of France "),
        ("The weather in London is usually rainy during the winter.", "The weather in London is usually rainy "),
        ("Hello! How are you today? Fine.", "Hello! How are you today? "),
        ("你好，我是小美，很高兴认识你。", "你好，我是小美，"),
        ("今天天气很好。我们去公园吧。", "今天天气很好。"),
    ],
)
def test_the_first_phrase_is_short_and_natural(answer: str, first: str) -> None:
    assert texts(answer)[0] == first


@pytest.mark.parametrize(
    "whole",
    [
        "3.14",
        "1,000,000.50",
        "10:30",
        "Mr. Jones",
        "Dr. Who",
        "e.g. this",
        "U.S. law",
        "J. R. R. Tolkien",
        "p.m. sharp",
        "https://example.com/a,b?x=1.",
        "me@example.org",
        "July 4, 2020",
        "No. 5",
        "approx. five",
        "wait...",
        "5 km",
        '"Stop. Go. Run."',
        "(one, two. three)",
        "`a. b, c`",
        "3 - 4",
        "$1,234.50",
        "9:00 - 17:00",
        "555-123-4567",
        "+1 (555) 123-4567",
        "5 million people",
        "$3 million deal",
        "v1.2.3",
        "pp. 5-7",
        "St. Louis",
        "10:30 a.m. today",
        "user.name@my-site.co.uk",
        "Dr. J. Smith",
        "Jan. 5",
        "approx. 5 km",
        "5 < 10",
        "“Stop. Go.”",
    ],
)
def test_what_belongs_together_stays_together(whole: str) -> None:
    for lead in ("We saw ", "Yes, and then there was ", "One two three four five, six "):
        phrases = texts(f"{lead}{whole} right there. And so on we went to the end of it.")
        assert any(whole in phrase for phrase in phrases), phrases


@pytest.mark.parametrize(
    "whole",
    [
        "3.14",
        "1,000.50",
        "下午2:30",
        "2024年5月3日",
        "138 0013 8000",
        "010-12345678",
        "¥12.50",
        "5-10公里",
        "第2个",
        "“你好。我是小林。”",
        "《红楼梦》",
        "（第一，第二）",
        "https://a.cn/b,c",
        "a.b@c.cn",
        "Mr. Smith",
        "U.S. law",
        "Python 3.11",
    ],
)
@pytest.mark.parametrize("language", ["zh", "en"])
def test_what_belongs_together_stays_together_in_chinese(whole: str, language: str) -> None:
    for lead in ("我们看到", "是的，然后我们一起看到了", "今天天气很好，我们大家一起去公园的时候看到了"):
        phrases = texts(f"{lead}{whole}就在那里。后来我们继续往前走，一直走到了最后。", language)
        assert any(whole in phrase for phrase in phrases), phrases


WHOLE = (
    "3.14",
    "1,000.50",
    "$5.00",
    "10:30",
    "50%",
    "Mr. Lee",
    "e.g. this",
    "U.S.",
    "https://a.b/c?d=e,f",
    "me@x.org",
    "2024年5月3日",
    "下午2:30",
    "v1.2.3",
    "Gov. Smith",
    "Sen. Lee",
    "twenty-five thousand three hundred and forty two",
    "three point one four",
    "七千八百九十一",
    "一三八零零一三",
    "三点一四一五九",
)


PLAIN = ("home,", "people", "go.", "你好，", "我们", "很好。")


@given(st.lists(st.tuples(st.sampled_from(WHOLE), st.sampled_from(PLAIN)), max_size=20), st.sampled_from(["en", "zh"]))
def test_no_phrase_ends_inside_a_figure_a_name_or_an_address(pairs: list[tuple[str, str]], language: str) -> None:
    parts = [part for pair in pairs for part in pair]
    ends = {phrase.end for phrase in cut(" ".join(parts), language)}
    position = 0
    for part in parts:
        if part in WHOLE:
            assert not ends & set(range(position + 1, position + len(part)))
        position += len(part) + 1


@pytest.mark.parametrize(
    ("answer", "phrases"),
    [
        ("今天我们去了北京的故宫和长城看了很多古代建筑", ["今天我们去了北京的故宫", "和长城看了很多古代建筑"]),
        ("我很想跟你们一起去但是今天晚上没有时间", ["我很想跟你们一起去", "但是今天晚上没有时间"]),
        ("他说：“今天很好。我们走吧。”然后他就走了。", ["他说：“今天很好。我们走吧。”", "然后他就走了。"]),
        ("好的，Python是一种语言，it is very popular。很多人在学。", None),
    ],
)
def test_chinese_without_marks_is_cut_where_it_harms_least(answer: str, phrases: list[str] | None) -> None:
    assert phrases is None or texts(answer, "zh") == phrases
    assert "".join(texts(answer, "zh")) == answer


@pytest.mark.parametrize(
    ("answer", "language"),
    [
        ("Das sagt Dr. Weber seit heute", "de"),
        ("Je crois que M. Durand est parti", "fr"),
        ("Ayer vino la Sra. Gómez a casa", "es"),
    ],
)
def test_abbreviations_of_other_languages_end_no_sentence(answer: str, language: str) -> None:
    name = next(word for word in answer.split() if word.endswith("."))
    assert not any(phrase.rstrip().endswith(name) for phrase in texts(answer, language))


def test_what_is_spoken_as_an_abbreviation_ends_no_phrase() -> None:
    spoken = [short for short in ABBREVIATIONS if short.removesuffix(".").isalpha() and short.endswith(".")]
    assert len(spoken) > 20
    for short in spoken:
        phrases = texts(f"I think that {short} 5 is it", "en")
        assert not any(phrase.rstrip().endswith(f" {short}") for phrase in phrases), phrases


def test_a_code_block_is_one_phrase() -> None:
    block = "```python\nprint('hi. there')\n\nx = 1, 2\n```\n"
    assert block in texts(f"Here is a short script:\n{block}That is all.")


def test_each_list_item_is_its_own_phrase() -> None:
    assert texts("Here are two things:\n1. First item\n2. Second item") == [
        "Here are two things:\n",
        "1. First item\n",
        "2. Second item",
    ]


def test_later_phrases_are_whole_sentences() -> None:
    sentence = "It was built in eighteen eighty nine for a great fair, and it still stands today. "
    assert texts("Of course, here you go. It is tall. " + sentence * 2)[2:] == [sentence, sentence]


def test_a_sentence_end_waits_for_what_follows() -> None:
    cutter = PhraseCutter("en")
    assert cutter.feed("I paid them 3.") == []
    assert cutter.feed("50 for it all.") == []
    assert [phrase.text for phrase in cutter.feed(" Yes")] == ["I paid them 3.50 for it all. "]
    assert [phrase.text for phrase in cutter.finish()] == ["Yes"]


def test_an_unclosed_quote_does_not_hold_the_answer_back() -> None:
    assert (
        len(texts('He said "this is one thing, and that is another, and here is more. ' + "And it goes on. " * 10)) > 2
    )


def test_the_cutter_can_be_used_again() -> None:
    cutter = PhraseCutter("en")
    cutter.feed("One two three four. Five")
    cutter.finish()
    assert cutter.feed("Six seven eight nine. Ten")[0] == Phrase("Six seven eight nine. ", 0, 0, 22)
