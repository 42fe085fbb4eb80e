"""Money, measures, ratios, telephone numbers and all other figures in English words. Pure."""

from __future__ import annotations

import re
from itertools import pairwise

from duolog.text.aligned import AlignedText, Part, Rule
from duolog.text.english_numbers import NUMBER, digits, one_or_many, ordinal, power, words
from duolog.text.english_words import (
    CURRENCIES,
    CURRENCY_CODES,
    MARKED_IDS,
    PER,
    ROMAN_LEADS,
    ROMAN_NAMES,
    SCALES,
    UNITS,
)

_BEFORE = r"(?<![\w.,/:-])"
_AFTER = r"(?![\w]|[.,:/-]?\d)"
_DASH = r"\s?[–-]\s?"
_SCALE = "|".join(SCALES)
_UNIT = "|".join(sorted(map(re.escape, UNITS), key=len, reverse=True))
_PER = "|".join(sorted(PER, key=len, reverse=True))
_SYMBOL = "|".join(sorted(map(re.escape, (*CURRENCIES, *CURRENCY_CODES)), key=len, reverse=True))
_CODE = "|".join(re.escape(code) for code in CURRENCY_CODES if code.isalpha())
_HALVES = {"½": "1/2", "¼": "1/4", "¾": "3/4", "⅓": "1/3", "⅔": "2/3", "⅛": "1/8"}
_ROMAN = {"I": 1, "V": 5, "X": 10}


def _currency(symbol: str) -> tuple[str, str, str, str]:
    return CURRENCIES[CURRENCY_CODES.get(symbol, symbol)]


def _money(match: re.Match[str]) -> Part:
    symbol, amount, scale = match["symbol"] or match["code"], match["amount"], match["scale"]
    one, many, cent, cents = _currency(symbol)
    per = f" per {PER[match['per']]}" if match["per"] else ""
    if re.fullmatch(r"\d+,\d{2}", amount):
        amount = amount.replace(",", ".")
    if scale:
        return f"{words(amount)} {SCALES[scale]} {many}{per}"
    whole, _, fraction = amount.replace(",", "").partition(".")
    spoken = f"{words(whole)} {one_or_many(whole, one, many)}"
    if len(fraction) != 2 or not cents:
        return (f"{words(amount)} {many}" if fraction else spoken) + per
    if fraction == "00":
        return spoken + per
    small = f"{words(str(int(fraction)))} {one_or_many(str(int(fraction)), cent, cents)}"
    return (small if whole == "0" else f"{spoken} and {small}") + per


def _money_range(match: re.Match[str]) -> Part:
    scale = f" {SCALES[match['scale']]}" if match["scale"] else ""
    return f"{words(match['low'])} to {words(match['high'])}{scale} {_currency(match['symbol'])[1]}"


def _unit(match: re.Match[str]) -> Part:
    one, many = UNITS[match["unit"]]
    per = f" per {PER[match['per']]}" if match["per"] else ""
    return f"{words(match['amount'])} {one_or_many(match['amount'], one, many)}{per}"


def _range(match: re.Match[str]) -> Part:
    unit = "percent" if match["unit"] == "%" else UNITS.get(match["unit"], ("", ""))[1]
    return f"{words(match['low'])} to {words(match['high'])} {unit}".strip()


def _address(match: re.Match[str]) -> Part:
    port = f" port {digits(match[2])}" if match[2] else ""
    return " dot ".join(map(digits, match[1].split("."))) + port


def _feet(match: re.Match[str]) -> Part:
    feet, inches = match[1], match[2]
    return f"{words(feet)} {one_or_many(feet, 'foot', 'feet')} {words(inches)} {one_or_many(inches, 'inch', 'inches')}"


def _parts(top: str, bottom: str) -> str:
    if bottom == "2":
        return "one half" if top == "1" else f"{words(top)} halves"
    if bottom == "4":
        return f"{words(top)} {'quarter' if top == '1' else 'quarters'}"
    if 3 <= int(bottom) <= 10 and int(top) < int(bottom):
        return f"{words(top)} {ordinal(bottom)}{'' if top == '1' else 's'}"
    return f"{words(top)} over {words(bottom)}"


