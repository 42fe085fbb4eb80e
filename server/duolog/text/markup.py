"""Takes out what is for the eye: Markdown, HTML, code, formulas, emoji and all other signs. Pure.

Markdown libraries give no character positions inside a line, and every character must find its way back to the source;
hence these rules.
"""

from __future__ import annotations

import html
import re

import regex  # type: ignore[import-untyped]  # rejected: its type information is a package of its own

from duolog.text.addresses import addresses_in_words
from duolog.text.aligned import AlignedText, Part, Rule

_FENCE = re.compile(r"(```|~~~)[^\n]*\n?.*?(?:\1|\Z)", re.DOTALL)
_CODE = re.compile(r"`+([^`\n]+)`+")
_IMAGE_OR_LINK = re.compile(r"!?\[([^\]\n]*)\]\((?:[^()\s]|\([^()\s]*\))*(?:\s+\"[^\"\n]*\")?\)")
_REFERENCE_LINK = re.compile(r"\[([^\]\n]+)\]\[[^\]\n]*\]")
_FOOTNOTE = re.compile(r"\[\^[^\]\s]{1,20}\]:?|(?<=[\w.,;:!?)”\"])\[\d{1,3}\]|【\d[^】\n]{0,20}】")
_AUTOLINK = re.compile(r"<((?:https?://|mailto:)[^<>\s]+)>")
_TAG = re.compile(
    r"<!--.*?-->|</?(?:a|abbr|b|blockquote|br|center|code|del|details|div|em|font|h[1-6]|hr|i|img|ins|kbd|li|mark|ol|p"
    r"|pre|q|s|small|span|strong|sub|summary|sup|table|tbody|td|th|thead|think|tr|u|ul)"
    r"(?:\s+[\w:-]+\s*=\s*(?:\"[^\"]*\"|'[^']*'|[^\s\"'<>]+)){0,20}\s*/?>",
    re.IGNORECASE | re.DOTALL,
)
_PLACEHOLDER = re.compile(r"(?<!\w)<([A-Za-z][\w -]{0,40})>(?!\w)")
_ENTITY = re.compile(r"&(?:#\d{1,6}|#x[0-9a-fA-F]{1,5}|[a-zA-Z]{2,10});")
_FORMULA = re.compile(r"\$\$([^$\n]{1,200})\$\$|(?<![\w$])\$(?=[^\s\d$])([^$\n]{1,80})(?<=\S)\$(?![\d$])")
_LATEX: tuple[Rule, ...] = (
    (re.compile(r"\\(?:d?frac)\{([^{}\n]*)\}\{([^{}\n]*)\}"), lambda match: [match.span(1), " / ", match.span(2)]),
    (re.compile(r"\\[()\[\],;!]"), " "),
    (re.compile(r"\\([A-Za-z]+)"), lambda match: [" ", match.span(1)]),
    (re.compile(r"\\(?=[^\w\s])"), ""),
)
_TABLE_RULE = re.compile(r"^[ \t]*\|?[ \t]*:?-{2,}:?[ \t]*(?:\|[ \t]*:?-{2,}:?[ \t]*)*\|?[ \t]*$", re.MULTILINE)
_TABLE_EDGE = re.compile(r"^[ \t]*\|[ \t]*|[ \t]*\|[ \t]*$", re.MULTILINE)
_TABLE_CELL = re.compile(r"[ \t]*\|[ \t]*")
_HEADING = re.compile(r"^[ \t]{0,3}#{1,6}[ \t]+", re.MULTILINE)
_QUOTE = re.compile(r"^[ \t]{0,3}(?:>[ \t]?)+", re.MULTILINE)
_BULLET = re.compile(r"^[ \t]*[-*+•‣◦●○▪–][ \t]+(?:\[[ xX]\][ \t]+)?", re.MULTILINE)
_LINE_RULE = re.compile(r"^[ \t]*(?:[-*_=][ \t]*){3,}$", re.MULTILINE)
_EMPHASIS = (
    re.compile(r"\*\*\*(?=\S)(.+?)(?<=\S)\*\*\*"),
    re.compile(r"\*\*(?=\S)(.+?)(?<=\S)\*\*"),
    re.compile(r"(?<!\w)__(?=\S)(.+?)(?<=\S)__(?!\w)"),
    re.compile(r"~~(?=\S)(.+?)(?<=\S)~~"),
    re.compile(r"(?<![\w*])\*(?=[^\s*])([^*\n]*?)(?<=\S)\*(?![\w*])"),
    re.compile(r"(?<=[\u3400-\u9fff])\*(?=[^\s*])([^*\n]*?)(?<=\S)\*(?!\*)"),
    re.compile(r"(?<!\w)_(?=\S)([^_\n]+?)(?<=\S)_(?!\w)"),
)
_LEFT_OVER = re.compile(r"\*\*+|~~+|`+|(?<!\w)__+|__+(?!\w)|(?<![\w\s])\*(?=\s|$)|(?:(?<=\s)|^)\*(?=[^\W\d])")
_LINE_AT_FIGURE = re.compile(r"(?<=\d)_+|_+(?=\d)")
"""To the rules for figures an underscore is a letter: the figure beside it would stay one."""
_EMOTICON = re.compile(
    r"(?<!\S)(?:[:;=8][-o']?[()DPpOo3/|\\*]|[xX]D|\^_*\^|[-¬]_+[-¬]|<3|:[a-z][a-z0-9_+-]{1,30}:|¯\\+_*\(ツ\)_*/¯)(?=\s|$|[.,!?])"
)
_EMOJI = regex.compile(
    r"(?:[\p{Extended_Pictographic}--[©®™↔-⇿]][\uFE0E\uFE0F\u20E3]?[\U0001F3FB-\U0001F3FF]?\u200D?|[\U0001F1E6-\U0001F1FF]"
    r"|[0-9#*]\uFE0F?\u20E3|[\uFE0E\uFE0F\u200B-\u200D\u2060\uFEFF\U000E0020-\U000E007F])+",
    flags=regex.VERSION1,
)
_ARROWS = re.compile(r"\s*(?:[←-⇿➔-➾⟵-⟿]|(?<![\w-])<?->|[=-]+>(?=\s)|<=>)\uFE0F?\s*")
_OPTION = re.compile(r"(?<!\S)--?(?=[A-Za-z])|(?<=\s)--+(?=\s)")
_CODE_BLOCK = {"en": "code block.", "zh": "代码。"}
_SIGNS = {
    # Of languages whose words for figures are known, nothing that is not a word is left.
    True: regex.compile(r"[\p{S}\p{C}\p{Co}*#@&\\_\[\]{}--\n\t]+", flags=regex.VERSION1),
    # The voices of others know the names of the signs between figures.
    False: regex.compile(r"[\p{S}\p{C}\p{Co}*#\\_\[\]{}--[\n\t+=<>°$€£¥]]+", flags=regex.VERSION1),
}
_SPACES = re.compile(r"[ \t\u00a0\u2000-\u200a\u202f\u3000]+")
_LINE_END = re.compile(r"[ \t]*\n\s*")
_MARKS_BEFORE = ".!?,;:…。！？，；：、"
_DOUBLE_MARKS = re.compile(r"(?<=[,;:，；：、])[ ]*[,;，；](?=\s|$)")
_LEADING_MARKS = re.compile(r"^[\s,;:.，；：、。]+(?=\S)")
_SPACE_BEFORE_MARK = re.compile(r"[ ]+(?=[,.!?;:](?:\s|$)|[，。！？；：、])")
_EMPTY_BRACKETS = re.compile(r"\(\s*\)|（\s*）|\"\s*\"(?=\s|$)")


