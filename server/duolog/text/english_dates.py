"""Dates, years and times of day in English words. Pure."""

from __future__ import annotations

import re
from datetime import date

from duolog.text.aligned import AlignedText, Part, Rule
from duolog.text.english_numbers import decade, ordinal, words, year
from duolog.text.english_words import DAYS, MONTHS, YEAR_LEADS

_BEFORE = r"(?<![\w.,/:-])"
_AFTER = r"(?![\w]|[.,:/-]?\d)"
_AMBIGUOUS = ("may", "march", "mar", "dec", "sep")
"""Also words or parts of words: months only with a capital."""
_MONTH = "|".join(
    sorted(
        (rf"{form}\.?" if len(form) < 5 else form)
        for name in MONTHS
        for form in ((name.capitalize(),) if name in _AMBIGUOUS else (name.capitalize(), name))
    )[::-1]
)
_DAY = "|".join(sorted(DAYS, key=len, reverse=True))
_YEAR = r"[12]\d{3}"
_HALF = r"(?:[AaPp]\.[Mm]\.|[AaPp][Mm]\b)"
_CLOCK = rf"\d{{1,2}}:\d{{2}}(?:\s?{_HALF})?|\d{{1,2}}\s?{_HALF}"


def _month(match: re.Match[str]) -> str:
    return MONTHS[match["month"].rstrip(".").lower()]


def _spelled(year_number: int, month: int, day: int) -> Part | None:
    try:
        when = date(year_number, month, day)
    except ValueError:
        return None
    return f"{when:%B} {ordinal(str(day))}, {year(str(year_number))}"


def _iso(match: re.Match[str]) -> Part | None:
    return _spelled(int(match["y"]), int(match["m"]), int(match["d"]))


def _slashed(match: re.Match[str]) -> Part | None:
    """Month first, as in the United States, unless it cannot be a month."""
    first, second = int(match["a"]), int(match["b"])
    month, day = (second, first) if first > 12 else (first, second)
    return _spelled(int(match["y"]), month, day)


def _dotted(match: re.Match[str]) -> Part | None:
    """Day first, as where dates are written with dots."""
    return _spelled(int(match["y"]), int(match["b"]), int(match["a"]))


def _month_days(match: re.Match[str]) -> Part:
    return f"{_month(match)} {ordinal(match['first'])} to {ordinal(match['last'])}"


def _month_day(match: re.Match[str]) -> list[Part]:
    spoken: list[Part] = [f"{_month(match)} {ordinal(match['day'])}"]
    if match["year"]:
        spoken.append(f", {year(match['year'])}")
    return spoken


def _day_month(match: re.Match[str]) -> Part:
    tail = f", {year(match['year'])}" if match["year"] else ""
    return f"the {ordinal(match['day'])} of {_month(match)}{tail}"


def _time(match: re.Match[str]) -> Part | None:
    hour, minute, half = int(match["hour"]), int(match["minute"]), (match["half"] or "")[:1].lower()
    if hour > 24 or minute > 59:
        return None
    suffix = f" {half} m" if half else (" a m" if hour == 0 else "")
    if minute:
        spoken = f"{words(str(hour or 12))} {'oh ' if minute < 10 else ''}{words(str(minute))}{suffix}"
    elif hour in (0, 24) and not half:
        spoken = "midnight"
    else:
        spoken = words(str(hour)) + (suffix or (" o'clock" if hour <= 12 else " hundred hours"))
    seconds = match["second"]
    return f"{spoken} and {words(str(int(seconds)))} seconds" if seconds else spoken


def _both(match: re.Match[str]) -> list[Part]:
    return [match.span(1), " to ", match.span(2)]


def _years(match: re.Match[str]) -> Part:
    last = year(match[2]) if len(match[2]) == 4 else words(match[2])
    return f"{year(match[1])} to {last}"


