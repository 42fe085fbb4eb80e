"""Chinese: numbers, dates, times, money, measures and signs in words. Pure.

cn2an spells the numbers; the rules here find them and say what they are.
"""

from __future__ import annotations

import re
from datetime import date
from functools import lru_cache

import cn2an  # type: ignore[import-untyped]  # rejected: it has no type information

from duolog.text.aligned import AlignedText, Part, Rule
from duolog.text.chinese_words import CURRENCIES, HOTLINE_LEADS, LONG_MEASURES, MEASURES, SIGNS, UNITS
from duolog.text.english_dates import named_dates_in_words

_NUMBER = r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?"
_BEFORE, _AFTER = r"(?<![A-Za-z\d.,/])", r"(?![A-Za-z\d]|[.,]\d)"
_HAN = r"[\u3400-\u4dbf\u4e00-\u9fff]"
_TO = r"\s?[-–—~～至]\s?"
_UNIT = "|".join(sorted(map(re.escape, UNITS), key=len, reverse=True))
_CURRENCY = "|".join(sorted(map(re.escape, CURRENCIES), key=len, reverse=True))
_CODE = "|".join(sorted((code for code in CURRENCIES if code.isalpha()), key=len, reverse=True))
_MEASURE = rf"(?:{'|'.join(LONG_MEASURES)}|[{MEASURES}])"
_SCALE = "万亿|[百千万亿]"
_DIGITS = dict(zip("0123456789", "零一二三四五六七八九", strict=True))
_TWO_FIRST = re.compile("^二(?=[千万亿])")
MAX_WHOLE_DIGITS = 16
"""cn2an's limit."""
_SAID_BY_DIGIT = 10
"""From this length on a bare figure names something and does not count it."""


@lru_cache(maxsize=1024)
def number(figure: str) -> str:
    """A plain or decimal number, thousands separators allowed: 1,000.0 is 一千点零."""
    whole, _, fraction = figure.replace(",", "").partition(".")
    if len(whole) > MAX_WHOLE_DIGITS or (len(whole) > 1 and whole[0] == "0"):
        spoken = digits(whole)
    else:
        spoken = _TWO_FIRST.sub("两", str(cn2an.an2cn(whole, "low"))) if whole else "零"
    return f"{spoken}点{digits(fraction)}" if fraction else spoken


def digits(figure: str) -> str:
    """Digit by digit; all else is left out."""
    return "".join(_DIGITS.get(char, "") for char in figure)


def telephone(figure: str) -> str:
    """Digit by digit, one as 幺; groups parted by a comma."""
    groups = [group for group in re.split(r"[ ()-]+", figure.lstrip("+")) if group]
    spoken = "，".join(digits(group).replace("一", "幺") for group in groups)
    return f"加{spoken}" if figure.startswith("+") else spoken


def _count(figure: str) -> str:
    return "两" if figure == "2" else number(figure)


def _date(match: re.Match[str]) -> Part | None:
    try:
        day = date(int(match["y"]), int(match["m"]), int(match["d"]))
    except ValueError:
        return None
    return f"{digits(str(day.year))}年{number(str(day.month))}月{number(str(day.day))}日"


def _time(match: re.Match[str]) -> Part | None:
    hour, minute, second = int(match["hour"]), int(match["minute"]), match["second"]
    if hour > 24 or minute > 59:
        return None
    spoken = f"{_count(str(hour))}点"
    if minute or second:
        spoken += f"{'零' if minute < 10 else ''}{number(str(minute)) if minute else ''}分"
    return spoken + (f"{number(str(int(second)))}秒" if second else "")


def _money(match: re.Match[str]) -> Part:
    symbol, amount, scale = match["symbol"] or match["code"], match["amount"], match["scale"] or ""
    name = CURRENCIES[symbol]
    whole, _, fraction = amount.replace(",", "").partition(".")
    if name != "元" or scale or len(fraction) != 2:
        spoken = _count(amount) if not scale else number(amount)
        return f"{spoken}{scale}{name}"
    tenths, hundredths = fraction[0], fraction[1]
    spoken = "" if whole == "0" and fraction != "00" else f"{_count(whole)}元"
    spoken += f"{number(tenths)}角" if tenths != "0" else ("零" if hundredths != "0" and spoken else "")
    return spoken + (f"{number(hundredths)}分" if hundredths != "0" else "")


def _degrees(match: re.Match[str]) -> Part:
    return f"{'零下' if match['sign'] else ''}{number(match['amount'])}{UNITS[match['unit']]}"


