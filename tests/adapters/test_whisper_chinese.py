"""Chinese transcripts come in simplified characters."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duolog.adapters.whisper_chinese import normalised

pytestmark = pytest.mark.pure


@pytest.mark.parametrize(
    ("heard", "text"),
    [
        ("今天天氣很好,我們去看電影。", "今天天气很好,我们去看电影。"),
        ("後來他的頭髮乾了", "后来他的头发干了"),
        ("我用 Python 3.11 寫程式。", "我用 Python 3.11 写程式。"),
        ("已经是简体", "已经是简体"),
        ("", ""),
    ],
)
def test_traditional_becomes_simplified(heard: str, text: str) -> None:
    assert normalised(heard, "zh") == text


def test_other_languages_are_left_alone() -> None:
    assert normalised("東京の天氣", "ja") == "東京の天氣"
    assert normalised("the word 電影", "en") == "the word 電影"


@given(st.text(max_size=40))
def test_twice_is_as_good_as_once(text: str) -> None:
    assert normalised(normalised(text, "zh"), "zh") == normalised(text, "zh")
