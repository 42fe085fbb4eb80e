"""How often our endpointing cuts a speaker off, against how long it makes one wait: the curve, on the pause set.

`python -m benchmarks.endpointing [--corpus FOLDER] [--limit N] [--llm FOLDER] [--fresh]` writes
`benchmarks/results/endpointing.json` and prints its summary. Each clip of the pause set is heard once by the real ear
(Silero), Smart Turn and Whisper, and what Whisper wrote is read by the chat model; what they said of every pause is
kept in temporary files. The policy of `turns/endpointing.py` is then replayed over it, with the chat model and without.
A pause is cut where the delay is shorter than the silence the ear measured. Every other clip is held out: the policy's
numbers were chosen on the rest, but for those of the chat model, which docs/decisions/0009 cross-validates.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import anyio
import numpy as np

from benchmarks import pause_set
from benchmarks.next_tokens import sentence_ends
from benchmarks.pause_set import PauseClip, put_pauses, read_labelled, read_sources
from duolog.adapters.faster_whisper_asr import FasterWhisperRecognizer
from duolog.adapters.silero_vad import SileroVad
from duolog.adapters.smart_turn import SmartTurn
from duolog.loadtest.audio_files import to_pcm16
from duolog.ports.asr import TranscriptionRequest
from duolog.session.engines import CallOptions
from duolog.session.listening import Ear
from duolog.turns.activity import SAMPLES_PER_MS, ActivityOptions, VoiceEventKind
from duolog.turns.endpointing import (
    DEFAULT_RULE,
    EndpointingRule,
    Patience,
    PauseEvidence,
    SpeakerHabit,
    endpoint_delay_ms,
    is_worth_reading,
)

ROOT = Path(__file__).resolve().parent.parent
RESULT = ROOT / "benchmarks" / "results" / "endpointing.json"
MODELS = ROOT / ".duolog" / "models"
CORPUS = Path(os.environ.get("DUOLOG_CORPUS", ROOT.parent / "shared" / "corpus"))
FRAME = 512
JUDGE_AFTER_MS = CallOptions().judge_after_ms
NEVER_MS = 3_000
MATCH_S = 0.35
"""A pause of the ear belongs to a gap that begins this close to it."""
FIXED_MS = (200, 300, 400, 500, 600, 700, 800, 1_000, 1_200, 1_500)
FACTORS = (0.6, 0.8, 1.0, 1.25, 1.5, 2.0)


@dataclass(frozen=True, slots=True)
class Pause:
    """One pause, as the ear and the models perceived it."""

    at_s: float
    silence_ms: int | None
    """Until the voice came again; None: the turn's end."""
    inserted: bool
    probability: float | None
    """None: it was over before the model was asked."""
    text: str
    sentence_end: float | None = None
    """By the chat model; None: it was not asked."""


@dataclass(frozen=True, slots=True)
class Heard:
    """One clip and its pauses, in order."""

    file: str
    language: str
    gaps: int
    pauses: tuple[Pause, ...]
    labels: dict[str, bool]
    """Seconds → complete, where people labelled the clip."""


Decide = Callable[[PauseEvidence, SpeakerHabit], int]


class Listener:
    """Hears clips with the real models."""

    def __init__(self, models: Path) -> None:
        self._turn = SmartTurn(models / "smart-turn-v3.2")
        self._recognizer = FasterWhisperRecognizer(models / "whisper-base")

    async def aclose(self) -> None:
        await self._turn.aclose()
        await self._recognizer.aclose()

    async def hear(self, clip: PauseClip) -> Heard:
        ear = Ear(SileroVad(), ActivityOptions(endpoint_ms=NEVER_MS), pause_set.RATE_HZ, 300)
        samples, pauses = to_pcm16(clip.samples), list[Pause]()
        began: int | None = None
        until_now, probability = np.zeros(0, np.float32), None
        for start in range(0, len(samples) - FRAME + 1, FRAME):
            for event in ear.hear(samples[start : start + FRAME], 0.0):
                if event.kind is VoiceEventKind.PAUSE:
                    began, until_now, probability = event.at_sample, ear.utterance("").samples, None
                elif event.kind is not VoiceEventKind.CONFIRMED and began is not None:
                    over = event.at_sample if event.kind is VoiceEventKind.ONSET else None
                    text = await self._text(until_now, clip.language)
                    pauses.append(_pause(clip, began, over, probability, text))
                    began = None
                elif event.kind is VoiceEventKind.ONSET:
                    ear.begin_utterance(event.at_sample)
                if event.kind in (VoiceEventKind.ENDPOINT, VoiceEventKind.FADED):
                    ear.end_utterance()
            if began is not None and probability is None and ear.activity.silence_ms >= JUDGE_AFTER_MS:
                probability = await self._turn.probability(ear.utterance("").samples)
        return Heard(clip.file, clip.language, len(clip.gaps), tuple(pauses), dict(clip.labels))

    async def _text(self, samples: pause_set.Sound, language: str) -> str:
        return (await self._recognizer.transcribe([TranscriptionRequest(samples, language)]))[0].text


