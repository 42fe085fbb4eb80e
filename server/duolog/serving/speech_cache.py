"""Phrases that recur (greetings, apologies, first words), as they were spoken: sound and word timings, exactly.

Every phrase is remembered in this process; the other processes are given a phrase when it recurs.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

from duolog.audio.formats import INT16_SCALE, float_to_int16
from duolog.ports.tts import SpeechChunk, SpeechRequest, Voice, WordTiming
from duolog.ports.voice_choice import voice_for
from duolog.serving.tiered_cache import Level, TieredCache

MAX_CHARS = 200
"""Longer phrases do not recur."""
KNOWN_PHRASES = 4_096
"""Whose recurrence is noticed."""
_HEADER = struct.Struct("<BI")
_VERSION = 1


class SpeechCache:
    """Shared by all calls of a process."""

    def __init__(self, tiers: TieredCache, engine: str) -> None:
        """`engine` tells apart what speaks differently under the same voice ids."""
        self._tiers = tiers
        self._engine = engine
        self._known: OrderedDict[str, bool] = OrderedDict()
        """Phrases spoken here → the other processes were given it."""

    def key(self, request: SpeechRequest, voices: Sequence[Voice]) -> str | None:
        """Of everything that decides the sound; None: not to be cached."""
        voice = voice_for(voices, request.voice, request.language)
        if voice is None or len(request.text) > MAX_CHARS:
            return None
        spoken = [self._engine, voice.id, request.voice, request.language, request.speed, voice.sample_rate_hz]
        canonical = json.dumps([*spoken, request.text], separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()

    async def find(self, key: str) -> tuple[SpeechChunk, ...] | None:
        """Waits a few milliseconds for the store at most."""
        found = await self._tiers.find(key, decode)
        if found is None:
            return None
        if found.level is Level.REDIS:
            self._note(key, shared=True)
        elif not self._known.get(key):
            self._note(key, shared=True)
            self._tiers.share(key)
        return found.value

    def keep(self, key: str, chunks: Sequence[SpeechChunk]) -> None:
        """A phrase that was spoken to its end. Returns at once. One without sound is not kept."""
        if not chunks or len({chunk.sample_rate_hz for chunk in chunks}) > 1:
            return
        recurs = key in self._known
        self._note(key, shared=recurs)
        self._tiers.keep(key, encode(chunks), shared=recurs)

    def _note(self, key: str, *, shared: bool) -> None:
        self._known[key] = shared
        self._known.move_to_end(key)
        if len(self._known) > KNOWN_PHRASES:
            self._known.popitem(last=False)


def encode(chunks: Sequence[SpeechChunk]) -> bytes:
    """Version and length of the description, the description as JSON, then PCM16 little-endian. All of one rate."""
    parts = [
        [len(chunk.samples), [[w.text_start, w.text_end, w.start_sample, w.end_sample] for w in chunk.words]]
        for chunk in chunks
    ]
    description = json.dumps([chunks[0].sample_rate_hz, parts], separators=(",", ":")).encode()
    sound = np.concatenate([float_to_int16(chunk.samples) for chunk in chunks])
    return _HEADER.pack(_VERSION, len(description)) + description + sound.astype("<i2").tobytes()


def decode(stored: bytes) -> tuple[SpeechChunk, ...]:
    """Raises ValueError where it is none of ours."""
    try:
        version, length = _HEADER.unpack_from(stored)
        if version != _VERSION:
            raise ValueError("not speech of this version")
        rate_hz, parts = json.loads(stored[_HEADER.size : _HEADER.size + length])
        sound = np.frombuffer(stored, "<i2", offset=_HEADER.size + length).astype(np.float32) / np.float32(INT16_SCALE)
        ends = np.cumsum([int(count) for count, _ in parts])
        if not parts or ends[-1] != len(sound):
            raise ValueError("its sound is cut short")
        timings = [tuple(WordTiming(*map(int, word)) for word in words) for _, words in parts]
    except (struct.error, TypeError) as error:
        raise ValueError("not speech") from error
    return tuple(
        SpeechChunk(samples, int(rate_hz), words)
        for samples, words in zip(np.split(sound, ends[:-1]), timings, strict=True)
    )
