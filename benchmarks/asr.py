"""Speed and accuracy of our recogniser beside `faster_whisper.transcribe`, on recorded speech and on noise.

`python -m benchmarks.asr [--model FOLDER] [--corpus FOLDER] [--limit N]` writes `benchmarks/results/asr.json` and
prints its summary. Both get the same weights, one thread, the language, beam 1, temperature 0, clip by clip in turn.
Latency is the median over clips of 2 to 12 s; errors are counted over every clip that is fit for it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import anyio
import jiwer
import numpy as np
import opencc  # type: ignore[import-untyped]
from faster_whisper import WhisperModel
from numpy.typing import NDArray
from whisper_normalizer.english import EnglishTextNormalizer  # type: ignore[import-untyped]

from duolog.adapters.faster_whisper_asr import FasterWhisperRecognizer
from duolog.adapters.silero_vad import SileroVad
from duolog.loadtest.audio_files import read_speech
from duolog.ports.asr import Transcript, TranscriptionRequest
from duolog.ports.vad import WINDOW_SAMPLES
from duolog.session.gate import evidence_of
from duolog.turns.activity import ActivityOptions, VoiceActivity
from duolog.turns.hallucination import DropReason, Evidence, judge

ROOT = Path(__file__).resolve().parent.parent
RESULT = ROOT / "benchmarks" / "results" / "asr.json"
CORPUS = Path(os.environ.get("DUOLOG_CORPUS", ROOT.parent / "shared" / "corpus"))
TIMED_S = (2.0, 12.0)
RESAMPLES = 10_000
ENGLISH = EnglishTextNormalizer()
SIMPLIFIED = opencc.OpenCC("t2s")


@dataclass(frozen=True, slots=True)
class Clip:
    file: str
    samples: NDArray[np.float32]
    language: str | None
    """None: nobody speaks."""
    transcript: str
    scored: bool

    @property
    def duration_s(self) -> float:
        return len(self.samples) / 16_000


@dataclass(frozen=True, slots=True)
class Heard:
    """One engine's result for one clip."""

    text: str
    wall_s: float
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Pair:
    clip: Clip
    stock: Heard
    ours: Heard
    transcript: Transcript
    drop: DropReason | None


@dataclass(frozen=True, slots=True)
class Errors:
    wrong: int
    total: int


class Stock:
    """faster-whisper as its documentation uses it."""

    def __init__(self, model_dir: Path) -> None:
        self._model = WhisperModel(str(model_dir), device="cpu", compute_type="int8", cpu_threads=1)

    def hear(self, clip: Clip) -> Heard:
        began, began_cpu = time.perf_counter(), time.process_time()
        segments, _ = self._model.transcribe(clip.samples, language=clip.language or "en", beam_size=1, temperature=0.0)
        text = " ".join(segment.text.strip() for segment in segments)
        return Heard(text, time.perf_counter() - began, time.process_time() - began_cpu)


async def measure(clips: Sequence[Clip], model_dir: Path) -> list[Pair]:
    """Both engines on every clip, in turn."""
    stock, ours, pairs = Stock(model_dir), FasterWhisperRecognizer(model_dir), []
    await ours.warm_up()
    stock.hear(clips[0])
    for number, clip in enumerate(clips):
        theirs = stock.hear(clip)
        began, began_cpu = time.perf_counter(), time.process_time()
        transcript = (await ours.transcribe([TranscriptionRequest(clip.samples, clip.language or "en")]))[0]
        heard = Heard(transcript.text, time.perf_counter() - began, time.process_time() - began_cpu)
        pairs.append(Pair(clip, theirs, heard, transcript, judge(evidence_for(clip, transcript))))
        if number % 10 == 9:
            print(f"  {number + 1} of {len(clips)} clips", flush=True)
    await ours.aclose()
    return pairs


def evidence_for(clip: Clip, transcript: Transcript) -> Evidence:
    """What a call knows about a transcript: the voice detector heard the same audio."""
    vad, activity = SileroVad(), VoiceActivity(ActivityOptions(endpoint_ms=60_000))
    padded = np.pad(clip.samples, (0, -len(clip.samples) % WINDOW_SAMPLES))
    for window in padded.reshape(-1, WINDOW_SAMPLES):
        activity.feed(vad.probability(window), WINDOW_SAMPLES)
    return evidence_of(transcript, activity.voiced_ms)


def errors(clip: Clip, text: str) -> Errors:
    """Word errors, character errors where Chinese is spoken; after normalisation of both sides."""
    alignment = jiwer.process_words(_normal(clip, clip.transcript), _normal(clip, text))
    wrong = alignment.substitutions + alignment.deletions + alignment.insertions
    return Errors(wrong, alignment.hits + alignment.substitutions + alignment.deletions)


def _normal(clip: Clip, text: str) -> str:
    if clip.language == "en":
        return str(ENGLISH(text))
    return " ".join(re.sub(r"\W", "", SIMPLIFIED.convert(text)).lower())