def _fraction(match: re.Match[str]) -> Part:
    whole = f"{words(match['whole'])} and " if match["whole"] else ""
    spoken = _parts(match["top"], match["bottom"])
    return whole + ("a half" if whole and spoken == "one half" else spoken)


def _half(match: re.Match[str]) -> Part:
    whole = f"{words(match['whole'])} and " if match["whole"] else ""
    spoken = _parts(*_HALVES[match["half"]].split("/"))
    return (whole + ("a half" if whole and spoken == "one half" else spoken)) + ("" if whole else " ")


def _phone(match: re.Match[str]) -> Part | None:
    """Digit by digit, where it has as many digits as a telephone number; thousands parted by spaces are a number."""
    number = match.group()
    groups = [group for group in re.split(r"[ ().-]+", number) if group]
    if not 7 <= sum(char.isdigit() for char in number) <= 17:
        return None
    if len(groups[0]) < 3 and set(number) <= set("0123456789 ") and all(len(group) == 3 for group in groups[1:]):
        return words("".join(groups))
    return ", ".join(digits(group) for group in groups)


def _roman(text: str) -> str | None:
    values = [_ROMAN[char] for char in text]
    total = sum(-value if value < after else value for value, after in pairwise([*values, 0]))
    return str(total) if 1 < total < 40 else None


def _numbered(match: re.Match[str]) -> list[Part] | None:
    value = _roman(match[2])
    return [match.span(1), " ", words(value)] if value else None


def _regnal(match: re.Match[str]) -> list[Part] | None:
    value = _roman(match[2])
    return [match.span(1), " the ", ordinal(value)] if value else None


def _plain_number(match: re.Match[str]) -> Part:
    number = match["amount"]
    return digits(number) if len(number) >= 10 and number.isdigit() else words(number)


