"""The language a phrase is spoken in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duolog.turns.languages import answer_language

pytestmark = pytest.mark.pure


@pytest.mark.parametrize(
    ("text", "allowed", "spoken"),
    [
        ("Hello there.", ("zh", "en"), "en"),
        ("你好，我是小林。", ("zh", "en"), "zh"),
        ("我用 Python 写程序。", ("zh", "en"), "zh"),
        ("The word 你好 means hello.", ("zh", "en"), "en"),
        ("iPhone 15 很好", ("zh", "en"), "zh"),
        ("OK！", ("zh", "en"), "en"),
        ("3.5", ("zh", "en"), "zh"),
        ("…", ("en", "zh"), "en"),
        ("Hello there.", ("zh",), "zh"),
        ("你好", ("en",), "en"),
        ("你好", ("en", "de"), "en"),
        ("こんにちは", ("en", "ja"), "ja"),
        ("今日は雨です", ("zh", "ja"), "ja"),
        ("안녕하세요", ("zh", "ko", "en"), "ko"),
        ("Guten Tag", ("en", "de"), "en"),
    ],
)
def test_the_text_decides_among_what_is_allowed(text: str, allowed: tuple[str, ...], spoken: str) -> None:
    assert answer_language(text, allowed, allowed[0]) == spoken


def test_what_decides_nothing_keeps_the_language_before() -> None:
    assert answer_language("42.", ("zh", "en"), "en") == "en"


@given(st.text(max_size=60), st.lists(st.sampled_from(["en", "zh", "ja", "de"]), min_size=1, unique=True))
def test_the_answer_is_always_allowed(text: str, allowed: list[str]) -> None:
    assert answer_language(text, allowed, allowed[0]) in allowed
