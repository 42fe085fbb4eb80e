"""Numbers in English words. Pure.

num2words spells them; this module says which of its forms a figure takes.
"""

from __future__ import annotations

from functools import lru_cache

from num2words import num2words  # type: ignore[import-untyped]  # rejected: it has no type information

NUMBER = r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d{1,2}(?:,\d{2})+,\d{3}|\d+(?:\.\d+)?"
"""Thousands separators in the Western and the Indian way."""
MAX_WHOLE_DIGITS = 15
"""Longer ones are said digit by digit."""
_SAID = {".": "point", "+": "plus"}


@lru_cache(maxsize=1024)
def words(number: str) -> str:
    """A plain or decimal number, thousands separators allowed: 1,000.0 is one thousand point zero."""
    bare = number.replace(",", "")
    whole, _, fraction = bare.partition(".")
    if len(whole) > MAX_WHOLE_DIGITS or (len(whole) > 1 and whole[0] == "0"):
        return digits(bare)
    spoken = _plain(num2words(int(whole))) if whole else ""
    return f"{spoken} point {digits(fraction)}".strip() if fraction else spoken


def digits(text: str) -> str:
    """Digit by digit; a point and a plus are said, all else is left out."""
    said = (_SAID.get(char) or (_plain(num2words(int(char))) if char.isdecimal() else "") for char in text)
    return " ".join(word for word in said if word)


@lru_cache(maxsize=256)
def year(number: str) -> str:
    value = int(number)
    if 2000 <= value < 2010 or value % 1000 == 0:
        return words(number)
    return _plain(num2words(value, to="year"))


def decade(number: str) -> str:
    """`1990` or `90`: the nineties."""
    spoken = year(number) if len(number) == 4 else words(number)
    return f"{spoken[:-1]}ies" if spoken.endswith("y") else f"{spoken}s"


@lru_cache(maxsize=256)
def ordinal(number: str) -> str:
    return _plain(num2words(int(number.replace(",", "")), to="ordinal"))


def power(exponent: str) -> str:
    """What is said after the base."""
    if exponent in ("2", "3"):
        return " squared" if exponent == "2" else " cubed"
    return f" to the power of {'minus ' if exponent[0] in '-−' else ''}{words(exponent.lstrip('+-−'))}"


def one_or_many(number: str, one: str, many: str) -> str:
    """One kilometer, but 1.0 kilometers."""
    return one if number == "1" else many


def _plain(spelled: object) -> str:
    return str(spelled).replace(",", "").replace("-", " ")
