"""A conversation written as a script: a caller with a voice of noise, scripted engines, everything the call says."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import anyio
import numpy as np
from numpy.typing import NDArray

from duolog.adapters.memory_store import MemorySessionStore
from duolog.adapters.scripted_asr import Script, ScriptedRecognizer, count_aloud
from duolog.adapters.scripted_llm import Line, ScriptedLanguageModel, ScriptedOptions
from duolog.adapters.scripted_tts import ScriptedSynthesizer
from duolog.adapters.scripted_vad import ScriptedVad
from duolog.personas import Endpointing, Persona, TurnTaking
from duolog.ports.llm import Sampling
from duolog.ports.turn_detector import TurnDetector
from duolog.serving.batcher import Batcher
from duolog.serving.load_limits import LoadLimits
from duolog.serving.policies.slo import SloPolicy
from duolog.serving.prompt_cache import PromptCache
from duolog.serving.recognizer import Recognizer
from duolog.serving.sentence_judge import AskOptions, SentenceEnd, SentenceJudge
from duolog.serving.session_writer import SessionWriter
from duolog.serving.synthesizer import Synthesizer
from duolog.serving.turn_judge import TurnJudge
from duolog.session.call import Call
from duolog.session.control import PlayoutReport
from duolog.session.engines import CallOptions, Engines
from duolog.session.events import AudioDelta, CallEvent, PlayoutFlush, ResponseDone, StateChanged
from duolog.session.switchboard import CallRequest, Switchboard

RATE_HZ = 16_000
FRAME_S = 0.02
HOLD_AFTER_S = 0.4
"""The page lowers the answer while the call says `hearing`, and holds it after this long."""
T = TypeVar("T")


class TestClock:
    """The loop's own time as wall clock."""

    __test__ = False

    def unix_time(self) -> float:
        return anyio.current_time()


def persona(**changes: object) -> Persona:
    fields: dict[str, object] = {
        "id": "ava",
        "version": "0",
        "name": "Ava",
        "languages": ("en",),
        "instructions": "Be kind.",
        "greeting": "Hello there, friend.",
        "apology": "Sorry, my mind went blank.",
        "voice": "scripted",
        "sampling": Sampling(max_tokens=400),
        "turn_taking": TurnTaking(endpointing=Endpointing.SILENCE, silence_ms=500),
    }
    return Persona(**(fields | changes))  # type: ignore[arg-type]


@dataclass
class Caller:
    """One client: speaks, keeps silent, listens, and plays what it hears in real time."""

    call: Call
    events: list[tuple[float, CallEvent]] = field(default_factory=list)
    plays: bool = True
    """Reports its playout as the page does."""
    floor: int = 0
    _played: dict[int, float] = field(default_factory=dict)
    """Generation → the player's clock at its first sample."""
    _lowered_at: float | None = None
    _held_s: float = 0.0
    _noise: np.random.Generator = field(default_factory=lambda: np.random.default_rng(1))
    _changed: anyio.Event = field(default_factory=anyio.Event)

    async def listen(self) -> None:
        async for event in self.call.events():
            self.events.append((anyio.current_time(), event))
            self._obey(event)
            self._changed.set()
            self._changed = anyio.Event()

    async def report(self) -> None:
        """The page's playout reports, every 100 ms."""
        while True:
            await anyio.sleep(0.1)
            for generation in list(self._played):
                self.tell_played(generation)

    async def say(self, seconds: float) -> None:
        await self._send(seconds, 0.3)

    async def pause(self, seconds: float) -> None:
        await self._send(seconds, 0.0)

    async def wait_for(self, kind: type[T], count: int = 1, *, timeout_s: float = 60.0) -> T:
        """Keep silent until the `count`-th event of a kind; the audio goes on as a microphone's would."""
        with anyio.fail_after(timeout_s):
            while len(self.of(kind)) < count:
                await self.pause(FRAME_S)
        return self.of(kind)[count - 1]

    async def hear(self, kind: type[T], count: int = 1, *, timeout_s: float = 60.0) -> T:
        """Wait for the `count`-th event of a kind without sending anything."""
        with anyio.fail_after(timeout_s):
            while len(self.of(kind)) < count:
                await self._changed.wait()
        return self.of(kind)[count - 1]

    async def wait_for_state(self, state: str, *, timeout_s: float = 60.0) -> None:
        with anyio.fail_after(timeout_s):
            while not (self.of(StateChanged) and self.of(StateChanged)[-1].state == state):
                await self.pause(FRAME_S)

    def of(self, kind: type[T]) -> list[T]:
        return [event for _, event in self.events if isinstance(event, kind)]

    def when(self, event: CallEvent) -> float:
        return next(time for time, one in self.events if one is event)

    def names(self) -> list[str]:
        """Kinds of events in order, each run of one kind once, without audio and bookkeeping."""
        quiet = {"AudioDelta", "StateChanged", "PlayoutHeard", "TurnTimings", "SpeechAnnounced", "SessionCreated"}
        names = [type(event).__name__ for _, event in self.events if type(event).__name__ not in quiet]
        return [name for number, name in enumerate(names) if number == 0 or names[number - 1] != name]

    def answers(self) -> list[str]:
        return [item.text for done in self.of(ResponseDone) for item in done.response.items]

    def samples_of(self, generation: int) -> int:
        return sum(len(event.samples) for event in self.of(AudioDelta) if event.generation == generation)

    def tell_played(self, generation: int, *, ended: bool = False) -> None:
        sent, started = self.samples_of(generation), self._played[generation]
        played = min(sent, int((self.player_s - started) * 24_000))
        over = ended or (played >= sent and any(d.response.id for d in self.of(ResponseDone)))
        if self.plays:
            self.call.report_playout(PlayoutReport(generation, played, ended=over))

    def _obey(self, event: CallEvent) -> None:
        if isinstance(event, AudioDelta):
            assert event.generation >= self.floor, "stale audio left the call"
            self._played.setdefault(event.generation, self.player_s)
        elif isinstance(event, StateChanged):
            self._lower(event.state == "hearing")
        elif isinstance(event, PlayoutFlush):
            self.floor = event.generation
            for generation in [one for one in self._played if one < event.generation]:
                self.tell_played(generation, ended=True)
                del self._played[generation]

    @property
    def player_s(self) -> float:
        """Clock of the loudspeaker, which stands still while the answer is held."""
        return anyio.current_time() - self._held_s - self._holding_s

    @property
    def _holding_s(self) -> float:
        if self._lowered_at is None:
            return 0.0
        return max(0.0, anyio.current_time() - self._lowered_at - HOLD_AFTER_S)

    def _lower(self, lowered: bool) -> None:
        if lowered and self._lowered_at is None:
            self._lowered_at = anyio.current_time()
        elif not lowered:
            self._held_s += self._holding_s
            self._lowered_at = None

    async def _send(self, seconds: float, amplitude: float) -> None:
        for _ in range(round(seconds / FRAME_S)):
            noise = self._noise.standard_normal(int(RATE_HZ * FRAME_S)) * amplitude * 10_000
            await self.call.append_audio(noise.astype(np.int16))
            await anyio.sleep(FRAME_S)


