"""Text to phonemes by libespeak-ng in this process, as a Coqui phonemizer.

The library and its data come from the wheel `espeakng-loader`, so that no program is started for a phrase and no root
install is needed. libespeak-ng keeps global state: every call to it is made under one lock.
"""

from __future__ import annotations

import ctypes
import functools
import re
import threading
from dataclasses import dataclass
from pathlib import Path

import espeakng_loader
from TTS.tts.utils.text import phonemizers
from TTS.tts.utils.text.phonemizers.base import BasePhonemizer

from duolog.ports.errors import ConfigurationError

OUTPUT_RETRIEVAL = 1
DONT_EXIT = 0x8000
TEXT_IS_UTF8 = 1
PHONEMES_AS_IPA = 0x02
SEPARATOR_SHIFT = 8
"""Figures of espeak-ng's `speak_lib.h`."""

COQUI_LANGUAGES = {"en": "en-us", "zh-cn": "cmn", "zh": "cmn"}
"""Coqui's language codes that espeak-ng knows by another name."""

_LANGUAGE_SWITCH = re.compile(r"\([a-z-]+\)")
"""espeak-ng marks words it reads in another language, as in `(en)fˈʊtbɔːl(fr)`."""

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


class EspeakLibrary:
    """The bound shared library. One per process: see `shared_library`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._voice = ""
        try:
            self._lib = ctypes.CDLL(espeakng_loader.get_library_path())
        except OSError as error:
            raise ConfigurationError(
                f"libespeak-ng of the package espeakng-loader does not load ({error}); reinstall espeakng-loader."
            ) from error
        self._lib.espeak_TextToPhonemes.restype = ctypes.c_char_p
        self._lib.espeak_TextToPhonemes.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_int, ctypes.c_int]
        self._lib.espeak_Info.restype = ctypes.c_char_p
        data_path = espeakng_loader.get_data_path()
        if self._lib.espeak_Initialize(OUTPUT_RETRIEVAL, 0, data_path.encode(), DONT_EXIT) <= 0:
            raise ConfigurationError(
                f"libespeak-ng does not accept its data in {Path(data_path).name}; reinstall espeakng-loader."
            )

    @property
    def version(self) -> str:
        return str(self._lib.espeak_Info(None).decode().split()[0])

    def has_voice(self, language: str) -> bool:
        with self._lock:
            return self._select(language)

    def phonemes(self, text: str, language: str, separator: str = "") -> str:
        """IPA of one clause; where espeak-ng splits it further, the parts are joined by a space."""
        mode = PHONEMES_AS_IPA | (ord(separator) << SEPARATOR_SHIFT if separator else 0)
        buffer = ctypes.create_string_buffer(text.replace("\0", " ").encode())
        position = ctypes.c_void_p(ctypes.addressof(buffer))
        parts: list[str] = []
        with self._lock:
            self._select(language)
            while position.value:
                spoken = self._lib.espeak_TextToPhonemes(ctypes.byref(position), TEXT_IS_UTF8, mode)
                parts.append((spoken or b"").decode())
        return " ".join(_LANGUAGE_SWITCH.sub("", " ".join(parts)).split())

    def _select(self, language: str) -> bool:
        if language != self._voice:
            if self._lib.espeak_SetVoiceByName(language.encode()) != 0:
                return False
            self._voice = language
        return True


@functools.cache
def shared_library() -> EspeakLibrary:
    """The library, loaded on first use. Raises ConfigurationError where the wheel is damaged."""
    return EspeakLibrary()


class EspeakPhonemizer(BasePhonemizer):  # type: ignore[misc] # Coqui ships no types.
    """Coqui phonemizer named `espeak`: clauses are kept, each with one closing mark, as Piper's voices were trained."""

    def __init__(self, language: str, punctuations: str = "!,.:;?", *, keep_puncs: bool = True) -> None:
        super().__init__(COQUI_LANGUAGES.get(language, language), punctuations=punctuations, keep_puncs=keep_puncs)

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
        voices = (Path(espeakng_loader.get_data_path()) / "lang").rglob("*")
        return sorted(path.name.lower() for path in voices if path.is_file())

    def is_supported_language(self, language: str) -> bool:
        return shared_library().has_voice(language)

    def phonemize(self, text: str, separator: str = "", language: str | None = None) -> str:
        """The whole text: clauses with their closing marks, joined by spaces."""
        language = COQUI_LANGUAGES.get(language, language) if language else self.language
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
