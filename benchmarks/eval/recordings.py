"""The corpus through the real stack: what is understood, what is heard in noise, whether who thinks is cut off."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import anyio
import numpy as np
from numpy.typing import NDArray
from websockets.asyncio.client import connect

from benchmarks.asr import Clip, errors, read_corpus
from benchmarks.pause_set import PauseClip
from duolog.loadtest.audio_files import to_pcm16
from duolog.loadtest.failures import CallFailed
from duolog.loadtest.pacing import FRAME_SAMPLES, cut_frames
from duolog.loadtest.wire_client import Call, CallOptions, place_call
from duolog.loadtest.wire_text import Message, microphone_frame, parse_message, text_field

RATE_HZ = 16_000
AT_ONCE = 3
"""Calls at the same time, none of which is answered: the machine must keep up with speaking pace."""
SETTLE_S = 2.0
"""Longer than any silence that a turn of the corpus waits for after its sound."""
BABBLE = frozenset({"babble"})
"""Kinds of noise in which people do speak."""
MANUAL = {"audio": {"input": {"turn_detection": None}}}
TRANSCRIPTION = "conversation.item.input_audio_transcription"
TRANSCRIPT_PATIENCE_S = 60.0
PERSONAS = {"en": "bench-semantic", "zh": "bench-zh"}
AFTER_GAP_S = 0.15
"""A decision in the last moment of a gap arrives after it."""


@dataclass(frozen=True, slots=True)
class Recognition:
    file: str
    language: str
    wrong: int
    total: int


@dataclass(frozen=True, slots=True)
class NoiseHeard:
    file: str
    babble: bool
    transcripts: tuple[str, ...]
    answers: int


@dataclass(frozen=True, slots=True)
class PausesHeard:
    file: str
    gaps: int
    cuts: int
    """Gaps in which the turn was called over."""
    delay_ms: float | None
    """From the last voiced sample to the end of the turn; None: it had ended before, or never did."""


@dataclass(slots=True)
class Events:
    """What came in one call, with the time."""

    seen: list[tuple[float, Message]] = field(default_factory=list)

    def note(self, message: Message) -> None:
        self.seen.append((anyio.current_time(), message))

    def times(self, kind: str) -> list[float]:
        return [at_s for at_s, message in self.seen if text_field(message, "type") == kind]

    def texts(self, kind: str, name: str) -> tuple[str, ...]:
        return tuple(text_field(message, name) for _, message in self.seen if text_field(message, "type") == kind)


async def recognise(url: str, corpus: Path, limit: int | None) -> list[Recognition]:
    """Every clip that is fit for it, spoken by hand (no turn detection), in calls of its own language."""
    results: list[Recognition] = []
    for language, persona in PERSONAS.items():
        clips = [clip for clip in read_corpus(corpus, None) if clip.scored and clip.language == language][:limit]
        for clip in clips:
            text = await _transcript(url, persona, clip.samples)
            counted = errors(clip, text)
            results.append(Recognition(clip.file, language, counted.wrong, counted.total))
    return results


async def _transcript(url: str, persona: str, samples: NDArray[np.float32]) -> str:
    """What the server makes of a recording that is sent as fast as it takes it: without a microphone's pace."""
    async with connect(f"{url}/v1/realtime?model={persona}&duolog=1", proxy=None) as socket:
        await socket.send(json.dumps({"type": "session.update", "session": {"type": "realtime", **MANUAL}}))
        for number, frame in enumerate(cut_frames(to_pcm16(samples))):
            await socket.send(microphone_frame(number, frame))
        await socket.send(json.dumps({"type": "input_audio_buffer.commit"}))
        with anyio.move_on_after(TRANSCRIPT_PATIENCE_S):
            async for message in socket:
                event = parse_message(message) if isinstance(message, str) else {}
                if text_field(event, "type").startswith(f"{TRANSCRIPTION}.completed"):
                    return text_field(event, "transcript")
                if text_field(event, "type") in (f"{TRANSCRIPTION}.failed", "error"):
                    return ""
    return ""


async def listen_to_noise(
    url: str, corpus: Path, kinds: dict[str, Sequence[str]], limit: int | None
) -> list[NoiseHeard]:
    """Every clip in which nobody speaks, at speaking pace, in a call that answers turns."""
    clips = [clip for clip in read_corpus(corpus, None) if clip.language is None][:limit]
    results: list[NoiseHeard] = []

    async def one(clip: Clip) -> None:
        events = Events()
        async with place_call(CallOptions(url, "bench-semantic"), events.note) as call:
            await _speak(call, to_pcm16(clip.samples))
        said = events.texts(f"{TRANSCRIPTION}.completed", "transcript")
        babble = not BABBLE.isdisjoint(kinds.get(clip.file, ()))
        answers = len(events.times("response.created"))
        results.append(NoiseHeard(clip.file, babble, tuple(filter(None, said)), answers))

    await _few_at_a_time([partial(one, clip) for clip in clips])
    return sorted(results, key=lambda result: result.file)


async def pause_and_think(url: str, clips: Sequence[PauseClip], eagerness: str) -> list[PausesHeard]:
    """Each clip of the pause set at speaking pace; answers are not asked for, so that nobody talks into it."""
    detection = {"type": "semantic_vad", "eagerness": eagerness, "create_response": False}
    session = {"audio": {"input": {"turn_detection": detection}}}
    results: list[PausesHeard] = []

    async def one(clip: PauseClip) -> None:
        events = Events()
        async with place_call(CallOptions(url, PERSONAS[clip.language], session=session), events.note) as call:
            first = len(call.sent) * FRAME_SAMPLES
            await _speak(call, to_pcm16(clip.samples), settle_s=0.3)
            results.append(_pauses_of(clip, events, call, first))

    await _few_at_a_time([partial(one, clip) for clip in clips])
    return sorted(results, key=lambda result: result.file)


def _pauses_of(clip: PauseClip, events: Events, call: Call, first: int) -> PausesHeard:
    last_voiced_s = call.log.turns[-1].last_voiced_s
    ends = events.times("input_audio_buffer.committed")
    spans = [
        (call.sent.time_of_sample(first + round(gap.start_s * RATE_HZ)), gap.length_s + AFTER_GAP_S)
        for gap in clip.gaps
    ]
    cuts = sum(any(start <= end <= start + length for end in ends) for start, length in spans)
    after = [end for end in ends if last_voiced_s is not None and end > last_voiced_s]
    delay_ms = (after[0] - last_voiced_s) * 1000 if after and last_voiced_s is not None else None
    return PausesHeard(clip.file, len(clip.gaps), cuts, delay_ms)


async def _speak(call: Call, samples: NDArray[np.int16], settle_s: float = SETTLE_S) -> None:
    """The clips of the pause set bring the silence after them along."""
    call.speak(samples, "clip")
    await call.pause(len(samples) / RATE_HZ + settle_s)


async def _few_at_a_time(jobs: Sequence[Callable[[], Awaitable[None]]]) -> None:
    limiter = anyio.CapacityLimiter(AT_ONCE)

    async def run(job: Callable[[], Awaitable[None]]) -> None:
        async with limiter:
            try:
                await job()
            except CallFailed as failure:
                print(f"  left out: {failure}")

    async with anyio.create_task_group() as tasks:
        for job in jobs:
            tasks.start_soon(run, job)
