"""In which language a piece of an answer is spoken. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

_IDEOGRAPHIC = ("zh", "yue", "ja", "ko")
"""Languages whose words are mostly not in Latin, Greek, Cyrillic or another alphabet of separate words."""
_KANA = re.compile(r"[\u3041-\u30ff]")
_HANGUL = re.compile(r"[\uac00-\ud7af]")
_CHARACTER = re.compile(r"[\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff]")
_WORD = re.compile(r"[^\W\d_\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff]+")
_CHARACTER_WEIGHT = 0.6
"""A Chinese character takes this share of the time of an English word."""


def answer_language(text: str, allowed: Sequence[str], otherwise: str) -> str:
    """Which of `allowed` (ISO 639-1) the text is in, by what most of its speech would be.

    `otherwise` where the text decides nothing: digits and marks alone, or a script that no allowed language has.
    Languages that share an alphabet are not told apart: the first of them is taken.
    """
    if len(allowed) == 1:
        return allowed[0]
    characters, words = len(_CHARACTER.findall(text)), len(_WORD.findall(text))
    if not characters and not words:
        return otherwise
    ideographic = [language for language in allowed if language in _IDEOGRAPHIC]
    if characters * _CHARACTER_WEIGHT >= words:
        return _by_script(text, ideographic) or otherwise
    return next((language for language in allowed if language not in _IDEOGRAPHIC), otherwise)


def _by_script(text: str, ideographic: Sequence[str]) -> str | None:
    for script, language in ((_KANA, "ja"), (_HANGUL, "ko")):
        if language in ideographic and script.search(text):
            return language
    return next(iter(ideographic), None)
