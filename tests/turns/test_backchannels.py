"""What a listener says without wanting the floor, and what takes it, in English and Chinese."""

from __future__ import annotations

import pytest

from duolog.turns.backchannels import CHINESE, ENGLISH, HUMS, only_backchannels, spoken_words

pytestmark = pytest.mark.pure

TAKES_THE_FLOOR = ("stop", "no", "wait", "but", "what", "why", "hold", "hey", "sorry", "please", "not", "nope")
TAKES_THE_FLOOR_ZH = ("等等", "等一下", "不", "停", "不是", "不对", "别", "没有", "对不起", "什么", "好像", "是不是")


@pytest.mark.parametrize(
    "text",
    [
        "Mhm.",
        "Mm-hmm.",
        "Uh-huh!",
        "Uh huh",
        "Yeah.",
        "Yeah, yeah.",
        "Okay. Right.",
        "OK, I see.",
        "All right",
        "Got it, thats right",
        "Oh wow",
        "嗯",
        "嗯嗯。",
        "对",
        "对对对",
        "好的",
        "好的好的，是的。",
        "是啊",
        "明白了",
        "嗯, okay",
    ],
)
def test_backchannel(text: str) -> None:
    assert only_backchannels(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "...",
        "Yeah, but",
        "Okay, so what about tomorrow?",
        "Right, stop.",
        "I see a problem",
        "No.",
        "No, no.",
        "对不起",
        "对，但是",
        "好的等等",
        "是不是",
        "嗯, wait",
        *TAKES_THE_FLOOR,
        *TAKES_THE_FLOOR_ZH,
    ],
)
def test_no_backchannel(text: str) -> None:
    assert not only_backchannels(text)


@pytest.mark.parametrize("word", TAKES_THE_FLOOR)
def test_word_that_takes_the_floor_does_so_after_any_backchannel(word: str) -> None:
    assert [before for before in HUMS | ENGLISH if only_backchannels(f"{before}, {word}")] == []


@pytest.mark.parametrize("word", ["等等", "停", "别"])
def test_chinese_word_that_takes_the_floor_does_so_after_any_backchannel(word: str) -> None:
    assert [before for before in CHINESE if only_backchannels(before + word)] == []


@pytest.mark.parametrize("text", ["[BLANK_AUDIO]", "(coughs)", "*sighs*", "♪♪♪", "（咳嗽）", " [Music] (laughs) "])
def test_what_recognisers_write_for_sounds_is_no_word(text: str) -> None:
    assert spoken_words(text) == ""


def test_words_beside_a_sound_stay() -> None:
    assert spoken_words("(coughs) wait") == "wait"