_RULES: tuple[Rule, ...] = (
    (re.compile(r"(?<![^\s(=<>≤≥≈±])(?<![\d)] )[-−]\s?(?=\.?\d)(?!\d+-\d)"), "minus "),
    (
        re.compile(
            rf"(?<!\w)(?P<symbol>{_SYMBOL})\s?(?P<low>{NUMBER}){_DASH}(?P=symbol)?\s?(?P<high>{NUMBER})(?:\s?(?P<scale>{_SCALE})\b)?(?!\w)"
        ),
        _money_range,
    ),
    (
        re.compile(
            rf"(?<!\w)(?P<symbol>{_SYMBOL})\s?(?P<amount>\d+,\d{{2}}(?!\d)|{NUMBER})(?:\s?(?P<scale>{_SCALE})\b)?"
            rf"(?:/(?P<per>{_PER})\b)?(?P<code>)(?!\d)"
        ),
        _money,
    ),
    (
        re.compile(
            rf"{_BEFORE}(?P<symbol>)(?P<amount>{NUMBER})(?:\s(?P<scale>{_SCALE}))?\s?(?P<code>{_CODE}|€|£)"
            rf"(?:/(?P<per>{_PER})\b)?(?!\w)"
        ),
        _money,
    ),
    (
        re.compile(rf"{_BEFORE}({NUMBER})\s?¢"),
        lambda match: f"{words(match[1])} {one_or_many(match[1], 'cent', 'cents')}",
    ),
    (re.compile(r"(?<![\w.])(\d{1,3}(?:\.\d{1,3}){3})(?::(\d{2,5}))?(?!\w|\.\d)"), _address),
    (re.compile(rf"{_BEFORE}(\d{{1,2}})\s?(?:ft|['’′])\s?(\d{{1,2}})\s?(?:in\b\.?|[\"”″])"), _feet),
    (
        re.compile(rf"{_BEFORE}(?P<low>{NUMBER})\s?(?:–|-|to)\s?(?P<high>{NUMBER})\s?(?P<unit>%|{_UNIT})(?![\w/])"),
        _range,
    ),
    (re.compile(rf"(?<![\w.,])(?P<amount>{NUMBER})\s?%"), lambda match: f"{words(match['amount'])} percent"),
    (re.compile(rf"(?<![\w.,])(?P<amount>{NUMBER})\s?(?P<unit>{_UNIT})(?:/(?P<per>{_PER})\b)?(?![\w/])"), _unit),
    (
        re.compile(rf"{_BEFORE}(?P<amount>\d[\d.]*)(?P<scale>[kMB])(?!\w)"),
        lambda m: f"{words(m['amount'])} {SCALES[m['scale']]}",
    ),
    (re.compile(rf"{_BEFORE}(\d[\d,]*)(?:st|nd|rd|th)\b"), lambda match: ordinal(match[1])),
    (re.compile(rf"{_BEFORE}24/7{_AFTER}"), "twenty four seven"),
    (re.compile(rf"{_BEFORE}(?:(?P<whole>\d{{1,3}}) )?(?P<top>\d{{1,2}})/(?P<bottom>[1-9]\d?){_AFTER}"), _fraction),
    (re.compile(rf"(?<![\w.])(?P<whole>\d{{1,3}})?\s?(?P<half>[{''.join(_HALVES)}])"), _half),
    (re.compile(rf"(?<!\w)\d+(?:-\d+){{2,}}{_AFTER}"), lambda match: ", ".join(map(digits, match.group().split("-")))),
    (
        re.compile(
            rf"(?<![\w.,/:-])(?:\+\d{{1,3}}[ .-]?)?(?:\(\d{{1,4}}\)[ -]?)?\d{{1,4}}(?:[ -]\d{{2,4}}){{1,5}}{_AFTER}"
        ),
        _phone,
    ),
    (re.compile(rf"(?<![\w.,/:-])\+\d{{8,15}}{_AFTER}"), lambda match: digits(match.group())),
    (re.compile(rf"\b({MARKED_IDS}) #?(\d{{4,}})\b(?![,.]\d)"), lambda match: [match.span(1), " ", digits(match[2])]),
    (re.compile(r"\b([Cc]all|[Dd]ial) (\d{3})\b(?![-.,]?\d)"), lambda match: [match.span(1), " ", digits(match[2])]),
    (re.compile(rf"\b({ROMAN_LEADS}) ([IVX]{{2,6}}|[VX])\b"), _numbered),
    (re.compile(rf"\b({ROMAN_NAMES}) ([IVX]{{2,6}}|[VX])\b"), _regnal),
    (re.compile(r"\b[vV](\d+(?:\.\d+)*)(?![\w])"), lambda match: f"version {_pointed(match[1])}"),
    (re.compile(r"(?<![\w.])\d+(?:\.\d+){2,}(?![\w])"), lambda match: _pointed(match.group())),
    (re.compile(rf"{_BEFORE}({NUMBER})[eE]([+-]?\d{{1,3}})(?!\w)"), lambda m: f"{words(m[1])} times ten{power(m[2])}"),
    (re.compile(rf"{_BEFORE}(\d{{2,5}})\s?[x×]\s?(\d{{2,5}})(?!\w)"), lambda m: f"{words(m[1])} by {words(m[2])}"),
    (re.compile(rf"{_BEFORE}({NUMBER})[x×](?!\w|\s*[-+*/=)^])"), lambda match: f"{words(match[1])} times"),
    (
        re.compile(rf"(?<![\w.,/:])({NUMBER}):({NUMBER})(?!\w|[.,:]\d)"),
        lambda match: f"{words(match[1])} to {words(match[2])}",
    ),
    (re.compile(rf"{_BEFORE}(?P<low>{NUMBER}){_DASH}(?P<high>{NUMBER})(?P<unit>){_AFTER}"), _range),
    (re.compile(rf"(?<![\w.,])(?P<amount>{NUMBER})\+(?!\w|\s\d)"), lambda match: f"{words(match['amount'])} plus"),
    (re.compile(rf"(?<![\w.,])(?P<amount>{NUMBER})(?!\w|[.,]?\d)"), _plain_number),
    (re.compile(r"(?<![\w.])(?P<amount>\.\d+)(?!\w|[.,]?\d)"), _plain_number),
    (re.compile(r"(?<!\w)(?P<amount>\d+)(?!\w)"), _plain_number),
)


def _pointed(number: str) -> str:
    return " point ".join(map(words, number.split(".")))


def amounts_in_words(text: AlignedText) -> AlignedText:
    """Every figure that stands by itself; dates and times have become words before. H2O and MP3 stay as they are."""
    return text.apply(_RULES) if _FIGURE.search(text.text) else text


_FIGURE = re.compile(rf"\d|[{''.join(_HALVES)}]|\b[IVX]{{2,}}\b|\b[VX]\b")
