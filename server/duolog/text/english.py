"""Numbers, money, dates, times, units and abbreviations in English words. Pure.

num2words spells the numbers; the rules here find them and say what they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date

from num2words import num2words  # type: ignore[import-untyped]  # rejected: it has no type information

from duolog.text.aligned import AlignedText, Part
from duolog.text.english_words import (
    ABBREVIATIONS,
    CURRENCIES,
    CURRENCY_CODES,
    MONTHS,
    SCALES,
    SYMBOLS,
    UNITS,
    YEAR_LEADS,
)

_NUMBER = r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?"
_NOT_IN_WORD = r"(?<![\w.,/:-])"
_ENDS = r"(?![\w]|[.,:/-]?\d)"
_MONTH = "|".join(sorted((rf"{name}\.?" if len(name) < 5 else name for name in MONTHS), key=len, reverse=True))
_SCALE = "|".join(SCALES)
_UNIT = "|".join(sorted(map(re.escape, UNITS), key=len, reverse=True))
_ABBREVIATION = "|".join(sorted(map(re.escape, ABBREVIATIONS), key=len, reverse=True))


def words(number: str) -> str:
    """A plain or decimal number, thousands separators allowed."""
    bare = number.replace(",", "")
    whole, _, fraction = bare.partition(".")
    if len(whole) > 15 or (len(whole) > 1 and whole[0] == "0"):
        return digits(bare)
    spoken = str(num2words(int(whole))).replace(",", "").replace("-", " ")
    return f"{spoken} point {digits(fraction)}" if fraction else spoken


def digits(text: str) -> str:
    """Digit by digit; a point is said."""
    names = {".": "point", "+": "plus"}
    return " ".join(names.get(char) or str(num2words(int(char))) for char in text if char.isdecimal() or char in names)


def year(number: str) -> str:
    value = int(number)
    if 2000 <= value < 2010 or value % 1000 == 0:
        return words(number)
    return str(num2words(value, to="year")).replace("-", " ")


def ordinal(number: str) -> str:
    return str(num2words(int(number.replace(",", "")), to="ordinal")).replace("-", " ").replace(",", "")


def _plural(number: str, one: str, many: str) -> str:
    return one if number in ("1", "1.0") else many


def _money(match: re.Match[str]) -> Part | None:
    symbol, amount, scale = match["symbol"] or match["code"], match["amount"], match["scale"]
    one, many, cent, cents = CURRENCIES[CURRENCY_CODES.get(symbol, symbol)]
    if scale:
        return f"{words(amount)} {SCALES.get(scale, scale)} {many}"
    whole, _, fraction = amount.replace(",", "").partition(".")
    spoken = f"{words(whole)} {_plural(whole, one, many)}"
    if len(fraction) != 2 or not cents:
        return f"{words(amount)} {many}" if fraction else spoken
    if fraction == "00":
        return spoken
    small = f"{words(str(int(fraction)))} {_plural(str(int(fraction)), cent, cents)}"
    return small if whole == "0" else f"{spoken} and {small}"


def _iso_date(match: re.Match[str]) -> Part | None:
    try:
        day = date(int(match["y"]), int(match["m"]), int(match["d"]))
    except ValueError:
        return None
    return f"{day:%B} {ordinal(str(day.day))}, {year(str(day.year))}"


def _slash_date(match: re.Match[str]) -> Part | None:
    """Month first, as in the United States, unless it cannot be a month."""
    first, second = int(match["a"]), int(match["b"])
    month, day_of_month = (second, first) if first > 12 else (first, second)
    try:
        day = date(int(match["y"]), month, day_of_month)
    except ValueError:
        return None
    return f"{day:%B} {ordinal(str(day.day))}, {year(str(day.year))}"


def _month_day(match: re.Match[str]) -> list[Part]:
    month = MONTHS[match["month"].rstrip(".").lower()]
    spoken: list[Part] = [f"{month} {ordinal(match['day'])}"]
    if match["year"]:
        spoken.append(f", {year(match['year'])}")
    return spoken


def _day_month(match: re.Match[str]) -> Part:
    tail = f", {year(match['year'])}" if match["year"] else ""
    return f"the {ordinal(match['day'])} of {MONTHS[match['month'].rstrip('.').lower()]}{tail}"


def _time(match: re.Match[str]) -> Part | None:
    hour, minute, half = int(match["hour"]), int(match["minute"]), (match["half"] or "").replace(".", "").lower()
    if hour > 23 or minute > 59:
        return None
    suffix = f" {half[0]} m" if half else ""
    if minute == 0:
        return words(str(hour)) + (suffix or (" o'clock" if hour <= 12 else " hundred hours"))
    return f"{words(str(hour))} {'oh ' if minute < 10 else ''}{words(str(minute))}{suffix}"


def _unit(match: re.Match[str]) -> Part:
    one, many = UNITS[match["unit"]]
    return f"{words(match['amount'])} {_plural(match['amount'], one, many)}"


def _range(match: re.Match[str]) -> Part:
    unit = "percent" if match["unit"] == "%" else UNITS.get(match["unit"], ("", ""))[1]
    return f"{words(match['low'])} to {words(match['high'])} {unit}".strip()


def _decade(match: re.Match[str]) -> Part:
    spoken = year(match.group(1))
    return f"{spoken[:-1]}ies" if spoken.endswith("y") else f"{spoken}s"


def _fraction(match: re.Match[str]) -> Part | None:
    top, bottom = int(match[1]), int(match[2])
    if bottom == 2:
        return "one half" if top == 1 else f"{words(match[1])} halves"
    if bottom == 4:
        return f"{words(match[1])} {'quarter' if top == 1 else 'quarters'}"
    if 3 <= bottom <= 10 and top < bottom:
        return f"{words(match[1])} {ordinal(match[2])}{'' if top == 1 else 's'}"
    return f"{words(match[1])} over {words(match[2])}"


def _plain_number(match: re.Match[str]) -> Part:
    sign = "minus " if match["sign"] else ""
    number = match["amount"]
    spoken = digits(number) if len(number) >= 10 and number.isdigit() else words(number)
    return sign + spoken


_RULES: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], Part | list[Part] | None]], ...] = (
    (re.compile(rf"{_NOT_IN_WORD}(?P<y>\d{{4}})-(?P<m>\d{{2}})-(?P<d>\d{{2}}){_ENDS}"), _iso_date),
    (re.compile(rf"{_NOT_IN_WORD}(?P<a>\d{{1,2}})/(?P<b>\d{{1,2}})/(?P<y>\d{{4}}){_ENDS}"), _slash_date),
    (
        re.compile(
            rf"\b(?P<month>{_MONTH}) (?P<day>\d{{1,2}})(?:st|nd|rd|th)?\b"
            r"(?:,? (?P<year>[12]\d{3})\b)?(?![:%]|\.\d|-\d)",
            re.IGNORECASE,
        ),
        _month_day,
    ),
    (
        re.compile(
            rf"{_NOT_IN_WORD}(?P<day>\d{{1,2}})(?:st|nd|rd|th)? (?:of )?(?P<month>{_MONTH})\b"
            r"(?:,? (?P<year>[12]\d{3})\b)?",
            re.IGNORECASE,
        ),
        _day_month,
    ),
    (
        re.compile(
            rf"{_NOT_IN_WORD}(?P<hour>\d{{1,2}}):(?P<minute>\d{{2}})(?:\s?(?P<half>[AaPp](?:\.[Mm]\.|[Mm]\b)))?{_ENDS}"
        ),
        _time,
    ),
    (
        re.compile(rf"{_NOT_IN_WORD}(?P<hour>\d{{1,2}})\s?(?P<half>[AaPp](?:\.[Mm]\.|[Mm]\b))"),
        lambda match: f"{words(match['hour'])} {match['half'][0].lower()} m",
    ),
    (
        re.compile(
            rf"(?<!\w)(?:(?P<symbol>[$€£¥₹])\s?(?P<amount>{_NUMBER})(?:\s?(?P<scale>{_SCALE})\b)?)(?P<code>)(?!\d)"
        ),
        _money,
    ),
    (
        re.compile(
            rf"{_NOT_IN_WORD}(?P<symbol>)(?P<amount>{_NUMBER})(?:\s(?P<scale>{_SCALE}))?"
            r"\s?(?P<code>USD|EUR|GBP|JPY|INR|€|£)(?!\w)"
        ),
        _money,
    ),
    (re.compile(rf"{_NOT_IN_WORD}([12]\d\d0)s\b"), _decade),
    (
        re.compile(
            rf"{_NOT_IN_WORD}(?P<low>{_NUMBER})\s?(?:–|-|to)\s?(?P<high>{_NUMBER})\s?(?P<unit>%|{_UNIT})(?![\w/])"
        ),
        _range,
    ),
    (re.compile(rf"(?<![\w.,])(?P<amount>{_NUMBER})\s?%"), lambda match: f"{words(match['amount'])} percent"),
    (re.compile(rf"(?<![\w.,])(?P<amount>{_NUMBER})\s?(?P<unit>{_UNIT})(?![\w/])"), _unit),
    (re.compile(rf"{_NOT_IN_WORD}(\d[\d,]*)(?:st|nd|rd|th)\b"), lambda match: ordinal(match[1])),
    (re.compile(rf"{_NOT_IN_WORD}24/7{_ENDS}"), lambda _: "twenty four seven"),
    (re.compile(rf"{_NOT_IN_WORD}(\d{{1,2}})/(\d{{1,2}}){_ENDS}"), _fraction),
    (
        re.compile(rf"(?<![\w.,/:-])\+?\(?\d{{1,4}}\)?(?:[ -]\d{{2,4}}){{1,4}}{_ENDS}"),
        lambda match: _phone(match.group()),
    ),
    (
        re.compile(rf"\b((?i:{YEAR_LEADS})) ([12]\d{{3}})(?=[\s.,;:!?)]|$)(?!,\d|\.\d)"),
        lambda match: [match.span(1), " ", year(match[2])],
    ),
    (
        re.compile(r"(?<![\w.])\d+(?:\.\d+){2,}(?![\w])"),
        lambda match: " point ".join(map(words, match.group().split("."))),
    ),
    (re.compile(rf"{_NOT_IN_WORD}(?P<low>{_NUMBER})\s?[–-]\s?(?P<high>{_NUMBER})(?P<unit>){_ENDS}"), _range),
    (re.compile(rf"(?<![\w.,])(?P<sign>(?<![\d)] )[-−])?(?P<amount>{_NUMBER})(?!\w|[.,]?\d)"), _plain_number),
)


def _phone(number: str) -> str | None:
    """Digit by digit, where it has as many digits as a telephone number."""
    if not 7 <= sum(char.isdigit() for char in number) <= 15:
        return None
    return ", ".join(digits(group) for group in re.split(r"[ ()-]+", number) if group)


_ABBREVIATED = re.compile(rf"(?<![\w.])({_ABBREVIATION})(?!\w)")
_NUMBERED = re.compile(r"(?<!\w)(No\.|Nos\.|#)\s?(?=\d)")
_SYMBOL = re.compile("|".join(sorted(map(re.escape, SYMBOLS), key=len, reverse=True)))
_INITIALS = re.compile(r"(?<![\w.])((?:[A-Z]\.){2,})")
_SENTENCE_GOES_ON = re.compile(r"\s*(?:$|[A-Z\n])")


def in_english_words(text: AlignedText) -> AlignedText:
    """Everything that is not a word, in words."""
    text = text.sub(_NUMBERED, "number ").sub(_ABBREVIATED, lambda match: _abbreviation(match, text))
    for pattern, spoken in _RULES:
        if pattern.search(text.text):
            text = text.sub(pattern, spoken)
    text = text.sub(_INITIALS, _spelled)
    return text.sub(_SYMBOL, lambda match: SYMBOLS[match.group()])


def _abbreviation(match: re.Match[str], text: AlignedText) -> list[Part]:
    """In full; keeps the full stop of one that ends the sentence."""
    ends = match.group() in ("etc.", "Inc.", "Ltd.", "Co.", "Corp.") and _SENTENCE_GOES_ON.match(text.text, match.end())
    return [ABBREVIATIONS[match.group()], "."] if ends else [ABBREVIATIONS[match.group()]]


def _spelled(match: re.Match[str]) -> list[Part]:
    """U.S. → U S, with the full stop kept where the text ends there."""
    letters = " ".join(match.group().replace(".", ""))
    return [letters, "."] if match.end() == len(match.string) else [letters]
