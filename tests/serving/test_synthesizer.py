"""The speech scheduler in virtual time: order, cancellation, failures, and that every job ends exactly once."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

import anyio
import pytest
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from duolog.adapters.scripted_tts import ScriptedSynthesizer
from duolog.ports.errors import EngineError, EngineRejected, EngineTimeout, EngineUnavailable
from duolog.ports.tts import SpeechChunk, SpeechRequest
from duolog.serving.speech_order import MOST_OVERTAKEN
from duolog.serving.synthesizer import MAX_UNREAD_CHUNKS, Synthesizer

pytestmark = pytest.mark.session


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return "trio", {"clock": trio.testing.MockClock(autojump_threshold=0)}


def request(text: str, voice: str = "scripted") -> SpeechRequest:
    return SpeechRequest(text, voice=voice, language="en")


class Caller:
    """Reads one phrase to its end and notes how it ended."""

    def __init__(self, synthesizer: Synthesizer, log: list[str]) -> None:
        self._synthesizer = synthesizer
        self._log = log

    async def hear(self, text: str, *, dry_at: float | None = None, leave_after_s: float = 1e6) -> None:
        outcome = "left"
        with anyio.move_on_after(leave_after_s):
            try:
                runs_dry_at = None if dry_at is None else lambda: dry_at
                async with aclosing(self._synthesizer.speak("call", request(text), runs_dry_at=runs_dry_at)) as chunks:
                    async for chunk in chunks:
                        assert len(chunk.samples) > 0
                outcome = "heard"
            except EngineError as error:
                outcome = type(error).__name__
        self._log.append(f"{text} {outcome}")


async def test_first_phrases_go_before_continuations_and_those_by_deadline() -> None:
    engine = ScriptedSynthesizer(delay_s=1.0)
    synthesizer = Synthesizer(engine)
    caller = Caller(synthesizer, [])
    async with anyio.create_task_group() as calls, anyio.create_task_group() as service:
        service.start_soon(synthesizer.run)
        calls.start_soon(lambda: caller.hear("running", dry_at=9))
        await anyio.sleep(0.5)
        calls.start_soon(lambda: caller.hear("late", dry_at=30))
        calls.start_soon(lambda: caller.hear("soon", dry_at=20))
        await anyio.sleep(0.1)
        calls.start_soon(lambda: caller.hear("opening"))
        await anyio.sleep(0.1)
        assert synthesizer.waiting == 3
        await anyio.sleep(10)
        service.cancel_scope.cancel()
    assert [spoken.text for spoken in engine.requests] == ["running", "opening", "soon", "late"]


async def test_a_waiting_phrase_that_is_left_is_never_spoken() -> None:
    engine = ScriptedSynthesizer(delay_s=1.0)
    synthesizer = Synthesizer(engine)
    log: list[str] = []
    caller = Caller(synthesizer, log)
    async with anyio.create_task_group() as service:
        service.start_soon(synthesizer.run)
        async with anyio.create_task_group() as calls:
            calls.start_soon(lambda: caller.hear("one", dry_at=1))
            await anyio.sleep(0.1)
            calls.start_soon(lambda: caller.hear("two", dry_at=2, leave_after_s=0.5))
            calls.start_soon(lambda: caller.hear("three", dry_at=3))
        service.cancel_scope.cancel()
    assert [spoken.text for spoken in engine.requests] == ["one", "three"]
    assert sorted(log) == ["one heard", "three heard", "two left"]


async def test_leaving_a_running_phrase_frees_the_engine_at_once() -> None:
    engine = ScriptedSynthesizer(delay_s=100.0)
    synthesizer = Synthesizer(engine, stall_s=1000)
    caller = Caller(synthesizer, [])
    async with anyio.create_task_group() as service:
        service.start_soon(synthesizer.run)
        begin = anyio.current_time()
        await caller.hear("long", leave_after_s=1.0)
        await caller.hear("next")
        assert anyio.current_time() - begin == pytest.approx(101.0)
        assert engine.running == 0
        service.cancel_scope.cancel()


async def test_closing_the_generator_between_chunks_frees_the_engine() -> None:
    engine = ScriptedSynthesizer(chunk_delay_s=1.0)
    synthesizer = Synthesizer(engine)
    async with anyio.create_task_group() as service:
        service.start_soon(synthesizer.run)
        async with aclosing(synthesizer.speak("a", request("several chunks of sound"))) as sound:
            await anext(sound)
            assert engine.running == 1
        await anyio.sleep(0.01)
        assert engine.running == 0
        service.cancel_scope.cancel()


async def test_an_error_reaches_its_own_caller_and_nobody_else() -> None:
    engine = ScriptedSynthesizer(delay_s=0.1)
    engine.fail_next(EngineError("The voice broke.", engine="tts"))
    synthesizer = Synthesizer(engine)
    log: list[str] = []
    caller = Caller(synthesizer, log)
    async with anyio.create_task_group() as service:
        service.start_soon(synthesizer.run)
        await caller.hear("first")
        await caller.hear("second")
        with pytest.raises(EngineRejected, match="no voice 'nobody'"):
            await anext(synthesizer.speak("a", request("x", voice="nobody")))
        service.cancel_scope.cancel()
    assert log == ["first EngineError", "second heard"]


async def test_a_stalled_engine_times_out_for_its_caller_and_serves_the_next() -> None:
    engine = ScriptedSynthesizer()
    engine.stall_next()
    synthesizer = Synthesizer(engine, stall_s=3.0)
    log: list[str] = []
    caller = Caller(synthesizer, log)
    async with anyio.create_task_group() as service:
        service.start_soon(synthesizer.run)
        begin = anyio.current_time()
        await caller.hear("stuck")
        assert anyio.current_time() - begin == pytest.approx(3.0)
        await caller.hear("fine")
        service.cancel_scope.cancel()
    assert log == ["stuck EngineTimeout", "fine heard"]


async def test_a_reader_that_never_reads_does_not_hold_up_the_others() -> None:
    engine = ScriptedSynthesizer()
    synthesizer = Synthesizer(engine)
    endless = "word " * (MAX_UNREAD_CHUNKS * 2)
    log: list[str] = []
    async with anyio.create_task_group() as service:
        service.start_soon(synthesizer.run)
        slow = synthesizer.speak("slow", request(endless))
        await anext(slow)
        await Caller(synthesizer, log).hear("other")
        with pytest.raises(EngineTimeout, match="unread"):
            await _read_all(slow)
        service.cancel_scope.cancel()
    assert log == ["other heard"]


async def _read_all(chunks: AsyncGenerator[SpeechChunk, None]) -> None:
    async for _ in chunks:
        pass


async def test_shutting_down_ends_running_and_waiting_phrases() -> None:
    engine = ScriptedSynthesizer(delay_s=5.0)
    synthesizer = Synthesizer(engine)
    log: list[str] = []
    caller = Caller(synthesizer, log)
    async with anyio.create_task_group() as calls, anyio.create_task_group() as service:
        service.start_soon(synthesizer.run)
        calls.start_soon(lambda: caller.hear("running"))
        calls.start_soon(lambda: caller.hear("waiting"))
        await anyio.sleep(1)
        service.cancel_scope.cancel()
    assert sorted(log) == ["running EngineUnavailable", "waiting EngineUnavailable"]
    assert engine.running == 0
    with pytest.raises(EngineUnavailable):
        await anext(synthesizer.speak("a", request("x")))


@dataclass(frozen=True, slots=True)
class Plan:
    """One caller: when it asks, when it leaves, and what goes wrong with its phrase."""

    arrives_s: float
    leaves_after_s: float
    dry_at: float | None
    """None: a first phrase."""
    fault: str


plans_of_callers = st.lists(
    st.builds(
        Plan,
        arrives_s=st.floats(0, 5),
        leaves_after_s=st.one_of(st.just(1e6), st.floats(0, 3)),
        dry_at=st.one_of(st.none(), st.floats(0, 20)),
        fault=st.sampled_from(["none", "none", "none", "fail", "stall"]),
    ),
    max_size=12,
)


class Crowd:
    """Random callers on one scripted engine; checks order at each start, and that everybody's end comes once."""

    def __init__(self, plans: list[Plan]) -> None:
        self._plans = plans
        self._engine = OrderCheckingEngine(plans)
        self._synthesizer = Synthesizer(self._engine, stall_s=2.0)
        self.log: list[str] = []

    async def __call__(self) -> None:
        async with anyio.create_task_group() as service:
            service.start_soon(self._synthesizer.run)
            async with anyio.create_task_group() as calls:
                for number, plan in enumerate(self._plans):
                    calls.start_soon(self._call, number, plan)
            await anyio.sleep(0.01)
            assert self._engine.running == 0
            assert self._synthesizer.waiting == 0
            service.cancel_scope.cancel()

    async def _call(self, number: int, plan: Plan) -> None:
        await anyio.sleep(plan.arrives_s)
        self._engine.waiting[number] = 0
        caller = Caller(self._synthesizer, self.log)
        await caller.hear(f"w{number}", dry_at=plan.dry_at, leave_after_s=plan.leaves_after_s)
        self._engine.waiting.pop(number, None)


