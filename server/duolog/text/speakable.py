"""What of an answer may be spoken, and how: the text a voice is given, with the way back to the original.

Pure. Markup is dropped in every language; numbers, money, dates and abbreviations are put into words where the language
has a module of its own: English and Chinese.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass

from duolog.text.aligned import AlignedText
from duolog.text.chinese import figures_beside_chinese, in_chinese_words
from duolog.text.english import in_english_words
from duolog.text.markup import plain, tidy


@dataclass(frozen=True, slots=True)
class Span:
    """A range of the spoken text and the range of the source it stands for, ends exclusive."""

    spoken_start: int
    spoken_end: int
    source_start: int
    source_end: int
    verbatim: bool
    """True: character for character, perhaps with unspoken marks after it. False: other words for the same thing."""


@dataclass(frozen=True, slots=True)
class Spoken:
    text: str
    """May be empty: nothing to say."""
    spans: tuple[Span, ...]
    """In order, covering `text` without gaps."""
    source_length: int

    def source_end(self, spoken_offset: int) -> int:
        """How much of the source has been heard once `spoken_offset` characters of the spoken text have.

        Never falls as the offset grows; the whole source at the end. What was put into other words counts when it was
        heard to its end.
        """
        if spoken_offset >= len(self.text):
            return self.source_length
        if spoken_offset <= 0:
            return 0
        position = bisect_right(self.spans, spoken_offset - 1, key=lambda span: span.spoken_start) - 1
        span = self.spans[position]
        if spoken_offset == span.spoken_end:
            return span.source_end
        return span.source_start + (spoken_offset - span.spoken_start if span.verbatim else 0)


def _english(text: AlignedText) -> AlignedText:
    return in_english_words(figures_beside_chinese(text))


_IN_WORDS: dict[str, Callable[[AlignedText], AlignedText]] = {"en": _english, "zh": in_chinese_words}


def speakable(text: str, language: str) -> Spoken:
    """The spoken form of a phrase or answer; `language` is an ISO 639-1 code."""
    code = language.split("-", maxsplit=1)[0].lower()
    aligned = plain(AlignedText.of(text), code)
    in_words = _IN_WORDS.get(code)
    if in_words is not None:
        aligned = in_words(aligned)
    aligned = tidy(aligned, code, known_words=in_words is not None)
    if not any(char.isalnum() for char in aligned.text):
        return Spoken("", (), len(text))
    return Spoken(aligned.text, _spans(aligned, text), len(text))


def _spans(aligned: AlignedText, source: str) -> tuple[Span, ...]:
    """Merge characters into spans. Ranges that overlap, as where one rule changed what another had made, become one.

    Unspoken marks right after a spoken character belong to it.
    """
    spans: list[Span] = []
    for offset in range(len(aligned.text)):
        start, end = aligned.starts[offset], aligned.ends[offset]
        last = spans[-1] if spans else None
        if last and not last.verbatim and (start, end) == (last.source_start, last.source_end):
            spans[-1] = Span(last.spoken_start, offset + 1, start, end, verbatim=False)
        elif (
            last and last.verbatim and start == last.source_end and end == start + 1 and _same(aligned, source, offset)
        ):
            spans[-1] = Span(last.spoken_start, offset + 1, last.source_start, end, verbatim=True)
        elif last and start < last.source_end:
            start, end = min(start, last.source_start), max(end, last.source_end)
            spans[-1] = Span(last.spoken_start, offset + 1, start, end, verbatim=False)
        else:
            verbatim = end == start + 1 and _same(aligned, source, offset)
            spans.append(Span(offset, offset + 1, start, end, verbatim=verbatim))
    return tuple(_with_marks(span, spans[index + 1 : index + 2], aligned, source) for index, span in enumerate(spans))


def _same(aligned: AlignedText, source: str, offset: int) -> bool:
    return aligned.text[offset] == source[aligned.starts[offset]]


def _with_marks(span: Span, following: list[Span], aligned: AlignedText, source: str) -> Span:
    limit = following[0].source_start if following else len(source)
    end = span.source_end
    if aligned.text[span.spoken_end - 1].isspace():
        return span
    while end < limit and not source[end].isspace():
        end += 1
    return Span(span.spoken_start, span.spoken_end, span.source_start, end, span.verbatim)
