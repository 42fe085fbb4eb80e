"""Several listeners at one speech engine, in virtual time: whose voice breaks off, and who waits for a first word."""

from __future__ import annotations

import random
from contextlib import aclosing
from dataclasses import dataclass, field

import anyio
import pytest
from trio.testing import MockClock

from duolog.adapters.scripted_tts import ScriptedSynthesizer
from duolog.ports.tts import SpeechChunk, SpeechRequest
from duolog.serving.synthesizer import Synthesizer

pytestmark = pytest.mark.session

PHRASE = "five words make one phrase"
WORK_S = 0.25
AHEAD_S = 8.0


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return "trio", {"clock": MockClock(autojump_threshold=0)}


@dataclass
class Listener:
    """One call: asks for phrase after phrase, plays them, and notes its silences."""

    synthesizer: Synthesizer
    gaps_s: list[float] = field(default_factory=list)
    waits_s: list[float] = field(default_factory=list)
    """For first words."""
    heard: int = 0
    """Phrases."""
    _dry_at: float | None = None

    async def answer(self, phrases: int) -> None:
        self._dry_at = None
        for _ in range(phrases):
            await anyio.sleep(max(0.0, self.dry_at() - anyio.current_time() - AHEAD_S))
            await self.hear_on()
        await anyio.sleep_until(self.dry_at())

    def dry_at(self) -> float:
        return self._dry_at or 0.0

    def hold(self, seconds: float) -> None:
        """Have so much more time: to play, or by standing still."""
        self._dry_at = (self._dry_at or anyio.current_time()) + seconds

    async def hear_on(self) -> None:
        asked_at, first = anyio.current_time(), self._dry_at is None
        request = SpeechRequest(PHRASE, voice="scripted", language="en")
        speech = self.synthesizer.speak("call", request, runs_dry_at=None if first else self.dry_at)
        async with aclosing(speech) as chunks:
            async for chunk in chunks:
                if self._dry_at is None:
                    self.waits_s.append(anyio.current_time() - asked_at)
                self._play(chunk)
        self.heard += 1

    def _play(self, chunk: SpeechChunk) -> None:
        now = anyio.current_time()
        if self._dry_at is not None and now > self._dry_at:
            self.gaps_s.append(now - self._dry_at)
        self._dry_at = max(now, self.dry_at()) + len(chunk.samples) / chunk.sample_rate_hz


@dataclass
class Hall:
    engine: ScriptedSynthesizer = field(default_factory=lambda: ScriptedSynthesizer(delay_s=WORK_S))

    def __post_init__(self) -> None:
        self.synthesizer = Synthesizer(self.engine)

    def listener(self) -> Listener:
        return Listener(self.synthesizer)


async def test_a_rush_of_first_phrases_does_not_break_off_a_voice() -> None:
    """Seven first phrases are more work than the second phrase of the voice that speaks has time for."""
    hall = Hall()
    talker, others = hall.listener(), [hall.listener() for _ in range(7)]
    async with anyio.create_task_group() as service:
        service.start_soon(hall.synthesizer.run)
        async with anyio.create_task_group() as calls:
            calls.start_soon(talker.answer, 4)
            await anyio.sleep(WORK_S)
            for other in others:
                calls.start_soon(other.answer, 1)
        service.cancel_scope.cancel()
    assert talker.gaps_s == []
    assert talker.heard == 4
    assert max(other.waits_s[0] for other in others) <= (len(others) + 2) * WORK_S


async def test_a_client_that_holds_its_playback_lets_the_others_go_first() -> None:
    """Both had the same to play when their phrases were queued; one then stood still."""
    hall = Hall()
    held, playing, busy = hall.listener(), hall.listener(), hall.listener()
    async with anyio.create_task_group() as service:
        service.start_soon(hall.synthesizer.run)
        held.hold(2.0)
        playing.hold(2.0)
        async with anyio.create_task_group() as calls:
            calls.start_soon(busy.answer, 1)
            await anyio.sleep(WORK_S / 2)
            calls.start_soon(held.hear_on)
            await anyio.sleep(0.01)
            calls.start_soon(playing.hear_on)
            await anyio.sleep(0.01)
            held.hold(5.0)
            await anyio.sleep(WORK_S * 1.6)
            assert (playing.heard, held.heard) == (1, 0)
        service.cancel_scope.cancel()


@pytest.mark.parametrize("seed", range(6))
async def test_where_there_is_capacity_no_voice_breaks_off(seed: int) -> None:
    """Four calls, of which at most all speak at once: two thirds of what the engine can do."""
    hall, chance = Hall(), random.Random(seed)
    listeners = [hall.listener() for _ in range(4)]

    async def converse(listener: Listener, pauses_s: list[float], lengths: list[int]) -> None:
        for pause_s, length in zip(pauses_s, lengths, strict=True):
            await anyio.sleep(pause_s)
            await listener.answer(length)

    async with anyio.create_task_group() as service:
        service.start_soon(hall.synthesizer.run)
        async with anyio.create_task_group() as calls:
            for listener in listeners:
                pauses_s = [chance.uniform(0.5, 4) for _ in range(25)]
                calls.start_soon(converse, listener, pauses_s, [chance.randint(1, 6) for _ in range(25)])
        service.cancel_scope.cancel()
    assert [gap for listener in listeners for gap in listener.gaps_s] == []
    assert max(wait for listener in listeners for wait in listener.waits_s) <= 6 * WORK_S


async def test_beyond_capacity_everybody_is_heard() -> None:
    """Ten voices are more than the engine can do: they stop and go on, and a first word does not wait for all."""
    hall = Hall()
    talkers, late = [hall.listener() for _ in range(10)], hall.listener()
    async with anyio.create_task_group() as service:
        service.start_soon(hall.synthesizer.run)
        async with anyio.create_task_group() as calls:
            for talker in talkers:
                calls.start_soon(talker.answer, 12)
            await anyio.sleep(12)
            calls.start_soon(late.answer, 1)
        service.cancel_scope.cancel()
    assert [talker.heard for talker in talkers] == [12] * 10
    assert late.waits_s[0] <= 4 * WORK_S