@dataclass
class World:
    """The shared engines of a process and its switchboard."""

    asr: ScriptedRecognizer
    llm: ScriptedLanguageModel
    batcher: Batcher
    tts: ScriptedSynthesizer
    store: MemorySessionStore
    writer: SessionWriter
    switchboard: Switchboard
    recognizer: Recognizer
    limits: LoadLimits

    @asynccontextmanager
    async def call(
        self, *, greet: bool = False, resume: str | None = None, plays: bool = True
    ) -> AsyncGenerator[Caller, None]:
        request = CallRequest(greet=greet, resume=resume, reports_playout=plays, input_rate_hz=RATE_HZ)
        async with self.switchboard.open_call(request) as call, anyio.create_task_group() as tasks:
            caller = Caller(call, plays=plays)
            tasks.start_soon(caller.listen)
            if plays:
                tasks.start_soon(caller.report)
            yield caller
            tasks.cancel_scope.cancel()


@asynccontextmanager
async def world(
    *,
    script: Script = count_aloud,
    lines: dict[str, Line] | None = None,
    asr_delay_s: float = 0.1,
    tts_delay_s: float = 0.06,
    one: Persona | None = None,
    max_calls: int = 8,
    options: CallOptions | None = None,
    turn_detector: TurnDetector | None = None,
    prompt_cache: PromptCache | None = None,
    sentence_end: SentenceEnd = SentenceEnd.OFF,
    llm_options: ScriptedOptions | None = None,
) -> AsyncGenerator[World, None]:
    asr = ScriptedRecognizer(script, final_delay_s=asr_delay_s, partial_delay_s=0.05)
    llm = ScriptedLanguageModel(llm_options or ScriptedOptions(lines=lines or {}))
    tts = ScriptedSynthesizer(delay_s=tts_delay_s)
    store = MemorySessionStore(3_600)
    recognizer, synthesizer, writer = Recognizer(asr), Synthesizer(tts), SessionWriter(store)
    limits = LoadLimits()
    chosen = one or persona()
    batcher = Batcher(llm, SloPolicy())
    engines = Engines(
        recognizer=recognizer,
        batcher=batcher,
        synthesizer=synthesizer,
        vad=ScriptedVad,
        writer=writer,
        clock=TestClock(),
        context_tokens=llm.context_tokens,
        turn_judge=TurnJudge(turn_detector) if turn_detector is not None else None,
        sentence_judge=SentenceJudge(batcher, AskOptions(sentence_end)),
        prompt_cache=prompt_cache,
        limits=limits,
    )
    switchboard = Switchboard(engines, lambda _: chosen, store, options or CallOptions(), max_calls)
    async with anyio.create_task_group() as tasks:
        for service in (recognizer.run, synthesizer.run, writer.run):
            tasks.start_soon(service)
        yield World(asr, llm, batcher, tts, store, writer, switchboard, recognizer, limits)
        tasks.cancel_scope.cancel()


def loudness(audio: list[AudioDelta]) -> float:
    joined: NDArray[np.int16] = np.concatenate([delta.samples for delta in audio])
    return float(np.sqrt(np.mean(np.square(joined.astype(np.float64)))))
