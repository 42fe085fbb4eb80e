"""Does a text sound as if more is coming? Word lists and counting, English and Chinese. Pure.

A veto, not a judgement: what it finds is hardly ever the end of a turn; what it does not find may still be unfinished.
"""

from __future__ import annotations

import re
from enum import StrEnum

from duolog.turns.word_lists import (
    DIGITS,
    DIGITS_ZH,
    FILLER_PHRASES,
    FILLERS,
    FILLERS_ZH,
    NEVER_LAST,
    NEVER_LAST_ZH,
    REPEATS,
    SELDOM_LAST,
)
from duolog.turns.wording import Word, words_of


class Unfinished(StrEnum):
    """Why more is to be expected."""

    TRAILING = "trailing"
    """The transcript itself trails off: a comma, a dash, three dots."""
    FILLER = "filler"
    """um, you know, 那个"""
    FUNCTION_WORD = "function_word"
    """An article, a conjunction, a preposition: they want something after them."""
    NUMBER = "number"
    """Digits read out in groups, fewer than such a number has."""
    ADDRESS = "address"
    """An e-mail address before its last part."""
    SPELLING = "spelling"
    """Letters said one by one."""
    LIST = "list"
    """Short items one after another, without the `and` before the last."""


SENTENCE_ENDS = tuple(".?!。？！")
_TRAILING = ("...", "…", ",", "，", "、", "-", "–", "—", ":", "：", ";", "；")

_PHONE_CUES = re.compile(
    r"\b(phone|call|mobile|cell|telephone|number is|reach me|dial|fax)\b|电话|電話|手机|手機|号码|號碼"
)
_CARD_CUES = re.compile(r"\b(credit|debit)? ?card\b|卡号|卡號|银行卡|銀行卡")
_PHONE_LENGTHS = {"en": (7, 10, 11, 12, 13), "zh": (8, 11, 12, 13)}
_CARD_LENGTHS = (15, 16, 19)
_SHORTEST_GROUPED = 3
_EMAIL_CUE = re.compile(r"\be-?mail(?: address)? (?:is|was|would be|to)\b(?P<rest>.*)$|邮箱(?:地址)?是(?P<rest_zh>.*)$")
_EMAIL_END = re.compile(
    r"(?:\.|\bdot ?|点|點)(?:com|org|net|edu|gov|io|co|uk|de|fr|cn|dev|ai|me|info|us|ca|au)(?:\.\w\w|\s+dot \w\w)?\W*$"
)
_EMAIL_PART = re.compile(r"(?:@|\bat)\s+\S+(?:\s+\S+)?\W*$|@\S*\W*$|\bdot\W*$")
_LONGEST_ITEM_WORDS = 3
_ITEMS_OF_A_LIST = 3
_JOINED = re.compile(r"\b(and|or|plus)\b|和|或|还有|還有|以及")


def unfinished(text: str, language: str | None) -> Unfinished | None:
    """Why more is to be expected after `text`, a transcript up to now; None where nothing says so.

    `language`: ISO 639-1; None: both word lists are asked.
    """
    plain = text.strip()
    words = words_of(plain)
    if not words:
        return None
    if reason := _of_dictation(plain, words, language):
        return reason
    if plain.endswith(_TRAILING):
        return Unfinished.TRAILING
    reason = None
    if language != "zh":
        reason = _of_last_word(plain, words)
    if reason is None and language != "en":
        reason = _of_last_characters(plain)
    return reason or (Unfinished.LIST if _is_open_list(plain) else None)


def ends_sentence(text: str) -> bool:
    """The recogniser heard the end of a sentence; it often does where there is none."""
    plain = text.rstrip("\"'”’） )")
    return plain.endswith(SENTENCE_ENDS) and not plain.endswith("...")


def _of_last_word(text: str, words: list[Word]) -> Unfinished | None:
    last = words[-1].key
    tail = " ".join(word.key for word in words[-4:])
    if last in FILLERS or any(tail == phrase or tail.endswith(" " + phrase) for phrase in FILLER_PHRASES):
        return Unfinished.FILLER
    if last in NEVER_LAST:
        return Unfinished.FUNCTION_WORD
    if last in SELDOM_LAST and len(words) > 1 and not ends_sentence(text):
        return Unfinished.FUNCTION_WORD
    return None


def _of_last_characters(text: str) -> Unfinished | None:
    bare = re.sub(r"[^\w]+$", "", text)
    if bare.endswith(FILLERS_ZH):
        return Unfinished.FILLER
    return Unfinished.FUNCTION_WORD if bare.endswith(NEVER_LAST_ZH) else None


def _of_dictation(text: str, words: list[Word], language: str | None) -> Unfinished | None:
    lowered = text.casefold()
    if _is_open_address(lowered):
        return Unfinished.ADDRESS
    if _is_open_number(lowered, words, language):
        return Unfinished.NUMBER
    return Unfinished.SPELLING if _is_spelling(text, lowered) else None


def _is_open_address(lowered: str) -> bool:
    if _EMAIL_END.search(lowered):
        return False
    cue = _EMAIL_CUE.search(lowered)
    if cue is not None:
        return bool((cue["rest"] or cue["rest_zh"] or "").strip(" .,?!。，"))
    return "@" in lowered[-40:] or (bool(_EMAIL_PART.search(lowered)) and "dot" in lowered)


def _is_open_number(lowered: str, words: list[Word], language: str | None) -> bool:
    digits, groups = _trailing_digits(words)
    if not digits or lowered.rstrip().endswith(("?", "？")):
        return False
    if _CARD_CUES.search(lowered):
        return digits not in _CARD_LENGTHS and digits < max(_CARD_LENGTHS)
    said_to_be_phone = bool(_PHONE_CUES.search(lowered))
    read_out = groups > 1 and digits >= _SHORTEST_GROUPED
    if not said_to_be_phone and not read_out:
        return False
    lengths = _PHONE_LENGTHS["zh" if language == "zh" else "en"]
    return digits not in lengths and digits < max(lengths)


def _trailing_digits(words: list[Word]) -> tuple[int, int]:
    """How many digits end the text, and in how many pieces they were said."""
    digits = groups = 0
    for index in range(len(words) - 1, -1, -1):
        count = _digits_of(words[index].key)
        if count == 0 and words[index].key not in REPEATS:
            break
        digits += count if count else REPEATS[words[index].key] - 1
        groups += words[index].surface.strip(" -").count("-") + 1 if count else 0
    return digits, groups


def _digits_of(key: str) -> int:
    if key.isascii() and key.isdigit():
        return len(key)
    if key in DIGITS or (len(key) == 1 and key in DIGITS_ZH):
        return 1
    return 0


def _is_spelling(text: str, lowered: str) -> bool:
    if _EMAIL_END.search(lowered):
        return False
    return bool(re.search(r"(?:\b[A-Za-z][\s,.\-]+){2}[A-Za-z][\s,.\-]*$", text)) and not re.search(
        r"\b(?:[A-Z]\.){2,}\W*$", text
    )


def _is_open_list(text: str) -> bool:
    items = [item.strip() for item in re.split(r"[,.，。、]", text) if item.strip()]
    tail = items[-_ITEMS_OF_A_LIST:]
    if len(tail) < _ITEMS_OF_A_LIST or text.rstrip().endswith(("?", "？", "!", "！")):
        return False
    return all(len(words_of(item)) <= _LONGEST_ITEM_WORDS for item in tail) and not _JOINED.search(tail[-1])