def _pause(clip: PauseClip, began: int, over: int | None, probability: float | None, text: str) -> Pause:
    at_s = began / pause_set.RATE_HZ
    silence_ms = None if over is None else (over - began) // SAMPLES_PER_MS
    inserted = silence_ms is not None and any(
        abs(at_s - gap.start_s) <= MATCH_S and silence_ms >= 500 * gap.length_s for gap in clip.gaps
    )
    return Pause(round(at_s, 3), silence_ms, inserted, probability, text)


async def hear_all(clips: Iterable[PauseClip], models: Path) -> list[Heard]:
    listener, heard = Listener(models), list[Heard]()
    try:
        for clip in clips:
            heard.append(await listener.hear(clip))
            print(f"  {len(heard)} {clip.file}", flush=True)
    finally:
        await listener.aclose()
    return heard


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a policy did on some clips."""

    inserted: int
    cut: int
    natural: int
    natural_cut: int
    end_delays_ms: tuple[int, ...]
    cuts: tuple[str, ...]

    def row(self) -> dict[str, object]:
        delays = self.end_delays_ms
        return {
            "pauses": self.inserted,
            "cut_percent": round(100 * self.cut / max(1, self.inserted), 1),
            "natural_pauses": self.natural,
            "natural_cut_percent": round(100 * self.natural_cut / max(1, self.natural), 1),
            "turn_ends": len(delays),
            "delay_median_ms": round(statistics.median(delays)),
            "delay_mean_ms": round(statistics.mean(delays)),
            "delay_p90_ms": round(float(np.percentile(delays, 90))),
        }


def replay(heard: Sequence[Heard], decide: Decide) -> Outcome:
    """Every pause of every clip, each clip a new speaker. A cut clip goes on: every pause is judged."""
    cut = natural = natural_cut = 0
    delays: list[int] = []
    cuts: list[str] = []
    for clip in heard:
        habit = SpeakerHabit()
        for pause in clip.pauses:
            delay = decide(evidence_of(clip, pause), habit)
            if pause.silence_ms is None:
                delays.append(delay)
                continue
            was_cut = delay <= pause.silence_ms
            (habit.was_cut if was_cut else habit.went_on)(pause.silence_ms)
            if pause.inserted:
                cut += was_cut
                cuts += [f"{clip.file}: {pause.text[-40:]!r} ({delay} of {pause.silence_ms} ms)"] if was_cut else []
            else:
                natural, natural_cut = natural + 1, natural_cut + was_cut
    inserted = sum(clip.gaps for clip in heard)
    return Outcome(inserted, cut, natural, natural_cut, tuple(delays), tuple(cuts))


def evidence_of(clip: Heard, pause: Pause) -> PauseEvidence:
    """Once everybody has answered; the chat model is asked only where a call would ask it."""
    evidence = PauseEvidence(pause.probability, pause.text, clip.language)
    return replace(evidence, sentence_end=pause.sentence_end) if is_worth_reading(evidence) else evidence


def read_all(heard: Iterable[Heard], llm: Path, *, fresh: bool) -> list[Heard]:
    """The same with what the chat model says of each pause."""
    clips = list(heard)
    pauses = [(clip, pause) for clip in clips for pause in clip.pauses]
    texts = [pause.text for clip, pause in pauses if is_worth_reading(evidence_of(clip, pause))]
    known = sentence_ends(texts, llm, fresh=fresh)
    return [
        replace(clip, pauses=tuple(replace(pause, sentence_end=known.get(pause.text)) for pause in clip.pauses))
        for clip in clips
    ]


def policy(
    rule: EndpointingRule = DEFAULT_RULE,
    factor: float = 1.0,
    *,
    model: bool = True,
    text: bool = True,
    reader: bool = True,
) -> Decide:
    """Ours; without the end-of-turn model, the text or the chat model for comparison."""
    patience = Patience(round(300 * factor), round(2_500 * factor), factor)

    def decide(evidence: PauseEvidence, habit: SpeakerHabit) -> int:
        known = replace(evidence, probability=evidence.probability if model else None)
        known = known if reader else replace(known, sentence_end=None)
        if not text:
            known = replace(known, text="It is a sentence.", language="en", sentence_end=None)
        return endpoint_delay_ms(known, patience, habit, rule)

    return decide


def fixed(silence_ms: int) -> Decide:
    return lambda _evidence, _habit: silence_ms


def report(heard: Sequence[Heard]) -> dict[str, object]:
    plain = [clip for clip in heard if not clip.labels]
    parts = {"tuned_on": plain[::2], "held_out": plain[1::2], "all": plain}
    parts |= {language: [clip for clip in plain if clip.language == language] for language in ("en", "zh")}
    parts = {name: part for name, part in parts.items() if part}
    ours = {name: replay(part, policy()) for name, part in parts.items()}
    return {
        "clips": len(plain),
        "ours": {name: outcome.row() for name, outcome in ours.items()},
        "without_chat_model": {name: replay(part, policy(reader=False)).row() for name, part in parts.items()},
        "ours_scaled": curve(plain, reader=True),
        "without_chat_model_scaled": curve(plain, reader=False),
        "fixed_silence_ms": {str(silence): replay(plain, fixed(silence)).row() for silence in FIXED_MS},
        "without_model": replay(plain, policy(model=False)).row(),
        "without_text": replay(plain, policy(text=False)).row(),
        "labelled": list(_labelled(heard)),
        "rule": asdict(DEFAULT_RULE),
        "cuts": list(ours["all"].cuts),
    }


def curve(heard: Sequence[Heard], *, reader: bool) -> dict[str, object]:
    """Cuts against delay, as everything is scaled."""
    return {str(factor): replay(heard, policy(factor=factor, reader=reader)).row() for factor in FACTORS}


def _labelled(heard: Sequence[Heard]) -> Iterator[dict[str, object]]:
    """People's own judgement of a pause, beside our delay there."""
    decide = policy()
    for clip in heard:
        for at, complete in clip.labels.items():
            pause = min(clip.pauses, key=lambda one: abs(one.at_s - float(at)), default=None)
            if pause is None:
                continue
            delay = decide(evidence_of(clip, pause), SpeakerHabit())
            yield {"file": clip.file, "at_s": pause.at_s, "complete": complete, "delay_ms": delay}


