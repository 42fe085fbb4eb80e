"""English: everything that is not a word, in words. Pure.

Order matters: abbreviations, then dates and times, then amounts, then the symbols that are left.
"""

from __future__ import annotations

import re

from duolog.text.aligned import AlignedText, Part, Rule
from duolog.text.english_amounts import amounts_in_words
from duolog.text.english_dates import dates_in_words
from duolog.text.english_numbers import power
from duolog.text.english_words import ABBREVIATIONS, BEFORE_FIGURES, GREEK, SYMBOLS

_ABBREVIATION = "|".join(sorted(map(re.escape, ABBREVIATIONS), key=len, reverse=True))
_BEFORE_FIGURE = "|".join(sorted(map(re.escape, BEFORE_FIGURES), key=len, reverse=True))
_SENTENCE_GOES_ON = re.compile(r"\s*(?:$|[A-Z\n])")
_MAY_END_A_SENTENCE = ("etc.", "Inc.", "Ltd.", "Co.", "Corp.", "Jr.", "Sr.", "Ave.", "Blvd.")
_SUPERSCRIPT = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
_OPERAND_BEFORE, _OPERAND_AFTER = r"(?<=[\w)\]])", r"(?=[\w(\[$€£.−-])"


def _abbreviation(match: re.Match[str]) -> list[Part]:
    """In full; keeps the full stop of one that ends the sentence."""
    ends = match.group() in _MAY_END_A_SENTENCE and _SENTENCE_GOES_ON.match(match.string, match.end())
    return [ABBREVIATIONS[match.group()], "."] if ends else [ABBREVIATIONS[match.group()]]


def _spelled(match: re.Match[str]) -> list[Part]:
    """U.S. → U S, with the full stop kept where the text ends there."""
    letters = " ".join(match.group().replace(".", ""))
    return [letters, "."] if match.end() == len(match.string) else [letters]


def _slash(match: re.Match[str]) -> list[Part]:
    """`and/or`, `TCP/IP`: both; `he/she`: one or the other."""
    left, right = match[1], match[2]
    both = left.lower() == "and" or (left.isupper() and right.isupper())
    return [match.span(1), " " if both else " or "]


def _operator(written: str, said: str) -> Rule:
    return re.compile(rf"{_OPERAND_BEFORE}(?:{written}|\s+{written}\s*){_OPERAND_AFTER}"), f" {said} "


def _comparison(written: str, said: str) -> Rule:
    """Between two operands, with spaces on both sides or on none: `It's <5` is no comparison of two."""
    return re.compile(rf"{_OPERAND_BEFORE}(?:{written}|\s+{written}\s+){_OPERAND_AFTER}"), f" {said} "


_ABBREVIATIONS: tuple[Rule, ...] = (
    (re.compile(r"(?<=[\w)])\^[({]?([+−-]?\d{1,3})[)}]?"), lambda match: power(match[1])),
    (re.compile(r"(?<=\d)⁻?[⁰¹²³⁴⁵⁶⁷⁸⁹]+"), lambda match: power(match.group().translate(_SUPERSCRIPT))),
    (re.compile(r"(?<=[\w)])\^(?=\w)"), " to the power of "),
    (re.compile(r"\b([CFJ])#(?!\w)"), lambda match: [match.span(1), " sharp"]),
    (re.compile(r"\b([CG])\+\+(?!\w)"), lambda match: [match.span(1), " plus plus"]),
    (re.compile(r"(?<![\w.])\.(?=[A-Z])"), "dot "),
    (re.compile(r"(?<!\w)(No\.|Nos\.|#)\s?(?=\d)"), "number "),
    (re.compile(rf"\b({_BEFORE_FIGURE})\s?(?=[\d$€£])"), lambda match: f"{BEFORE_FIGURES[match[1]]} "),
    (re.compile(r"\bSt\.(?= [A-Z])(?<![a-z] St\.)"), "Saint"),
    (re.compile(r"(?<=[a-z] )St\.(?!\w)"), "Street"),
    (re.compile(rf"(?<![\w.])({_ABBREVIATION})(?!\w)"), _abbreviation),
)
_SYMBOLS: tuple[Rule, ...] = (
    (re.compile(r"(?<![\w.])((?:[A-Z]\.){2,})"), _spelled),
    (re.compile(r"[⁻]?[⁰¹²³⁴⁵⁶⁷⁸⁹]+"), lambda match: power(match.group().translate(_SUPERSCRIPT))),
    (re.compile(r"√\s?"), "square root of "),
    (re.compile(rf"(?<![\u0370-\u03ff])[{''.join(GREEK)}](?![\u0370-\u03ff])"), lambda m: f" {GREEK[m.group()]} "),
    _operator("(?:===?)", "equals"),
    _operator("(?:!==?|≠)", "is not"),
    _operator("(?:<=|≤)", "is at most"),
    _operator("(?:>=|≥)", "is at least"),
    _operator("=", "equals"),
    _comparison("<", "is less than"),
    _comparison(">", "is more than"),
    _operator("[≈≃]", "is about"),
    _operator("[×·]", "times"),
    _operator("÷", "divided by"),
    (re.compile(r"(?<=\w)\*(?=\w)|(?<=\S) \* (?=\S)"), " times "),
    (re.compile(r"(?<=\S) \+ (?=\S)|(?<=\w)\+(?=\w)"), " plus "),
    (re.compile(r"(?<=[\w)]) [-−] (?=(?:zero|one|two|three|four|five|six|seven|eight|nine|ten|\w\b))"), " minus "),
    (re.compile(r"(?<![\w)])\+(?=\w)"), "plus "),
    (re.compile(r"[<＜](?=\s?\w)"), "less than "),
    (re.compile(r"[>＞](?=\s?\w)"), "more than "),
    (re.compile(r"≤\s?"), "at most "),
    (re.compile(r"≥\s?"), "at least "),
    (re.compile(r"\b(\w+)\s?/\s?(?=(\w+))"), _slash),
    (re.compile(r"(?<=\w)\s?&\s?(?=\w)"), " and "),
    (re.compile(r"(?<![\w~])~\s?(?=\w)"), "about "),
    (re.compile(r"(?<!\S)@(?=\w)"), "at "),
    (re.compile(r"(?<=\w) @ (?=\w)"), " at "),
    (re.compile("|".join(sorted(map(re.escape, SYMBOLS), key=len, reverse=True))), lambda m: SYMBOLS[m.group()]),
)


def in_english_words(text: AlignedText) -> AlignedText:
    """Everything that is not a word, in words."""
    return amounts_in_words(dates_in_words(text.apply(_ABBREVIATIONS))).apply(_SYMBOLS)