_RULES: tuple[Rule, ...] = (
    (re.compile(rf"{_BEFORE}(?P<y>\d{{4}})([-/])(?P<m>\d{{1,2}})\2(?P<d>\d{{1,2}}){_AFTER}"), _iso),
    (re.compile(rf"{_BEFORE}(?P<a>\d{{1,2}})/(?P<b>\d{{1,2}})/(?P<y>\d{{4}}){_AFTER}"), _slashed),
    (re.compile(rf"{_BEFORE}(?P<a>\d{{1,2}})\.(?P<b>\d{{1,2}})\.(?P<y>{_YEAR}){_AFTER}"), _dotted),
    (
        re.compile(rf"\b(?P<month>{_MONTH}) (?P<first>\d{{1,2}})\s?[-–]\s?(?P<last>\d{{1,2}})(?![\w:%]|[.,-]\d)"),
        _month_days,
    ),
    (
        re.compile(
            rf"\b(?P<month>{_MONTH}) (?P<day>0?[1-9]|[12]\d|3[01])(?:st|nd|rd|th)?\b"
            rf"(?:,? (?P<year>{_YEAR})\b)?(?![:%]|[.,]\d|-\d)"
        ),
        _month_day,
    ),
    (
        re.compile(
            rf"(?:\b[Tt]he )?{_BEFORE}(?P<day>0?[1-9]|[12]\d|3[01])(?:st|nd|rd|th)? (?:of )?(?P<month>{_MONTH})(?!\w)"
            rf"(?:,? (?P<year>{_YEAR})\b)?"
        ),
        _day_month,
    ),
    (re.compile(rf"\b(?P<month>{_MONTH}),? (?P<year>{_YEAR})\b(?![.,]\d)"), lambda m: f"{_month(m)} {year(m['year'])}"),
    (
        re.compile(rf"\b(?P<first>{_DAY})\.?\s?[-–]\s?(?P<last>{_DAY})\b"),
        lambda match: f"{DAYS[match['first']]} to {DAYS[match['last']]}",
    ),
    (re.compile(rf"{_BEFORE}({_CLOCK}|\d{{1,2}}(?=\s?[-–]\s?\d{{1,2}}\s?{_HALF}))\s?[-–]\s?({_CLOCK})"), _both),
    (
        re.compile(
            rf"{_BEFORE}(?P<hour>\d{{1,2}}):(?P<minute>\d{{2}})(?::(?P<second>\d{{2}}))?(?:\s?(?P<half>{_HALF}))?{_AFTER}"
        ),
        _time,
    ),
    (
        re.compile(rf"{_BEFORE}(?P<hour>\d{{1,2}})\s?(?P<half>{_HALF})"),
        lambda match: f"{words(match['hour'])} {match['half'][0].lower()} m",
    ),
    (re.compile(rf"{_BEFORE}({_YEAR})\s?[-–/]\s?({_YEAR}|\d{{2}}){_AFTER}"), _years),
    (re.compile(r"(?<!\d)([12]\d\d0)['’]?s\b"), lambda match: decade(match[1])),
    (re.compile(r"(?<!\w)['’]?([2-9]0)['’]?s\b"), lambda match: decade(match[1])),
    (re.compile(rf"\b([Pp]re|[Pp]ost|[Mm]id)-({_YEAR})\b"), lambda match: [match.span(1), " ", year(match[2])]),
    (
        re.compile(rf"\b((?i:{YEAR_LEADS})) ({_YEAR})(?=[\s.,;:!?)]|$)(?!,\d|\.\d)"),
        lambda match: [match.span(1), " ", year(match[2])],
    ),
)


def dates_in_words(text: AlignedText) -> AlignedText:
    """Needs no other rule to have run before."""
    return text.apply(_RULES) if _DATE_LIKE.search(text.text) else text


def named_dates_in_words(text: AlignedText) -> AlignedText:
    """Only dates with the name of a month, as they stand in texts of other languages."""
    return text.apply(_RULES[3:7]) if _MONTH_NAME.search(text.text) else text


_DATE_LIKE = re.compile(rf"\d|\b(?:{_DAY})\.?\s?[-–]")
_MONTH_NAME = re.compile(rf"\b(?:{_MONTH})")