def remembered(path: Path) -> list[Heard] | None:
    if not path.is_file():
        return None
    rows: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return [Heard(**(row | {"pauses": tuple(Pause(**pause) for pause in row["pauses"])})) for row in rows]


def memory_path(corpus: Path, limit: int | None) -> Path:
    made_by = (Path(pause_set.__file__).read_bytes(), str(corpus), str(limit))
    digest = hashlib.sha256(repr(made_by).encode()).hexdigest()[:12]
    return Path(tempfile.gettempdir()) / f"duolog-endpointing-{digest}.json"


def clips_of(corpus: Path, limit: int | None) -> Iterator[PauseClip]:
    for source in read_sources(corpus, MODELS / "whisper-base", limit):
        clip = put_pauses(source)
        if clip is not None:
            yield clip
    yield from read_labelled(corpus)


def main(arguments: Iterable[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, default=CORPUS)
    parser.add_argument("--limit", type=int, help="only the first recordings")
    parser.add_argument("--llm", type=Path, default=MODELS / "smollm2-135m", help="folder of the chat model")
    parser.add_argument("--fresh", action="store_true", help="hear and read everything again")
    options = parser.parse_args(arguments if arguments is None else list(arguments))
    memory = memory_path(options.corpus, options.limit)
    heard = None if options.fresh else remembered(memory)
    if heard is None:
        heard = anyio.run(hear_all, clips_of(options.corpus, options.limit), MODELS)
        memory.write_text(json.dumps([asdict(one) for one in heard], ensure_ascii=False), encoding="utf-8")
    heard = read_all(heard, options.llm, fresh=options.fresh)
    result = report(heard) | {"chat_model": options.llm.name}
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    RESULT.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(json.dumps({key: value for key, value in result.items() if key != "cuts"}, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