def plain(text: AlignedText, language: str) -> AlignedText:
    """Without markup, emoji and addresses."""
    text = text.sub(_FENCE, _CODE_BLOCK.get(language, " "))
    text = text.sub(_AUTOLINK, lambda match: match.span(1)).sub(_IMAGE_OR_LINK, lambda match: match.span(1))
    text = text.sub(_REFERENCE_LINK, lambda match: match.span(1)).sub(_FOOTNOTE, "")
    text = text.sub(_CODE, lambda match: match.span(1))
    text = addresses_in_words(text, language)
    text = text.sub(_TAG, " ").sub(_ENTITY, lambda match: html.unescape(match.group()))
    text = text.sub(_PLACEHOLDER, lambda match: match.span(1))
    text = _without_formulas(text.sub(_EMOTICON, ""))
    for pattern in (_TABLE_RULE, _LINE_RULE, _HEADING, _QUOTE, _BULLET):
        text = text.sub(pattern, "")
    if "|" in text.text:
        text = text.sub(_TABLE_EDGE, "").sub(_TABLE_CELL, ", ")
    for pattern in _EMPHASIS:
        text = text.sub(pattern, lambda match: match.span(1))
    text = text.sub(_LEFT_OVER, "").sub(_LINE_AT_FIGURE, " ").sub(_OPTION, _option)
    return text.sub(_EMOJI, "").sub(_ARROWS, ", ")


def tidy(text: AlignedText, language: str, *, known_words: bool) -> AlignedText:
    """One line, single spaces, no sign that a voice would read out, a full stop where a line ended without one."""
    stop = "。" if language in ("zh", "ja") else ". "
    text = text.sub(_SIGNS[known_words], " ").sub(_EMPTY_BRACKETS, "").stripped()
    before_breaks = text.text

    def line_end(match: re.Match[str]) -> Part:
        before = before_breaks[: match.start()].rstrip()
        return " " if not before or before[-1] in _MARKS_BEFORE else stop

    text = text.sub(_LINE_END, line_end).sub(_SPACES, lambda match: " " if match.group() != " " else None)
    return text.sub(_DOUBLE_MARKS, "").sub(_SPACE_BEFORE_MARK, "").sub(_LEADING_MARKS, "").stripped()


def _without_formulas(text: AlignedText) -> AlignedText:
    """The formula's own letters and signs, without dollars and backslashes."""
    if "$" in text.text:
        text = text.sub(_FORMULA, lambda match: match.span(1) if match[1] else match.span(2))
    return text.apply(_LATEX) if "\\" in text.text else text


def _option(match: re.Match[str]) -> str:
    return ", " if match.end() < len(match.string) and match.string[match.end()].isspace() else ""