def error_report(pairs: Sequence[Pair]) -> dict[str, object]:
    """Error rates of both in percent, and a paired bootstrap interval of their difference over clips."""
    stock = np.array([(e.wrong, e.total) for e in (errors(pair.clip, pair.stock.text) for pair in pairs)])
    ours = np.array([(e.wrong, e.total) for e in (errors(pair.clip, pair.ours.text) for pair in pairs)])
    picks = np.random.default_rng(7).integers(0, len(pairs), (RESAMPLES, len(pairs)))
    words = stock[picks, 1].sum(axis=1)
    differences = 100 * (ours[picks, 0].sum(axis=1) - stock[picks, 0].sum(axis=1)) / words
    low, high = np.percentile(differences, (2.5, 97.5))
    return {
        "clips": len(pairs),
        "reference_words": int(stock[:, 1].sum()),
        "stock_percent": round(100 * stock[:, 0].sum() / stock[:, 1].sum(), 2),
        "ours_percent": round(100 * ours[:, 0].sum() / stock[:, 1].sum(), 2),
        "difference_points": round(100 * (ours[:, 0].sum() - stock[:, 0].sum()) / stock[:, 1].sum(), 2),
        "difference_95_percent": [round(float(low), 2), round(float(high), 2)],
    }


def latency_report(pairs: Sequence[Pair], shortest_s: float, longest_s: float) -> dict[str, object]:
    """Wall and processor time of clips so long; the latter holds on a machine that does other things, too."""
    timed = [pair for pair in pairs if shortest_s <= pair.clip.duration_s < longest_s]
    looks = {number: sum(pair.transcript.looks == number for pair in timed) for number in (1, 2, 3)}
    report: dict[str, object] = {"clips": len(timed), "looks": looks}
    for kind in ("wall_s", "cpu_s"):
        stock = statistics.median(getattr(pair.stock, kind) for pair in timed)
        ours = statistics.median(getattr(pair.ours, kind) for pair in timed)
        name = kind.removesuffix("_s")
        report[name] = {
            "stock_ms": round(stock * 1000),
            "ours_ms": round(ours * 1000),
            "ratio": round(ours / stock, 3),
            "ours_p90_ms": round(float(np.percentile([getattr(pair.ours, kind) for pair in timed], 90)) * 1000),
        }
    return report


def gate_report(noise: Sequence[Pair], speech: Sequence[Pair]) -> dict[str, object]:
    """Texts for clips in which nobody speaks, and what the gate takes away from those who do."""
    passed = [pair for pair in noise if pair.transcript.text and pair.drop is None]
    return {
        "noise_clips": len(noise),
        "stock_texts": sum(bool(pair.stock.text) for pair in noise),
        "our_texts_before_gate": sum(bool(pair.transcript.text) for pair in noise),
        "phantoms": {pair.clip.file: pair.transcript.text for pair in passed},
        "drops": {reason: sum(pair.drop is reason for pair in noise) for reason in DropReason},
        "speech_clips": len(speech),
        "speech_dropped": {pair.clip.file: str(pair.drop) for pair in speech if pair.drop is not None},
    }


def read_corpus(folder: Path, limit: int | None) -> list[Clip]:
    rows = [json.loads(line) for line in (folder / "corpus.jsonl").read_text().splitlines()]
    used = [row for row in rows if row["wer_ok"] or row["language"] is None]
    return [_clip(folder, row) for row in used[:limit]]


def _clip(folder: Path, row: dict[str, object]) -> Clip:
    samples = read_speech(folder / str(row["file"])).astype(np.float32) / np.float32(32_768)
    spoken = row["language"]
    language = None if spoken is None else "en" if spoken == "en" else "zh"
    return Clip(str(row["file"]), samples, language, str(row["transcript"] or ""), bool(row["wer_ok"]))


def summarise(pairs: Sequence[Pair]) -> dict[str, object]:
    speech = [pair for pair in pairs if pair.clip.scored]
    return {
        "latency": latency_report(speech, *TIMED_S),
        "latency_of_short_clips": latency_report(speech, 0.0, TIMED_S[0]),
        "wer_english": error_report([pair for pair in speech if pair.clip.language == "en"]),
        "cer_chinese": error_report([pair for pair in speech if pair.clip.language == "zh"]),
        "gate": gate_report([pair for pair in pairs if pair.clip.language is None], speech),
        "machine": {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count()},
        "clips": [_row(pair) for pair in pairs],
    }


def _row(pair: Pair) -> dict[str, object]:
    scored = {
        "stock_errors": errors(pair.clip, pair.stock.text).wrong,
        "our_errors": errors(pair.clip, pair.ours.text).wrong,
    }
    return {
        "file": pair.clip.file,
        "duration_s": round(pair.clip.duration_s, 2),
        "stock_ms": round(pair.stock.wall_s * 1000),
        "ours_ms": round(pair.ours.wall_s * 1000),
        **(scored if pair.clip.scored else {}),
        **{key: value for key, value in asdict(pair.transcript).items() if key != "text"},
        "drop": pair.drop,
    }


def main(arguments: Iterable[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=ROOT / ".duolog" / "models" / "whisper-base")
    parser.add_argument("--corpus", type=Path, default=CORPUS)
    parser.add_argument("--limit", type=int, help="only the first clips")
    options = parser.parse_args(arguments if arguments is None else list(arguments))
    report = summarise(anyio.run(measure, read_corpus(options.corpus, options.limit), options.model))
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    RESULT.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n")
    print(json.dumps({key: value for key, value in report.items() if key != "clips"}, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
