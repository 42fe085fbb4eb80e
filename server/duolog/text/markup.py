"""Takes out what is for the eye: Markdown, HTML, code, emoji, addresses. Pure.

Markdown libraries give no character positions inside a line, and every character must find its way back to the source;
hence these rules.
"""

from __future__ import annotations

import html
import re
from urllib.parse import urlsplit

import regex  # type: ignore[import-untyped]  # rejected: its type information is a package of its own

from duolog.text.aligned import AlignedText, Part

_FENCE = re.compile(r"```[^\n]*\n?.*?(?:```|\Z)", re.DOTALL)
_CODE = re.compile(r"`+([^`\n]+)`+")
_IMAGE_OR_LINK = re.compile(r"!?\[([^\]\n]*)\]\((?:[^()\s]|\([^()\s]*\))*(?:\s+\"[^\"\n]*\")?\)")
_AUTOLINK = re.compile(r"<((?:https?://|mailto:)[^<>\s]+)>")
_TAG = re.compile(r"</?[a-zA-Z][^<>\n]{0,200}>")
_ENTITY = re.compile(r"&(?:#\d{1,6}|#x[0-9a-fA-F]{1,5}|[a-zA-Z]{2,10});")
_TABLE_RULE = re.compile(r"^[ \t]*\|?[ \t]*:?-{2,}:?[ \t]*(?:\|[ \t]*:?-{2,}:?[ \t]*)*\|?[ \t]*$", re.MULTILINE)
_TABLE_EDGE = re.compile(r"^[ \t]*\|[ \t]*|[ \t]*\|[ \t]*$", re.MULTILINE)
_TABLE_CELL = re.compile(r"[ \t]+\|[ \t]+")
_HEADING = re.compile(r"^[ \t]{0,3}#{1,6}[ \t]+", re.MULTILINE)
_QUOTE = re.compile(r"^[ \t]{0,3}(?:>[ \t]?)+", re.MULTILINE)
_BULLET = re.compile(r"^[ \t]*[-*+•‣◦][ \t]+(?:\[[ xX]\][ \t]+)?", re.MULTILINE)
_LINE_RULE = re.compile(r"^[ \t]*(?:[-*_][ \t]*){3,}$", re.MULTILINE)
_EMPHASIS = (
    re.compile(r"\*\*\*(?=\S)(.+?)(?<=\S)\*\*\*"),
    re.compile(r"\*\*(?=\S)(.+?)(?<=\S)\*\*"),
    re.compile(r"(?<!\w)__(?=\S)(.+?)(?<=\S)__(?!\w)"),
    re.compile(r"~~(?=\S)(.+?)(?<=\S)~~"),
    re.compile(r"(?<![\w*])\*(?=[^\s*])([^*\n]*?)(?<=\S)\*(?![\w*])"),
    re.compile(r"(?<!\w)_(?=\S)([^_\n]+?)(?<=\S)_(?!\w)"),
)
_LEFT_OVER = re.compile(r"\*\*+|~~+|`+|(?<!\w)__+|__+(?!\w)|(?<![\w\s])\*(?=\s|$)|(?:(?<=\s)|^)\*(?=[^\W\d])")
_EMAIL = re.compile(r"\b[A-Za-z0-9][\w.+-]*@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+")
_URL = re.compile(r"(?:https?://|www\.)[^\s<>\"“”，。；！？（）]+", re.IGNORECASE)
_URL_TAIL = ".,;:!?)'*_]"
_EMOJI_TEXT = regex.compile(
    r"(?:[\p{Extended_Pictographic}--[©®™↔-⇿]][\uFE0E\uFE0F\u20E3]?[\U0001F3FB-\U0001F3FF]?\u200D?|[\U0001F1E6-\U0001F1FF]"
    r"|[0-9#*]\uFE0F?\u20E3|[\uFE0E\uFE0F\u200B-\u200D\u2060\uFEFF])+",
    flags=regex.VERSION1,
)
_ARROWS = re.compile(r"\s*(?:[←-⇿➔-➾]|(?<![-\w])->|=>)\uFE0F?\s*")
_DOT = {"en": " dot ", "zh": "点"}
_AT = {"en": " at ", "zh": " at "}
_CODE_BLOCK = {"en": "code block.", "zh": "代码。"}
_SPACES = re.compile(r"[ \t\u00a0\u2000-\u200a\u202f\u3000]+")
_LINE_END = re.compile(r"[ \t]*\n\s*")
_MARKS_BEFORE = ".!?,;:…。！？，；：、"
_DOUBLE_MARKS = re.compile(r"(?<=[,;:])[ ]*[,;](?=\s|$)")
_SPACE_BEFORE_MARK = re.compile(r"[ ]+(?=[,.!?;:](?:\s|$))")


