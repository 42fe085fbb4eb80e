"""What a sound over the bot was: words, a backchannel, the bot's echo, or nothing."""

from __future__ import annotations

import pytest

from duolog.turns.overlap import Overlap, judge_overlap

pytestmark = pytest.mark.pure

BOT = "Well, the train to Bern leaves at nine from platform four."


@pytest.mark.parametrize(
    ("text", "warming_up", "expected"),
    [
        ("", False, Overlap.NOISE),
        ("[COUGH]", False, Overlap.NOISE),
        ("Mhm.", False, Overlap.BACKCHANNEL),
        ("Mhm.", True, Overlap.BACKCHANNEL),
        ("Stop.", False, Overlap.WORDS),
        ("Stop.", True, Overlap.WORDS),
        ("yeah but", True, Overlap.WORDS),
        ("the train", True, Overlap.ECHO),
        ("the train", False, Overlap.WORDS),
        ("Bern", False, Overlap.WORDS),
        ("The train to burn leaves at nine", False, Overlap.ECHO),
        ("the train to Bern is late again today", False, Overlap.WORDS),
        ("nine platform leaves Bern", False, Overlap.WORDS),
    ],
)
def test_overlap(text: str, warming_up: bool, expected: Overlap) -> None:
    assert judge_overlap(text, BOT, warming_up=warming_up) is expected


def test_chinese_echo_is_compared_by_character() -> None:
    assert judge_overlap("火车九点开", "那趟火车九点钟开往上海", warming_up=False) is Overlap.ECHO
    assert judge_overlap("停", "那趟火车九点钟开往上海", warming_up=True) is Overlap.WORDS
