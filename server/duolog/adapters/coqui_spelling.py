"""From text to the symbol ids a Coqui model is fed, sentence by sentence, with the place of each word in them."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

from TTS.tts.configs.vits_config import VitsConfig
from TTS.tts.utils.text.tokenizer import TTSTokenizer

from duolog.adapters.coqui_words import NO_WORD, owners, word_spans
from duolog.adapters.espeak_phonemizer import Clause, EspeakPhonemizer, register_with_coqui, split_clauses

SENTENCE_CHARS = 200
"""A sentence is cut at its next clause once it is this long, so that its first sound is not late."""


@dataclass(frozen=True, slots=True)
class SpelledWord:
    text_start: int
    text_end: int
    """Character offsets into the text, end exclusive."""
    first_id: int
    end_id: int
    """Positions in `Spelling.ids`, end exclusive."""


@dataclass(frozen=True, slots=True)
class Spelling:
    """One sentence as the model reads it."""

    ids: tuple[int, ...]
    words: tuple[SpelledWord, ...]


class Speller:
    """Spells for one voice. Not thread-safe: the model's thread uses it."""

    def __init__(self, config: VitsConfig) -> None:
        register_with_coqui()
        self._tokenizer, _ = TTSTokenizer.init_from_config(config)
        self._espeak = self._tokenizer.phonemizer if isinstance(self._tokenizer.phonemizer, EspeakPhonemizer) else None
        self._vocabulary = {char: index for index, char in enumerate(self._tokenizer.characters.vocab)}
        self._stride = 2 if self._tokenizer.add_blank else 1
        self._offset = int(self._tokenizer.add_blank) + int(self._tokenizer.use_eos_bos)

    def spell(self, text: str) -> Iterator[Spelling]:
        """One Spelling a sentence; nothing where the text has nothing to say."""
        for start, end in sentence_spans(text):
            espeak = self._espeak
            spelling = self._by_phonemes(espeak, text, start, end) if espeak else self._by_share(text, start, end)
            if spelling.words:
                yield spelling

    def _by_phonemes(self, espeak: EspeakPhonemizer, text: str, start: int, end: int) -> Spelling:
        symbols: list[int] = []
        symbol_owners: list[int] = []
        spans: list[tuple[int, int]] = []
        for clause in espeak.clauses(text[start:end]):
            words = list(word_spans(text, start + clause.text_start, start + clause.text_end))
            spoken = [espeak.word(text[a:b]) for a, b in words]
            for char, owner in _with_marks(clause, owners(clause.phonemes, spoken), first=not symbols):
                for symbol in self._symbols(char):
                    symbols.append(symbol)
                    symbol_owners.append(owner if owner == NO_WORD else owner + len(spans))
            spans.extend(words)
        return Spelling(self._framed(symbols), tuple(self._words(spans, symbol_owners)))

    def _by_share(self, text: str, start: int, end: int) -> Spelling:
        ids = tuple(self._tokenizer.text_to_ids(text[start:end]))
        per_char = len(ids) / (end - start)
        words = [
            SpelledWord(a, b, round((a - start) * per_char), round((b - start) * per_char))
            for a, b in word_spans(text, start, end)
        ]
        return Spelling(ids, tuple(words))

    def _symbols(self, char: str) -> list[int]:
        """Ids of one phoneme character: itself, else its decomposed parts; what the voice lacks is left out."""
        if char in self._vocabulary:
            return [self._vocabulary[char]]
        return [self._vocabulary[part] for part in unicodedata.normalize("NFD", char) if part in self._vocabulary]

    def _framed(self, symbols: list[int]) -> tuple[int, ...]:
        tokenizer = self._tokenizer
        ids = tokenizer.intersperse_blank_char(symbols) if tokenizer.add_blank else symbols
        return tuple(tokenizer.pad_with_bos_eos(ids) if tokenizer.use_eos_bos else ids)

    def _words(self, spans: list[tuple[int, int]], symbol_owners: list[int]) -> Iterator[SpelledWord]:
        """A word's sound reaches over the blank after its last symbol; a word without symbols has no length."""
        position = self._offset
        for index, (start, end) in enumerate(spans):
            own = [place for place, owner in enumerate(symbol_owners) if owner == index]
            first = self._offset + self._stride * own[0] if own else position
            position = self._offset + self._stride * (own[-1] + 1) if own else position
            yield SpelledWord(start, end, first, position)


def _with_marks(clause: Clause, clause_owners: list[int], *, first: bool) -> Iterator[tuple[str, int]]:
    """Clauses are joined by a space, and each ends with its mark, as the voices were trained."""
    if not first:
        yield " ", NO_WORD
    yield from zip(clause.phonemes, clause_owners, strict=True)
    for char in clause.terminator:
        yield char, NO_WORD


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """Offsets of the sentences; together they cover all clauses."""
    spans: list[tuple[int, int]] = []
    begin: int | None = None
    for start, end, mark in split_clauses(text):
        for part_start, part_end in _bounded(text, start, end):
            begin = part_start if begin is None else begin
            if mark in {".", "!", "?"} or part_end - begin >= SENTENCE_CHARS or part_end < end:
                spans.append((begin, part_end))
                begin = None
    if begin is not None:
        spans.append((begin, len(text)))
    return spans


def _bounded(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Cut what has no punctuation for very long at its spaces."""
    while end - start > 2 * SENTENCE_CHARS:
        space = text.rfind(" ", start + 1, start + 2 * SENTENCE_CHARS)
        cut = space if space > start else start + 2 * SENTENCE_CHARS
        yield start, cut
        start = cut
    yield start, end
