"""The pause set: recorded sentences into which silence was put where a word ends, as a speaker would who thinks.

A boundary is where Whisper's alignment ends a word, moved to the quietest place nearby; never after a sentence's end,
where stopping to listen is right. The silence is noise with the level and spectrum of the clip's own quietest stretch.
Everything is drawn with a seed made of the file's name: the same corpus gives the same set.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from faster_whisper import WhisperModel
from numpy.typing import NDArray

from duolog.audio.levels import quietest_point
from duolog.loadtest.audio_files import read_speech

RATE_HZ = 16_000
PAUSE_S = (0.3, 1.5)
TAIL_S = 3.2
"""Silence after the last word: longer than any delay."""
SHORTEST_CLIP_S, LONGEST_CLIP_S = 1.9, 17.0
LONG_CLIP_S = 4.0
"""From this length on a clip gets two pauses."""
BEFORE_S, AFTER_S = 0.7, 0.4
"""Speech that must stand before and after a pause."""
SEARCH_S = 0.06
FADE_SAMPLES = 80
NOISE_SAMPLES = RATE_HZ // 5
LOUDEST_NOISE = 0.01
"""Where a clip has no quiet stretch, its noise is turned down to this."""
SENTENCE_ENDS = tuple(".?!。？！")
Sound = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Word:
    text: str
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Source:
    """A recording whose words are known."""

    file: str
    language: str
    samples: NDArray[np.float32]
    words: tuple[Word, ...]


@dataclass(frozen=True, slots=True)
class Gap:
    """Silence that was put in, in seconds of the finished clip."""

    start_s: float
    length_s: float
    before: str
    """The word before it."""


@dataclass(frozen=True, slots=True)
class PauseClip:
    file: str
    language: str
    samples: NDArray[np.float32]
    gaps: tuple[Gap, ...] = ()
    labels: Mapping[str, bool] = field(default_factory=dict)
    """Seconds → whether the turn was complete there, as people judged it."""


def read_sources(corpus: Path, model_dir: Path, limit: int | None) -> Iterator[Source]:
    """Recordings of sentences that fit, aligned by Whisper."""
    model = WhisperModel(str(model_dir), device="cpu", compute_type="int8", cpu_threads=1)
    rows = [json.loads(line) for line in (corpus / "corpus.jsonl").read_text(encoding="utf-8").splitlines()]
    fit = [row for row in rows if _fits(row)]
    for row in sorted(fit, key=lambda row: str(row["file"]))[:limit]:
        samples = read_speech(corpus / str(row["file"])).astype(np.float32) / np.float32(32_768)
        language = "en" if row["language"] == "en" else "zh"
        segments, _ = model.transcribe(samples, language=language, beam_size=1, temperature=0.0, word_timestamps=True)
        words = [Word(word.word.strip(), word.start, word.end) for segment in segments for word in segment.words or ()]
        yield Source(str(row["file"]), language, samples, tuple(words))


def _fits(row: dict[str, Any]) -> bool:
    labelled = row.get("turn_complete") is not None or row.get("turn_events") or row.get("segments")
    same_voice_again = "weatherlike." in str(row["file"]) and not str(row["file"]).endswith("weatherlike.wav")
    lasts = SHORTEST_CLIP_S <= float(row["duration_s"]) <= LONGEST_CLIP_S
    return row["language"] is not None and lasts and not labelled and not same_voice_again


def put_pauses(source: Source) -> PauseClip | None:
    """The source with one or two pauses; None where it has no place for one."""
    draw = np.random.default_rng(zlib.crc32(source.file.encode()))
    places = _places(source, draw)
    if not places:
        return None
    noise = ComfortNoise(source.samples, draw)
    pieces: list[NDArray[np.float32]] = []
    gaps: list[Gap] = []
    begin, added = 0, 0
    for place, word in places:
        length = int(draw.uniform(*PAUSE_S) * RATE_HZ)
        gaps.append(Gap((place + added) / RATE_HZ, length / RATE_HZ, word.text))
        pieces += [_faded(source.samples[begin:place]), noise.draw(length)]
        begin, added = place, added + length
    pieces += [_faded(source.samples[begin:]), noise.draw(int(TAIL_S * RATE_HZ))]
    return PauseClip(source.file, source.language, np.concatenate(pieces), tuple(gaps))


def read_labelled(corpus: Path) -> Iterator[PauseClip]:
    """Clips whose pauses people judged, as they are, with silence after them."""
    for line in (corpus / "corpus.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        labels = {str(event["t"]): bool(event["complete"]) for event in row.get("turn_events") or ()}
        if row.get("turn_complete") is not None:
            labels[str(row["duration_s"])] = bool(row["turn_complete"])
        if row.get("segments"):
            labels |= {str(segment["end"]): segment is row["segments"][-1] for segment in row["segments"]}
        if not labels:
            continue
        samples = read_speech(corpus / str(row["file"])).astype(np.float32) / np.float32(32_768)
        noise = ComfortNoise(samples, np.random.default_rng(zlib.crc32(str(row["file"]).encode())))
        sound = np.concatenate([_faded(samples), noise.draw(int(TAIL_S * RATE_HZ))])
        yield PauseClip(str(row["file"]), str(row["language"]), sound, labels=labels)


def _places(source: Source, draw: np.random.Generator) -> list[tuple[int, Word]]:
    first, last = source.words[0].start_s if source.words else 0.0, source.words[-1].end_s if source.words else 0.0
    fit = [
        word
        for word in source.words[:-1]
        if first + BEFORE_S <= word.end_s <= last - AFTER_S and not word.text.endswith(SENTENCE_ENDS)
    ]
    wanted = 2 if last - first >= LONG_CLIP_S else 1
    chosen = _spread(fit, wanted, draw)
    return [(_quiet_place(source.samples, word.end_s), word) for word in chosen]


def _spread(words: Sequence[Word], wanted: int, draw: np.random.Generator) -> list[Word]:
    """At most `wanted` of them, in order, one second apart."""
    chosen: list[Word] = []
    for index in draw.permutation(len(words)):
        word = words[int(index)]
        if len(chosen) < wanted and all(abs(word.end_s - other.end_s) >= 1.0 for other in chosen):
            chosen.append(word)
    return sorted(chosen, key=lambda word: word.end_s)


def _quiet_place(samples: NDArray[np.float32], at_s: float) -> int:
    start = max(0, int((at_s - SEARCH_S) * RATE_HZ))
    end = min(len(samples), int((at_s + SEARCH_S) * RATE_HZ))
    return quietest_point(samples, start, end, RATE_HZ // 50)


class ComfortNoise:
    """Noise like a clip's own quietest stretch."""

    def __init__(self, samples: NDArray[np.float32], draw: np.random.Generator) -> None:
        middle = quietest_point(samples, 0, len(samples), NOISE_SAMPLES)
        quiet = samples[middle - NOISE_SAMPLES // 2 : middle + NOISE_SAMPLES // 2].astype(np.float64)
        level = float(np.sqrt(np.mean(np.square(quiet)))) or 1e-5
        self._magnitude = np.abs(np.fft.rfft(quiet)) + 1e-9
        self._level = min(level, LOUDEST_NOISE)
        self._draw = draw

    def draw(self, length: int) -> NDArray[np.float32]:
        """`length` samples."""
        bins = np.linspace(0, len(self._magnitude) - 1, length // 2 + 1)
        magnitude = np.interp(bins, np.arange(len(self._magnitude)), self._magnitude)
        phases = np.exp(2j * np.pi * self._draw.random(len(magnitude)))
        sound = np.fft.irfft(magnitude * phases, length)
        scaled = sound * (self._level / (float(np.sqrt(np.mean(np.square(sound)))) or 1.0))
        return scaled.astype(np.float32)


def _faded(samples: NDArray[np.float32]) -> NDArray[np.float32]:
    """5 ms in and out, so that a cut does not click."""
    faded = samples.copy()
    ramp = np.linspace(0.0, 1.0, min(FADE_SAMPLES, len(faded)), dtype=np.float32)
    faded[: len(ramp)] *= ramp
    faded[len(faded) - len(ramp) :] *= ramp[::-1]
    return faded