class OrderCheckingEngine(ScriptedSynthesizer):
    def __init__(self, plans: list[Plan]) -> None:
        super().__init__(delay_s=0.7)
        self._plans = plans
        self.waiting: dict[int, int] = {}
        """Callers who wait, and how many continuations have gone before them."""

    def synthesize(self, request: SpeechRequest) -> AsyncGenerator[SpeechChunk, None]:
        number = int(request.text[1:])
        assert self.running == 0, "two phrases at once"
        self.waiting.pop(number, None)
        if self._plans[number].dry_at is not None:
            self._overtake(number)
        self._script(self._plans[number].fault)
        return super().synthesize(request)

    def _overtake(self, number: int) -> None:
        for other in self.waiting:
            if self._plans[other].dry_at is None:
                self.waiting[other] += 1
                assert self.waiting[other] <= MOST_OVERTAKEN, "a first phrase starves"

    def _script(self, fault: str) -> None:
        self._faults.clear()
        if fault == "fail":
            self.fail_next(EngineError("Scripted.", engine="tts"))
        elif fault == "stall":
            self.stall_next()


@settings(max_examples=40, deadline=None)
@given(plans=plans_of_callers)
def test_every_phrase_ends_exactly_once_whatever_happens(plans: list[Plan]) -> None:
    crowd = Crowd(plans)
    anyio.run(crowd, backend="trio", backend_options={"clock": trio.testing.MockClock(autojump_threshold=0)})
    assert sorted(line.split()[0] for line in crowd.log) == sorted(f"w{number}" for number in range(len(plans)))
