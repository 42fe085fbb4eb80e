"""libespeak-ng in this process: phonemes for other voices, and sound of its own.

The library and its data come from the wheel `espeakng-loader`, so that no program is started for a phrase and no root
install is needed. libespeak-ng keeps global state (voice, position in the text, callback): every call is made under one
lock. It is opened for synchronous output, in which phonemes and sound do not disturb each other; what it calls
"retrieval" runs a thread of its own behind the lock and mixes the two.
"""

from __future__ import annotations

import ctypes
import functools
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import espeakng_loader
import numpy as np
from numpy.typing import NDArray

from duolog.ports.errors import ConfigurationError

SAMPLE_RATE_HZ = 22_050

OUTPUT_SYNCHRONOUS = 2
DONT_EXIT = 0x8000
TEXT_IS_UTF8 = 1
POSITION_IN_CHARACTERS = 1
PARAMETER_RATE = 1
EVENT_LIST_END, EVENT_WORD = 0, 1
PHONEMES_AS_IPA = 0x02
SEPARATOR_SHIFT = 8
"""Figures of espeak-ng's `speak_lib.h`."""

VOICE_NAMES = {"en": "en-us", "zh-cn": "cmn", "zh": "cmn"}
"""Language codes that espeak-ng knows by another name."""

_LANGUAGE_SWITCH = re.compile(r"\([a-z-]+\)")
"""espeak-ng marks words it reads in another language, as in `(en)fˈʊtbɔːl(fr)`."""


@dataclass(frozen=True, slots=True)
class WordMark:
    """Where espeak-ng begins a word. It may split a word of the text (`3.5`) or join two (`of the`)."""

    text_offset: int
    """In characters."""
    sample: int


@dataclass(frozen=True, slots=True)
class EspeakSound:
    samples: NDArray[np.int16]
    """Shape (n,), mono, 22,050 Hz."""
    marks: tuple[WordMark, ...]


class _Event(ctypes.Structure):
    """`espeak_EVENT`; of its last member, a union, only the size matters."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("unique_identifier", ctypes.c_uint),
        ("text_position", ctypes.c_int),
        ("length", ctypes.c_int),
        ("audio_position", ctypes.c_int),
        ("sample", ctypes.c_int),
        ("user_data", ctypes.c_void_p),
        ("id", ctypes.c_char * 8),
    )


_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.POINTER(_Event))

if TYPE_CHECKING:
    _Samples = ctypes._Pointer[ctypes.c_short]
    _Events = ctypes._Pointer[_Event]


class _Recording:
    """Collects what the library hands out while it speaks one text."""

    def __init__(self, stopped: Callable[[], bool]) -> None:
        self._stopped = stopped
        self._pieces: list[NDArray[np.int16]] = []
        self._marks: list[WordMark] = []

    def receive(self, samples: _Samples, count: int, events: _Events) -> int:
        """Of the library's callback: 1 ends the synthesis."""
        if samples and count > 0:
            self._pieces.append(np.ctypeslib.as_array(samples, (count,)).copy())
        number = 0
        while (event := events[number]).type != EVENT_LIST_END:
            if event.type == EVENT_WORD:
                self._marks.append(WordMark(event.text_position - 1, event.sample))
            number += 1
        return int(self._stopped())

    def sound(self) -> EspeakSound:
        return EspeakSound(np.concatenate([np.zeros(0, np.int16), *self._pieces]), tuple(self._marks))


class EspeakLibrary:
    """The bound shared library. One per process: see `shared_library`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._voice = ""
        self._recording = _Recording(lambda: True)
        self._callback = _CALLBACK(self._receive)
        """Kept here: the library holds a bare pointer to it."""
        try:
            self._lib = ctypes.CDLL(espeakng_loader.get_library_path())
        except OSError as error:
            raise ConfigurationError(
                f"libespeak-ng of the package espeakng-loader does not load ({error}); reinstall espeakng-loader."
            ) from error
        self._lib.espeak_TextToPhonemes.restype = ctypes.c_char_p
        self._lib.espeak_TextToPhonemes.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_int, ctypes.c_int]
        self._lib.espeak_Synth.argtypes = [
            *(ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint, ctypes.c_int, ctypes.c_uint, ctypes.c_uint),
            *(ctypes.c_void_p, ctypes.c_void_p),
        ]
        self._lib.espeak_Info.restype = ctypes.c_char_p
        data_path = espeakng_loader.get_data_path()
        if self._lib.espeak_Initialize(OUTPUT_SYNCHRONOUS, 0, data_path.encode(), DONT_EXIT) != SAMPLE_RATE_HZ:
            raise ConfigurationError(
                f"libespeak-ng does not accept its data in {Path(data_path).name}; reinstall espeakng-loader."
            )
        self._lib.espeak_SetSynthCallback(self._callback)

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

    def speak(self, text: str, voice_name: str, words_per_min: int, stopped: Callable[[], bool]) -> EspeakSound:
        """The whole text's sound, about a thousandth of its length later. `stopped` is asked every 60 ms of sound.

        Raises RuntimeError where the library refuses.
        """
        encoded = text.replace("\0", " ").encode()
        with self._lock:
            if not self._select(voice_name):
                raise RuntimeError(f"espeak-ng has no voice {voice_name!r}")
            self._lib.espeak_SetParameter(PARAMETER_RATE, words_per_min, 0)
            self._recording = _Recording(stopped)
            status = self._lib.espeak_Synth(
                encoded, len(encoded) + 1, 0, POSITION_IN_CHARACTERS, 0, TEXT_IS_UTF8, None, None
            )
            if status != 0:
                raise RuntimeError(f"espeak-ng answered {status}")
            return self._recording.sound()

    def _receive(self, samples: _Samples, count: int, events: _Events) -> int:
        return self._recording.receive(samples, count, events)

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


def known_languages() -> list[str]:
    """Names of the languages espeak-ng's data has, lower case, sorted."""
    voices = (Path(espeakng_loader.get_data_path()) / "lang").rglob("*")
    return sorted(path.name.lower() for path in voices if path.is_file())
