"""Sounds of attention: what a listener says without wanting the floor ("mhm", "yeah, right", 嗯, 好的). Pure.

Only a transcript made of nothing else is one: "yeah, but" is not. Words that take the floor ("no", "stop", "wait",
不, 停, 等等) are in no list.
"""

from __future__ import annotations

import re

from duolog.turns.wording import is_ideograph, words_of


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


HUMS = _words(
    "m mm mmm mmmm hm hmm hmmm mhm mhmm mmhm mmhmm uhhuh uhuh uh huh um umm uhm ah aha ahh oh ooh eh er erm mmmhmm"
)
"""In every language, as recognisers write them; a hesitation alone is followed by words, or was nothing."""
ENGLISH = _words(
    """yeah yea yeh yep yup yes ya okay ok okey kay alright right sure indeed exactly true really cool nice great good
    fine wow gotcha totally absolutely definitely interesting perfect"""
)
ENGLISH_PHRASES = (
    ("i", "see"),
    ("got", "it"),
    ("of", "course"),
    ("all", "right"),
    ("thats", "right"),
    ("thats", "true"),
    ("makes", "sense"),
)
CHINESE = tuple(
    sorted(
        _words(
            """嗯 恩 唔 哦 噢 喔 啊 呵 哈 唉 诶 哎 欸 呃 額 额 对 對 对的 對的 对对 是 是的 是啊 是吗 是嗎 好 好的 好吧
            好啊 好呀 行 行吧 可以 没错 沒錯 当然 當然 真的 真的吗 真的嗎 明白 明白了 知道了 我知道 我明白 了解 懂了
            有道理 这样啊 這樣啊 原来如此 原來如此 不错 不錯 的 呀 吧 呢 嘛 了"""
        ),
        key=len,
        reverse=True,
    )
)
"""Longest first. The particles at the end follow others; alone they are nothing either."""

_ANNOTATION = re.compile(r"\[[^\]]*\]|\([^)]*\)|（[^）]*）|\*[^*]*\*|♪+")


def spoken_words(text: str) -> str:
    """The text without what a recogniser writes for sounds: "[BLANK_AUDIO]", "(coughs)", "*sighs*"."""
    return _ANNOTATION.sub(" ", text).strip()


def only_backchannels(text: str) -> bool:
    """True for a text of nothing but backchannels, of one language or mixed; False for an empty one."""
    keys = [word.key for word in words_of(text)]
    if not keys:
        return False
    return all(_chinese(run) if chinese else _spaced(run) for chinese, run in _runs(keys))


def _runs(keys: list[str]) -> list[tuple[bool, list[str]]]:
    """The words, Chinese and others apart: both may stand in one sentence."""
    runs: list[tuple[bool, list[str]]] = []
    for key in keys:
        chinese = is_ideograph(key[0])
        if not runs or runs[-1][0] is not chinese:
            runs.append((chinese, []))
        runs[-1][1].append(key)
    return runs


def _spaced(keys: list[str]) -> bool:
    rest = keys
    while rest:
        length = next((len(phrase) for phrase in ENGLISH_PHRASES if tuple(rest[: len(phrase)]) == phrase), 0)
        if not length and (rest[0] in HUMS or rest[0] in ENGLISH):
            length = 1
        if not length:
            return False
        rest = rest[length:]
    return True


def _chinese(characters: list[str]) -> bool:
    rest = "".join(characters)
    while rest:
        word = next((one for one in CHINESE if rest.startswith(one)), "")
        if not word:
            return False
        rest = rest[len(word) :]
    return True