def _range(match: re.Match[str]) -> list[Part] | Part:
    unit = match["unit"] or ""
    if unit == "%":
        return f"百分之{number(match['low'])}到百分之{number(match['high'])}"
    return f"{number(match['low'])}到{number(match['high'])}{UNITS.get(unit, '')}"


def _money_range(match: re.Match[str]) -> Part:
    return f"{number(match['low'])}到{number(match['high'])}{match['scale'] or ''}{CURRENCIES[match['symbol']]}"


def _number(match: re.Match[str]) -> Part:
    figure = match["amount"]
    return digits(figure) if figure.isdigit() and len(figure) >= _SAID_BY_DIGIT else number(figure)


def _between(written: str, said: str) -> Rule:
    return re.compile(rf"(?<=[\w)）])\s*{written}\s*(?=[\w(（.¥$-])"), said


_YEAR: Rule = (re.compile(r"(?<!\d)(1\d{2}[1-9]|1[1-9]\d0|20\d{2})(?=\s?年)"), lambda match: digits(match[1]))
_SHORT_YEAR: Rule = (re.compile(r"(?<!\d)([5-9]\d)(?=年代|后)"), lambda match: digits(match[1]))
_PERCENT: Rule = (re.compile(rf"{_BEFORE}(?P<amount>{_NUMBER})\s?%"), lambda m: f"百分之{number(m['amount'])}")
_COUNTED: Rule = (re.compile(rf"(?<![\w.,])2(?=\s?{_MEASURE})|(?<={_HAN})(?<![第十月年])2(?=\s?{_MEASURE})"), "两")
_RULES: tuple[Rule, ...] = (
    (re.compile(r"^[ \t]*(\d{1,2})[.)][ \t]+(?=\D)", re.MULTILINE), lambda match: f"{number(match[1])}，"),
    (re.compile(r"\b([CF])#(?![A-Za-z\d])"), lambda match: [match.span(1), " sharp"]),
    (re.compile(r"\bC\+\+(?![A-Za-z\d])"), "C 加加"),
    (re.compile(r"(?<![A-Za-z])(?:No\.|#)\s?(?=\d)"), "第"),
    (re.compile(r"(?<=[\w)])\^[({]?(\d{1,3})[)}]?"), lambda match: f"的{number(match[1])}次方"),
    (re.compile(r"(?<=[\d)])\s-\s(?=\d[\d.,]*\s?=)"), "减"),
    (re.compile(rf"{_BEFORE}(?P<y>[12]\d{{3}})([-/.])(?P<m>\d{{1,2}})\2(?P<d>\d{{1,2}}){_AFTER}"), _date),
    _YEAR,
    _SHORT_YEAR,
    (
        re.compile(rf"{_BEFORE}(\d{{1,2}}[:：]\d{{2}}){_TO}(?=\d{{1,2}}[:：]\d{{2}})"),
        lambda match: [match.span(1), "到"],
    ),
    (re.compile(rf"{_BEFORE}(?P<hour>\d{{1,2}})[:：](?P<minute>\d{{2}})(?:[:：](?P<second>\d{{2}}))?{_AFTER}"), _time),
    (
        re.compile(
            rf"(?<![A-Za-z])(?P<symbol>{_CURRENCY})\s?(?P<low>{_NUMBER}){_TO}(?P=symbol)?(?P<high>{_NUMBER})(?P<scale>{_SCALE})?"
        ),
        _money_range,
    ),
    (
        re.compile(rf"(?<![A-Za-z])(?P<symbol>{_CURRENCY})\s?(?P<amount>{_NUMBER})\s?(?P<scale>{_SCALE})?(?P<code>)"),
        _money,
    ),
    (
        re.compile(
            rf"{_BEFORE}(?P<symbol>)(?P<amount>{_NUMBER})\s?(?P<scale>{_SCALE})?\s?(?P<code>{_CODE}|€|£)(?![A-Za-z])"
        ),
        _money,
    ),
    (re.compile(rf"{_BEFORE}(?P<low>{_NUMBER})\s?%?{_TO}(?P<high>{_NUMBER})\s?(?P<unit>%)"), _range),
    (re.compile(rf"(?<![A-Za-z\d.,)）])(?P<sign>[-−])(?P<amount>{_NUMBER})\s?(?P<unit>°C|℃|°F|℉)"), _degrees),
    (re.compile(r"(?<![A-Za-z\d)）])[-−](?=\d)(?!\d+-\d)"), "负"),
    _PERCENT,
    (re.compile(rf"{_BEFORE}(?P<amount>{_NUMBER})\s?‰"), lambda match: f"千分之{number(match['amount'])}"),
    (
        re.compile(r"(?<![A-Za-z\d.])(\d{1,3}(?:\.\d{1,3}){2,3})(?![A-Za-z\d]|\.\d)"),
        lambda match: "点".join(map(number, match[1].split("."))),
    ),
    (re.compile(r"(?<![A-Za-z\d.])[vV](\d+(?:\.\d+)?)(?![A-Za-z\d])"), lambda match: f"版本{number(match[1])}"),
    (
        re.compile(rf"{_BEFORE}(\d{{1,3}})/([1-9]\d{{0,2}}){_AFTER}"),
        lambda match: f"{number(match[2])}分之{number(match[1])}",
    ),
    (
        re.compile(rf"\+\d{{1,3}}[ -]?\d{{2,4}}(?:[ -]?\d{{3,4}}){{1,3}}{_AFTER}"),
        lambda match: telephone(match.group()),
    ),
    (
        re.compile(rf"{_BEFORE}(?:\(?0\d{{2,3}}\)?[- ]?\d{{7,8}}|[48]00-?\d{{3}}-?\d{{4}}){_AFTER}"),
        lambda m: telephone(m.group()),
    ),
    (re.compile(rf"{_BEFORE}1[3-9]\d[ -]?\d{{4}}[ -]?\d{{4}}{_AFTER}"), lambda match: telephone(match.group())),
    (
        re.compile(rf"({HOTLINE_LEADS})(?:是|为|：|:)?\s?(\d{{3,6}}){_AFTER}"),
        lambda match: [match.span(1), telephone(match[2])],
    ),
    (
        re.compile(
            rf"{_BEFORE}(?P<low>{_NUMBER}){_TO}(?P<high>{_NUMBER})\s?(?P<unit>(?:{_UNIT})(?![A-Za-z/]))?{_AFTER}"
        ),
        _range,
    ),
    (
        re.compile(rf"{_BEFORE}({_NUMBER})\s?[:：]\s?({_NUMBER}){_AFTER}"),
        lambda match: f"{number(match[1])}比{number(match[2])}",
    ),
    (
        re.compile(rf"{_BEFORE}(?P<amount>{_NUMBER})\s?(?P<unit>{_UNIT})(?![A-Za-z/])"),
        lambda match: f"{_count(match['amount'])}{UNITS[match['unit']]}",
    ),
    _COUNTED,
    _between(r"\+", "加"),
    _between("[−]", "减"),
    _between(r"(?<=\s)-(?=\s)", "减"),
    _between("[×*]", "乘"),
    _between("÷", "除以"),
    _between("==?", "等于"),
    _between("(?:<=|≤)", "小于等于"),
    _between("(?:>=|≥)", "大于等于"),
    _between("[<＜]", "小于"),
    _between("[>＞]", "大于"),
    (re.compile(r"(?<![A-Za-z\d])[~～]\s?(?=\d)"), "约"),
    (re.compile(rf"{_BEFORE}(?P<amount>{_NUMBER}){_AFTER}"), _number),
    (re.compile(r"(?<![A-Za-z\d])(?P<amount>\d+)(?![A-Za-z\d])"), _number),
    (re.compile(rf"(?<={_HAN})\s?/(?=或)"), ""),
    (re.compile(rf"(?<={_HAN})\s?/\s?(?={_HAN})"), "或"),
    (re.compile("|".join(map(re.escape, SIGNS))), lambda match: SIGNS[match.group()]),
)
_BESIDE_CHINESE: tuple[Rule, ...] = (
    _YEAR,
    _COUNTED,
    (re.compile(rf"(?<={_HAN})(?P<amount>{_NUMBER})\s?%"), lambda match: f"百分之{number(match['amount'])}"),
    (re.compile(rf"(?<={_HAN})(?P<amount>{_NUMBER}){_AFTER}"), _number),
    (re.compile(rf"{_BEFORE}(?P<amount>{_NUMBER})(?={_HAN})"), _number),
)
_FIGURE_OR_SIGN = re.compile(rf"[\d{re.escape(''.join(SIGNS))}+=<>＜＞~～/*−-]")
_FIGURE_BESIDE_CHINESE = re.compile(rf"\d{_HAN}|{_HAN}\d")


def in_chinese_words(text: AlignedText) -> AlignedText:
    """Everything that is not a word, in words. English names of months are read in English."""
    text = named_dates_in_words(text)
    return text.apply(_RULES) if _FIGURE_OR_SIGN.search(text.text) else text


def figures_beside_chinese(text: AlignedText) -> AlignedText:
    """In a text of another language: only the figures that touch a Chinese character."""
    return text.apply(_BESIDE_CHINESE) if _FIGURE_BESIDE_CHINESE.search(text.text) else text