def plain(text: AlignedText, language: str) -> AlignedText:
    """Without markup, emoji and addresses."""
    text = text.sub(_FENCE, _CODE_BLOCK.get(language, " "))
    text = text.sub(_AUTOLINK, lambda match: match.span(1)).sub(_IMAGE_OR_LINK, lambda match: match.span(1))
    text = text.sub(_CODE, lambda match: match.span(1))
    text = text.sub(_EMAIL, lambda match: _mail(match, language)).sub(_URL, lambda match: _url(match, language))
    text = text.sub(_TAG, " ").sub(_ENTITY, lambda match: html.unescape(match.group()))
    for pattern in (_TABLE_RULE, _LINE_RULE, _HEADING, _QUOTE, _BULLET):
        text = text.sub(pattern, "")
    if "|" in text.text:
        text = text.sub(_TABLE_EDGE, "").sub(_TABLE_CELL, ", ")
    for pattern in _EMPHASIS:
        text = text.sub(pattern, lambda match: match.span(1))
    text = text.sub(_LEFT_OVER, "")
    return _without_emoji(text).sub(_ARROWS, ", ")


def tidy(text: AlignedText, language: str) -> AlignedText:
    """One line, single spaces, a full stop where a line ended without one."""
    stop = "。" if language in ("zh", "ja") else ". "

    def line_end(match: re.Match[str]) -> Part:
        before = text.text[: match.start()].rstrip()
        return " " if not before or before[-1] in _MARKS_BEFORE else stop

    text = text.stripped()
    text = text.sub(_LINE_END, line_end).sub(_SPACES, lambda match: " " if match.group() != " " else None)
    return text.sub(_DOUBLE_MARKS, "").sub(_SPACE_BEFORE_MARK, "").stripped()


def _without_emoji(text: AlignedText) -> AlignedText:
    found = [match.span() for match in _EMOJI_TEXT.finditer(text.text)]
    if not found:
        return text
    pattern = re.compile("|".join(re.escape(text.text[start:end]) for start, end in sorted(found, key=_longest_first)))
    return text.sub(pattern, "")


def _longest_first(span: tuple[int, int]) -> int:
    return span[0] - span[1]


def _mail(match: re.Match[str], language: str) -> Part:
    name, host = match.group().split("@")
    dot = _DOT.get(language, " . ")
    return name.replace(".", dot) + _AT.get(language, " at ") + host.replace(".", dot)


def _url(match: re.Match[str], language: str) -> list[Part]:
    """The host's name; the path only where it is one short word. Punctuation after the address stays."""
    address = match.group().rstrip(_URL_TAIL)
    tail = (match.start() + len(address), match.end())
    try:
        parts = urlsplit(address if "://" in address else f"https://{address}")
        host = parts.hostname or ""
    except ValueError:
        return ["", tail]
    dot = _DOT.get(language, " . ")
    spoken = host.removeprefix("www.").replace(".", dot)
    path = parts.path.strip("/")
    if language == "en" and path.isalpha() and len(path) <= 16:
        spoken += f" slash {path}"
    return [spoken, tail]
