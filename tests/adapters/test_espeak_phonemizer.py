"""Phonemes from the in-process library: clauses and their marks, equality with the espeak-ng program, and words."""

from __future__ import annotations

import shutil
import subprocess
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from TTS.tts.utils.text.phonemizers import get_phonemizer_by_name

from duolog.adapters.coqui_words import NO_WORD, owners, word_spans
from duolog.adapters.espeak_phonemizer import EspeakPhonemizer, register_with_coqui, split_clauses

pytestmark = pytest.mark.real

TRICKY_WORDS = [
    "I",
    "am",
    "going",
    "to",
    "be",
    "one",
    "of",
    "the",
    "3.5",
    "million",
    "2nd",
    "it's",
    "don't",
    "U.S.",
    "was",
]
"""espeak-ng joins some of them and speaks others as several."""


@pytest.fixture(scope="module")
def english() -> EspeakPhonemizer:
    return EspeakPhonemizer("en-us")


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ("Hello, how are you today?", "həlˈoʊ, hˌaʊ ɑːɹ juː tədˈeɪ?"),
        ("One two… three", "wˈʌn tˈuː. θɹˈiː"),
        ("“Quoted,” she said: yes.", "kwˈoʊɾᵻd, ʃiː sˈɛd: jˈɛs."),
        ("Wait!!! Stop it", "wˈeɪt! stˈɑːp ɪt"),
        ("Dr. Smith is in.", "dˈɑːktɚ smˈɪθ ɪz ˈɪn."),
        ("", ""),
        ("...", ""),
        ("  \n ", ""),
    ],
)
def test_clauses_keep_one_closing_mark(english: EspeakPhonemizer, text: str, spoken: str) -> None:
    assert english.phonemize(text) == spoken


def test_separator_parts_the_phonemes(english: EspeakPhonemizer) -> None:
    assert english.phonemize("Hi you", separator="|") == "h|ˈaɪ j|uː"


def test_marks_can_be_left_out() -> None:
    assert EspeakPhonemizer("en-us", keep_puncs=False).phonemize("Yes, no.") == "jˈɛs nˈoʊ"


@pytest.mark.parametrize(
    "text",
    [
        "Hello, how are you today?",
        "I was thinking about that, and I am not sure.",
        "It took 3.5 hours, from 10:30 on.",
        "He's one of the best; isn't he?",
        "A well-known, state-of-the-art machine!",
        "No. I don't know what you mean.",
    ],
)
def test_equal_to_the_espeak_program(english: EspeakPhonemizer, text: str) -> None:
    program = shutil.which("espeak-ng")
    if program is None:
        pytest.skip("the espeak-ng program is not installed to compare with")
    command = [program, "-q", "--ipa=1", "-v", "en-us", text]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.replace("_", "")
    ours = "".join(char for char in english.phonemize(text) if char not in ".,;:!?")
    assert ours == " ".join(printed.split())


def test_language_names_of_coqui_are_understood() -> None:
    assert EspeakPhonemizer("zh-cn").language == "cmn"
    assert EspeakPhonemizer("en").language == "en-us"
    with pytest.raises(RuntimeError, match="not supported"):
        EspeakPhonemizer("xx-nowhere")
    assert "en-us" in EspeakPhonemizer.supported_languages()


def test_two_languages_on_many_threads_do_not_mix(english: EspeakPhonemizer) -> None:
    german = EspeakPhonemizer("de")
    expected = {english: english.phonemize("Winter"), german: german.phonemize("Winter")}
    wrong: list[str] = []

    def speak(phonemizer: EspeakPhonemizer) -> None:
        for _ in range(50):
            if phonemizer.phonemize("Winter") != expected[phonemizer]:
                wrong.append(phonemizer.language)

    threads = [threading.Thread(target=speak, args=(each,)) for each in (english, german, english, german)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert expected[english] != expected[german]


def test_coquis_tokenizers_get_this_phonemizer() -> None:
    register_with_coqui()
    assert isinstance(get_phonemizer_by_name("espeak", language="en-us"), EspeakPhonemizer)


@pytest.mark.parametrize(
    ("text", "marks"),
    [
        ("It is 3.5 at 10:30 in the U.S. today.", ["."]),
        ("Yes — really—no", [",", ",", ""]),
        ("你好，世界。好", [",", ".", ""]),
        ("What?! (Yes.) Mr. Hill said no", ["?", ".", ""]),
    ],
)
def test_where_clauses_break(text: str, marks: list[str]) -> None:
    assert [mark for _, _, mark in split_clauses(text)] == marks


@given(text=st.text(alphabet="ab A.,;:!?—…\"'()\n。，你3", max_size=60))
def test_clauses_are_in_order_and_cover_every_sound(text: str) -> None:
    spans = split_clauses(text)
    edges = [edge for start, end, _ in spans for edge in (start, end)]
    assert edges == sorted(edges)
    covered = "".join(text[start:end] for start, end, _ in spans)
    assert [char for char in covered if char.isalnum()] == [char for char in text if char.isalnum()]


@settings(deadline=None, max_examples=60)
@given(
    words=st.lists(
        st.sampled_from(
            [
                "I",
                "am",
                "going",
                "to",
                "be",
                "one",
                "of",
                "the",
                "3.5",
                "million",
                "2nd",
                "it's",
                "don't",
                "U.S.",
                "was",
            ]
        ),
        max_size=9,
    )
)
def test_every_word_keeps_its_phonemes_in_order(words: list[str]) -> None:
    english = EspeakPhonemizer("en-us")
    text = " ".join(words)
    for clause in english.clauses(text):
        spans = list(word_spans(text, clause.text_start, clause.text_end))
        found = owners(clause.phonemes, [english.word(text[a:b]) for a, b in spans])
        sounding = [owner for owner in found if owner != NO_WORD]
        assert len(found) == len(clause.phonemes)
        assert sounding == sorted(sounding)
        assert set(sounding) == set(range(len(spans)))


def test_joined_words_are_told_apart(english: EspeakPhonemizer) -> None:
    clause = english.clauses("part of the deal")[0]
    assert clause.phonemes == "pˈɑːɹt ʌvðə dˈiːl"
    found = owners(clause.phonemes, [english.word(word) for word in ["part", "of", "the", "deal"]])
    assert "".join(str(owner) for owner in found if owner != NO_WORD) == "000000112233333"
