"""What the recognizer gains from batches, and what they cost: 1, 2, 4 and 8 utterances at a time.

`python -m benchmarks.recognizer [--model FOLDER] [--corpus FOLDER] [--clips N] [--rounds N] [--device cpu|cuda]` writes
`benchmarks/results/recognizer.json` and prints a table. `encoder` and `decoder` time one forward pass of each over the
same utterances, all padded to the longest; `burst` sends all of them at once through the scheduler that calls use, so
that it shows what callers wait. Each round measures every size once; the fastest round counts.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import anyio
import ctranslate2
import numpy as np
from faster_whisper import WhisperModel
from numpy.typing import NDArray

from benchmarks.asr import CORPUS, ROOT, Clip, read_corpus
from duolog.adapters.faster_whisper_asr import FasterWhisperRecognizer
from duolog.adapters.whisper_window import HOP_SAMPLES, PADDING_FRAMES, SPARE_TOKENS, TOKENS_PER_S
from duolog.ports.asr import TranscriptionRequest
from duolog.serving.recognizer import Recognizer
from duolog.serving.recognizer_batch import BatchLimits

RESULT = ROOT / "benchmarks" / "results" / "recognizer.json"
SIZES = (1, 2, 4, 8)
CLIP_S = (2.0, 8.0)
PROMPT = "<|startoftranscript|>", "<|en|>", "<|transcribe|>", "<|notimestamps|>"
COMPUTE_TYPE = {"cpu": "int8", "cuda": "auto"}


@dataclass(frozen=True, slots=True)
class Stages:
    """Milliseconds of one utterance."""

    encoder_ms: float
    decoder_ms: float

    @property
    def total_ms(self) -> float:
        return self.encoder_ms + self.decoder_ms


@dataclass(frozen=True, slots=True)
class Burst:
    """All utterances at once."""

    took_s: float
    waits_s: tuple[float, ...]
    texts: tuple[str, ...]


class BareModel:
    """Encoder and decoder alone, on fixed windows."""

    def __init__(self, model_dir: Path, clips: Sequence[Clip], device: str) -> None:
        loaded = WhisperModel(str(model_dir), device=device, compute_type=COMPUTE_TYPE[device], cpu_threads=1)
        self._model = loaded.model
        self._prompt = [loaded.hf_tokenizer.token_to_id(token) for token in PROMPT]
        heard = [loaded.feature_extractor(clip.samples, padding=HOP_SAMPLES) for clip in clips]
        frames = max(features.shape[1] for features in heard) + PADDING_FRAMES
        self._windows = np.zeros((len(heard), heard[0].shape[0], frames + frames % 2), np.float32)
        for window, features in zip(self._windows, heard, strict=True):
            window[:, : features.shape[1]] = features
        self._max_length = (
            len(self._prompt) + SPARE_TOKENS + TOKENS_PER_S * round(max(clip.duration_s for clip in clips))
        )

    def measure(self, size: int) -> Stages:
        """Every utterance once, `size` at a time."""
        encoder_s = decoder_s = 0.0
        for start in range(0, len(self._windows), size):
            began = time.perf_counter()
            encoded = self._encode(self._windows[start : start + size])
            encoder_s += time.perf_counter() - began
            began = time.perf_counter()
            self._model.generate(encoded, [self._prompt] * encoded.shape[0], beam_size=1, max_length=self._max_length)
            decoder_s += time.perf_counter() - began
        return Stages(1000 * encoder_s / len(self._windows), 1000 * decoder_s / len(self._windows))

    def _encode(self, windows: NDArray[np.float32]) -> ctranslate2.StorageView:
        return self._model.encode(ctranslate2.StorageView.from_array(np.ascontiguousarray(windows)))


async def burst(engine: FasterWhisperRecognizer, clips: Sequence[Clip], size: int) -> Burst:
    """Every utterance is a call of its own, and all of them end at the same moment."""
    recognizer = Recognizer(engine, limits=BatchLimits(size))
    waits, texts = [0.0] * len(clips), [""] * len(clips)

    async def call(number: int) -> None:
        transcript = await recognizer.transcribe(str(number), TranscriptionRequest(clips[number].samples, "en"))
        waits[number] = time.perf_counter() - began
        texts[number] = transcript.text if transcript is not None else ""

    async with anyio.create_task_group() as service:
        service.start_soon(recognizer.run)
        began = time.perf_counter()
        async with anyio.create_task_group() as calls:
            for number in range(len(clips)):
                calls.start_soon(call, number)
        took_s = time.perf_counter() - began
        service.cancel_scope.cancel()
    return Burst(took_s, tuple(waits), tuple(texts))


async def measure(clips: Sequence[Clip], model_dir: Path, device: str, rounds: int) -> list[dict[str, object]]:
    bare = BareModel(model_dir, clips, device)
    engine = FasterWhisperRecognizer(model_dir, threads=1, device=device, compute_type=COMPUTE_TYPE[device])
    await engine.warm_up()
    bare.measure(max(SIZES))
    stages: dict[int, list[Stages]] = {size: [] for size in SIZES}
    bursts: dict[int, list[Burst]] = {size: [] for size in SIZES}
    for number in range(rounds):
        for size in SIZES:
            stages[size].append(bare.measure(size))
            bursts[size].append(await burst(engine, clips, size))
        print(f"  round {number + 1} of {rounds}", flush=True)
    await engine.aclose()
    fastest = {size: min(found, key=lambda stage: stage.total_ms) for size, found in stages.items()}
    return rows(fastest, {size: min(found, key=lambda each: each.took_s) for size, found in bursts.items()})


def rows(stages: dict[int, Stages], bursts: dict[int, Burst]) -> list[dict[str, object]]:
    """One row a size; throughput is given as a multiple of one at a time."""
    alone, alone_burst = stages[SIZES[0]], bursts[SIZES[0]]
    return [
        {
            "size": size,
            **{name: round(value, 1) for name, value in asdict(stage).items()},
            "throughput": round(alone.total_ms / stage.total_ms, 2),
            "burst_s": round(bursts[size].took_s, 2),
            "burst_throughput": round(alone_burst.took_s / bursts[size].took_s, 2),
            "burst_wait_ms": {name: round(1000 * of(bursts[size].waits_s)) for name, of in SPREAD.items()},
            "texts_changed": sum(a != b for a, b in zip(alone_burst.texts, bursts[size].texts, strict=True)),
        }
        for size, stage in stages.items()
    ]


SPREAD: dict[str, Callable[[Sequence[float]], float]] = {"first": min, "median": statistics.median, "last": max}


def table(found: Sequence[dict[str, object]]) -> str:
    names = [name for name in found[0] if name != "burst_wait_ms"]
    lines = ["| " + " | ".join(names) + " | burst_wait_ms |", "|" + "---|" * (len(names) + 1)]
    return "\n".join(
        lines + [f"| {' | '.join(str(row[name]) for name in names)} | {row['burst_wait_ms']} |" for row in found]
    )


def main(arguments: Iterable[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=ROOT / ".duolog" / "models" / "whisper-base")
    parser.add_argument("--corpus", type=Path, default=CORPUS)
    parser.add_argument("--device", choices=COMPUTE_TYPE, default="cpu")
    parser.add_argument("--clips", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(arguments if arguments is None else list(arguments))
    spoken = [clip for clip in read_corpus(options.corpus, None) if clip.language == "en" and clip.scored]
    clips = [clip for clip in spoken if CLIP_S[0] <= clip.duration_s <= CLIP_S[1]][: options.clips]
    found = anyio.run(measure, clips, options.model, options.device, options.rounds)
    report = {
        "clips": len(clips),
        "audio_s": round(sum(clip.duration_s for clip in clips), 1),
        "device": options.device,
        "machine": {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count()},
        "sizes": found,
    }
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    RESULT.write_text(json.dumps(report, indent=1) + "\n")
    print(table(found))


if __name__ == "__main__":
    main()
