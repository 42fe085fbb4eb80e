"""How long a phrase takes to speak, on one thread: ONNX Runtime in pieces against torch, by number of words.

`python -m benchmarks.tts [--voice FOLDER] [--repeats N]` writes `benchmarks/results/tts.json` and prints a table.
`whole_graph` is the same exported graph run in one go: what the first piece would cost without cutting.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import asdict, dataclass
from pathlib import Path

import anyio
import numpy as np
import onnxruntime
from TTS.config import load_config

from duolog.adapters.coqui_spelling import Speller
from duolog.adapters.coqui_tts import CoquiSynthesizer
from duolog.ports.tts import SpeechRequest

ROOT = Path(__file__).resolve().parent.parent
RESULT = ROOT / "benchmarks" / "results" / "tts.json"
PHRASES = (
    "Sure.",
    "That sounds good.",
    "I am here with you.",
    "Sure, I can help with that.",
    "I was thinking about that this morning.",
    "The best way to learn it is to start small and keep going.",
    "Well, it depends on what you like, but most people say that the old town by the river is where you should begin.",
)


@dataclass(frozen=True, slots=True)
class Spread:
    p50: float
    p90: float
    min: float


@dataclass(frozen=True, slots=True)
class Run:
    engine: str
    words: int
    audio_s: float
    first_chunk_ms: Spread
    total_ms: Spread
    real_time_factor: float
    """Total time over length of the sound, medians."""


def spread(values_s: list[float]) -> Spread:
    ordered = sorted(value * 1000 for value in values_s)
    p90 = ordered[min(len(ordered) - 1, int(0.9 * len(ordered)))]
    return Spread(round(statistics.median(ordered), 1), round(p90, 1), round(ordered[0], 1))


async def measure_engine(name: str, voice: Path, repeats: int) -> list[Run]:
    engine = CoquiSynthesizer({"voice": voice}, threads=1, use_onnx=name == "onnx")
    try:
        await engine.warm_up()
        return [await measure_phrase(engine, name, text, repeats) for text in PHRASES]
    finally:
        await engine.aclose()


async def measure_phrase(engine: CoquiSynthesizer, name: str, text: str, repeats: int) -> Run:
    firsts, totals, lengths = [], [], []
    for _ in range(repeats):
        begin, first, samples = time.perf_counter(), 0.0, 0
        async with aclosing(engine.synthesize(SpeechRequest(text, voice="voice", language="en"))) as chunks:
            async for chunk in chunks:
                first = first or time.perf_counter() - begin
                samples += len(chunk.samples)
        firsts.append(first)
        totals.append(time.perf_counter() - begin)
        lengths.append(samples / engine.voices()[0].sample_rate_hz)
    return run_of(name, text, lengths, firsts, totals)


def measure_whole_graph(voice: Path, repeats: int) -> list[Run]:
    config = load_config(str(voice / "config.json"))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(voice / "model.onnx"), options, providers=["CPUExecutionProvider"])
    speller, scales = Speller(config), np.array([0.667, 1.0, 0.8], dtype=np.float32)
    return [whole_graph_run(session, speller, scales, text, repeats) for text in PHRASES]


def whole_graph_run(
    session: onnxruntime.InferenceSession, speller: Speller, scales: np.ndarray, text: str, repeats: int
) -> Run:
    sentences = [
        {"input": np.array([spelling.ids]), "input_lengths": np.array([len(spelling.ids)]), "scales": scales}
        for spelling in speller.spell(text)
    ]
    lengths: list[float] = []

    def speak() -> None:
        sounds = [session.run(["output"], feeds) for feeds in sentences]
        lengths.append(sum(sound[0].size for sound in sounds) / 22_050)

    totals = [timed(speak) for _ in range(repeats)]
    return run_of("whole_graph", text, lengths, totals, totals)


def timed(work: Callable[[], None]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def run_of(name: str, text: str, lengths: list[float], firsts: list[float], totals: list[float]) -> Run:
    audio_s = statistics.median(lengths)
    factor = statistics.median(totals) / audio_s
    return Run(name, len(text.split()), round(audio_s, 2), spread(firsts), spread(totals), round(factor, 3))


def table(runs: list[Run]) -> str:
    lines = [
        "| engine | words | sound s | first chunk ms p50 (min) | all ms p50 (min) | × real time |",
        "|---|---|---|---|---|---|",
    ]
    for run in runs:
        first, total = run.first_chunk_ms, run.total_ms
        lines.append(
            f"| {run.engine} | {run.words} | {run.audio_s} | {first.p50} ({first.min}) "
            f"| {total.p50} ({total.min}) | {run.real_time_factor} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--voice", type=Path, default=ROOT / ".duolog" / "models" / "joe")
    parser.add_argument("--repeats", type=int, default=9)
    options = parser.parse_args()
    runs = anyio.run(measure_engine, "onnx", options.voice, options.repeats)
    runs += measure_whole_graph(options.voice, options.repeats)
    runs += anyio.run(measure_engine, "torch", options.voice, options.repeats)
    machine = {
        "cpus": os.cpu_count(),
        "machine": platform.machine(),
        "load": round(os.getloadavg()[0], 1),
        "threads": 1,
    }
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    RESULT.write_text(json.dumps({"machine": machine, "runs": [asdict(run) for run in runs]}, indent=2) + "\n")
    print(table(runs))


if __name__ == "__main__":
    main()
