"""Words of a transcript, as they are compared: case and punctuation aside, Chinese and Japanese by character. Pure."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

_IDEOGRAPH = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_TOKEN = re.compile(rf"\s*(?:[{_IDEOGRAPH}]|[^\s{_IDEOGRAPH}]+)")
_ONE_IDEOGRAPH = re.compile(rf"[{_IDEOGRAPH}]")


@dataclass(frozen=True, slots=True)
class Word:
    surface: str
    """As it stands in the text, with the white space before it and the punctuation after it."""
    key: str
    """What two spellings of the same word share; never empty."""


def words_of(text: str) -> list[Word]:
    """The words in order. Punctuation that stands alone belongs to the word before it."""
    words: list[Word] = []
    lead = ""
    for match in _TOKEN.finditer(text):
        surface, key = match.group(), _key(match.group())
        if key:
            words.append(Word(lead + surface, key))
            lead = ""
        elif words:
            words[-1] = Word(words[-1].surface + surface, words[-1].key)
        else:
            lead += surface
    return words


def is_ideograph(character: str) -> bool:
    """True for the characters that are written without spaces between them."""
    return bool(_ONE_IDEOGRAPH.fullmatch(character))


def _key(surface: str) -> str:
    folded = unicodedata.normalize("NFKC", surface).casefold()
    return "".join(character for character in folded if character.isalnum())
