"""What load tests are made of here: tones for speech, and a line that needs no server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import numpy as np
import pytest
from anyio.abc import TaskGroup
from numpy.typing import NDArray

from duolog.loadtest.call_log import CallLog, Turn
from duolog.loadtest.failures import CallFailed
from duolog.loadtest.measure import turn_timeline
from duolog.loadtest.pacing import FRAME_SAMPLES, FrameSchedule, SentFrames
from duolog.loadtest.repertoire import Sound, sound_of
from duolog.loadtest.timeline import TurnTimeline, last_voiced_sample
from duolog.loadtest.wire_text import Message, SpeechFrame

RATE_HZ = 24_000


def tone(seconds: float, silent_s: float = 0.2) -> Sound:
    """A voice of this length between two silences."""
    times = np.arange(round(seconds * 16_000)) / 16_000
    voice = 8_000 * np.sin(2 * np.pi * 300 * times)
    silence = np.zeros(round(silent_s * 16_000))
    return sound_of(f"tone {seconds}", np.concatenate([silence, voice, silence]).astype(np.int16))


@pytest.fixture
def sounds() -> list[Sound]:
    return [tone(1.0), tone(1.5), tone(2.0)]


@dataclass
class FakeLine:
    """A call whose other side answers `delays_s[n]` after the n-th turn's end, the last again and again."""

    tasks: TaskGroup
    observe: Callable[[Message], None]
    delays_s: tuple[float | None, ...] = (0.5,)
    """None: no answer."""
    answer_s: float = 1.0
    breaks_after_s: float | None = None
    obeys: bool = True
    """An interruption silences it 0.2 s after it began."""
    log: CallLog = field(default_factory=CallLog)
    typed: list[str] = field(default_factory=list)
    _generation: int = 0

    def __post_init__(self) -> None:
        self._began_s = anyio.current_time()
        self._sent = SentFrames(FrameSchedule(self._began_s))
        self.log.on_message({"type": "duolog.session", "persona": "ava", "output_rate_hz": RATE_HZ}, self._began_s)

    @property
    def sent(self) -> SentFrames:
        """The microphone's frames up to now."""
        while (due_s := self._sent.time_of_sample(len(self._sent) * FRAME_SAMPLES)) <= anyio.current_time():
            self._sent.record(due_s)
        return self._sent

    def speak(self, samples: NDArray[np.int16], label: str) -> Turn:
        turn = self.log.begin_turn(label, anyio.current_time())
        if self.obeys:
            self.tasks.start_soon(self._flush_soon)
        self.tasks.start_soon(self._answer, turn, (last_voiced_sample(samples) + 1) / 16_000, len(self.log.turns) - 1)
        return turn

    async def send_text(self, text: str) -> Turn:
        self.typed.append(text)
        turn = self.log.begin_turn(text, anyio.current_time())
        turn.typed = True
        self.tasks.start_soon(self._answer, turn, 0.0, len(self.log.turns) - 1)
        return turn

    async def stay_until(self, at_s: float) -> None:
        if self.breaks_after_s is not None and at_s > self._began_s + self.breaks_after_s:
            await anyio.sleep_until(self._began_s + self.breaks_after_s)
            raise CallFailed("The line is dead.")
        await anyio.sleep_until(at_s)

    def timeline(self, turn: Turn) -> TurnTimeline | None:
        return turn_timeline(turn, self.sent)

    async def _flush_soon(self) -> None:
        playing = any(
            not answer.player.is_idle(anyio.current_time()) for turn in self.log.turns for answer in turn.answers
        )
        if not playing:
            return
        await anyio.sleep(0.4)
        self._tell({"type": "duolog.flush", "generation": self._generation + 1})

    async def _answer(self, turn: Turn, voiced_s: float, number: int) -> None:
        await anyio.sleep(voiced_s)
        turn.last_voiced_s = anyio.current_time()
        delay_s = self.delays_s[min(number, len(self.delays_s) - 1)]
        if delay_s is None:
            return
        spoken_until = len(self.sent) * FRAME_SAMPLES
        await anyio.sleep(delay_s)
        self._generation += 1
        about = {"response_id": f"resp_{self._generation}", "generation": self._generation}
        self._tell({"type": "response.created", "response": {"id": about["response_id"]}})
        self._tell({"type": "duolog.speech.started", "sample_rate_hz": RATE_HZ, **about})
        self._tell({"type": "response.output_audio_transcript.delta", "delta": "Yes.", **about})
        self._tell({"type": "duolog.turn.timings", "speech_end_sample": spoken_until, "endpoint_ms": 200, **about})
        loud = np.full(round(self.answer_s * RATE_HZ), 5_000, dtype=np.int16)
        self.log.on_speech(SpeechFrame(self._generation, 0, loud), anyio.current_time())
        self._tell({"type": "response.done", "response": {"id": about["response_id"], "status": "completed"}})

    def _tell(self, message: dict[str, object]) -> None:
        self.log.on_message(message, anyio.current_time())
        self.observe(message)


FakeDial = Callable[[Callable[[Message], None]], AbstractAsyncContextManager[FakeLine]]


def dial_with(**manner: Any) -> FakeDial:
    """A `Dial` whose lines behave so: the fields of FakeLine."""

    @asynccontextmanager
    async def dial(observe: Callable[[Message], None]) -> AsyncIterator[FakeLine]:
        try:
            async with anyio.create_task_group() as tasks:
                yield FakeLine(tasks, observe, **manner)
                tasks.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None

    return dial


@dataclass
class Unanswered(AbstractAsyncContextManager[FakeLine]):
    """A call that never comes up."""

    error: CallFailed
    after_s: float = 0.0

    async def __aenter__(self) -> FakeLine:
        await anyio.sleep(self.after_s)
        raise self.error

    async def __aexit__(self, *_: object) -> None:
        """Never entered."""


def dial_failing(error: CallFailed, after_s: float = 0.0) -> FakeDial:
    return lambda _observe: Unanswered(error, after_s)
