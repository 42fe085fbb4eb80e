"""Text to phonemes by libespeak-ng in this process, as a Coqui phonemizer."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from pathlib import Path

import espeakng_loader
from TTS.tts.utils.text import phonemizers
from TTS.tts.utils.text.phonemizers.base import BasePhonemizer

from duolog.adapters.espeak_library import VOICE_NAMES, known_languages, shared_library

_CLOSERS = "\"”’')\\]»"
_CLAUSE_BREAK = re.compile(
    rf"[.,;:!?…]+[{_CLOSERS}]*(?=\s|$)"  # Western marks break only before a space: 3.5, 10:30 and U.S.A stay whole.
    r"|\s+[—–-]+(?:\s+|$)|—+"
    r"|[。！？，；：、]+"
)
_CANONICAL = str.maketrans("…—–。！？，；：、", ".,,.!?,;:,")
_ABBREVIATION = re.compile(r"\b(?:Mr|Mrs|Ms|Dr|Prof|St|Jr|Sr|vs|No|Mt|Gen|Lt|Col|Capt|Rev|Hon)$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Clause:
    """One clause of a text and how it is spoken."""

    text_start: int
    text_end: int
    """Character offsets into the text, end exclusive, closing punctuation included."""
    phonemes: str
    """IPA; spaces where espeak-ng sees words, which may join words of the text (`ʌvðə`) or split them."""
    terminator: str
    """One of `.,;:!?`, or empty."""


class EspeakPhonemizer(BasePhonemizer):  # type: ignore[misc] # Coqui ships no types.
    """Coqui phonemizer named `espeak`: clauses are kept, each with one closing mark, as Piper's voices were trained."""

    def __init__(self, language: str, punctuations: str = "!,.:;?", *, keep_puncs: bool = True) -> None:
        super().__init__(VOICE_NAMES.get(language, language), punctuations=punctuations, keep_puncs=keep_puncs)

    @staticmethod
    def name() -> str:
        return "espeak"

    @classmethod
    def is_available(cls) -> bool:
        return Path(espeakng_loader.get_library_path()).exists()

    def version(self) -> str:
        return shared_library().version

    @staticmethod
    def supported_languages() -> list[str]:
        return known_languages()

    def is_supported_language(self, language: str) -> bool:
        return shared_library().has_voice(language)

    def phonemize(self, text: str, separator: str = "", language: str | None = None) -> str:
        """The whole text: clauses with their closing marks, joined by spaces."""
        language = VOICE_NAMES.get(language, language) if language else self.language
        clauses = self.clauses(text, separator=separator, language=language)
        return " ".join(clause.phonemes + (clause.terminator if self._keep_puncs else "") for clause in clauses)

    def clauses(self, text: str, *, separator: str = "", language: str | None = None) -> list[Clause]:
        """The clauses that have something to say, in order."""
        spans = [(start, end, mark) for start, end, mark in split_clauses(text) if _has_sound(text[start:end])]
        return [
            Clause(start, end, self._phonemize(text[start:end], separator, language), mark)
            for start, end, mark in spans
        ]

    def word(self, text: str) -> str:
        """How one word is spoken on its own."""
        return _spoken_word(text, self.language)

    def _phonemize(self, text: str, separator: str = "", language: str | None = None) -> str:
        return shared_library().phonemes(text, language or self.language, separator)


def register_with_coqui() -> None:
    """Make Coqui's tokenizers use this class wherever a model's configuration says `espeak`. Idempotent."""
    phonemizers._register_phonemizers()
    phonemizers.PHONEMIZERS[EspeakPhonemizer.name()] = EspeakPhonemizer


def split_clauses(text: str) -> list[tuple[int, int, str]]:
    """(start, end, closing mark) of each clause; together they cover the text."""
    clauses: list[tuple[int, int, str]] = []
    start = 0
    for match in _CLAUSE_BREAK.finditer(text):
        if _is_abbreviation_dot(text, match):
            continue
        clauses.append((start, match.end(), _closing_mark(match.group())))
        start = match.end()
    if text[start:].strip():
        clauses.append((start, len(text), ""))
    return clauses


def _is_abbreviation_dot(text: str, match: re.Match[str]) -> bool:
    if match.group() != ".":
        return False
    following = text[match.end() :].lstrip()[:1]
    return following.islower() or bool(following and _ABBREVIATION.search(text, match.start() - 5, match.start()))


def _closing_mark(run: str) -> str:
    canonical = run.strip().translate(_CANONICAL)
    for mark in "?!":
        if mark in canonical:
            return mark
    return canonical[0] if canonical[0] in ".,;:" else ","


def _has_sound(text: str) -> bool:
    return any(char.isalnum() for char in text)


@functools.lru_cache(maxsize=4096)
def _spoken_word(text: str, language: str) -> str:
    return shared_library().phonemes(text, language)
