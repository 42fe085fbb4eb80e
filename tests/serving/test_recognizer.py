"""The recogniser scheduler in virtual time: order, batches, replacement, cancellation, failures."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import anyio
import numpy as np
import pytest
import trio.testing
from anyio.abc import TaskGroup
from hypothesis import given, settings
from hypothesis import strategies as st

from duolog.adapters.scripted_asr import ScriptedRecognizer
from duolog.ports.asr import Transcript, TranscriptionRequest
from duolog.ports.errors import EngineError, EngineRejected, EngineUnavailable
from duolog.serving.recognizer import Recognizer
from duolog.serving.recognizer_batch import BatchLimits

pytestmark = pytest.mark.session


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return "trio", {"clock": trio.testing.MockClock(autojump_threshold=0)}


def speech(seconds: float, *, partial: bool = False) -> TranscriptionRequest:
    return TranscriptionRequest(np.full(int(seconds * 16_000), 0.1, np.float32), "en", partial)


class Callers:
    """Starts requests and notes how each ended."""

    def __init__(self, recognizer: Recognizer, tasks: TaskGroup) -> None:
        self._recognizer = recognizer
        self._tasks = tasks
        self.log: list[tuple[str, str]] = []

    def ask(self, name: str, request: TranscriptionRequest, *, leave_after_s: float = 1e6) -> None:
        """`name` begins with the call's letter."""
        self._tasks.start_soon(self._ask, name, request, leave_after_s)

    async def _ask(self, name: str, request: TranscriptionRequest, leave_after_s: float) -> None:
        outcome = "left"
        with anyio.move_on_after(leave_after_s):
            try:
                transcript = await self._recognizer.transcribe(name[0], request)
                outcome = "superseded" if transcript is None else transcript.text
            except EngineError as error:
                outcome = type(error).__name__
        self.log.append((name, outcome))

    @property
    def outcomes(self) -> dict[str, str]:
        return dict(self.log)


@asynccontextmanager
async def serving(
    engine: ScriptedRecognizer, *, max_batch: int = 4, stall_s: float = 10.0
) -> AsyncGenerator[Callers, None]:
    recognizer = Recognizer(engine, limits=BatchLimits(max_batch), stall_s=stall_s)
    async with anyio.create_task_group() as service:
        service.start_soon(recognizer.run)
        await anyio.lowlevel.checkpoint()
        async with anyio.create_task_group() as tasks:
            yield Callers(recognizer, tasks)
        service.cancel_scope.cancel()


async def test_an_idle_recognizer_adds_no_delay() -> None:
    async with serving(ScriptedRecognizer(final_delay_s=0.1)) as callers:
        began = anyio.current_time()
        callers.ask("a", speech(0.8))
        await anyio.sleep(0.1)
        await anyio.wait_all_tasks_blocked()
        assert callers.outcomes == {"a": "one two"}
        assert anyio.current_time() - began == pytest.approx(0.1)


@pytest.mark.parametrize(("max_batch", "batches"), [(1, [1, 1, 1, 1, 1]), (2, [1, 2, 2]), (4, [1, 4])])
async def test_finals_that_wait_go_together_and_before_partials(max_batch: int, batches: list[int]) -> None:
    engine = ScriptedRecognizer(final_delay_s=0.1, partial_delay_s=0.1)
    async with serving(engine, max_batch=max_batch) as callers:
        callers.ask("a", speech(0.4))
        await anyio.sleep(0.05)
        callers.ask("p", speech(0.4, partial=True))
        await anyio.sleep(0.01)
        for name in "bcd":
            callers.ask(name, speech(0.4))
    assert [len(batch) for batch in engine.batches] == batches
    assert [request.partial for batch in engine.batches for request in batch] == [False] * 4 + [True]
    assert set(callers.outcomes.values()) == {"one"}


async def test_a_final_waits_for_a_batch_that_holds_another_final() -> None:
    engine = ScriptedRecognizer(final_delay_s=0.1)
    async with serving(engine) as callers:
        callers.ask("x", speech(0.4))
        await anyio.sleep(0.05)
        callers.ask("a", speech(0.4))
        callers.ask("p", speech(0.4, partial=True))
        await anyio.sleep(0.1)
        callers.ask("b", speech(0.4))
    assert [len(batch) for batch in engine.batches] == [1, 2, 1]
    assert callers.outcomes == {"x": "one", "a": "one", "p": "one", "b": "one"}


async def test_a_newer_partial_replaces_the_older_of_its_call_only() -> None:
    engine = ScriptedRecognizer(partial_delay_s=0.1)
    async with serving(engine) as callers:
        callers.ask("x", speech(0.4, partial=True))
        await anyio.sleep(0.01)
        callers.ask("a1", speech(0.4, partial=True))
        callers.ask("b1", speech(0.4, partial=True))
        await anyio.sleep(0.01)
        callers.ask("a2", speech(0.8, partial=True))
    assert callers.outcomes == {"x": "one", "a1": "superseded", "b1": "one", "a2": "one two"}


async def test_a_final_ends_its_calls_partial_and_takes_the_engine_from_any() -> None:
    engine = ScriptedRecognizer(final_delay_s=0.1, partial_delay_s=5.0)
    async with serving(engine) as callers:
        callers.ask("b1", speech(0.4, partial=True))
        await anyio.sleep(0.01)
        callers.ask("a1", speech(0.4, partial=True))
        await anyio.sleep(0.01)
        began = anyio.current_time()
        callers.ask("a2", speech(0.8))
        await anyio.sleep(0.1)
        await anyio.wait_all_tasks_blocked()
        assert callers.outcomes == {"b1": "superseded", "a1": "superseded", "a2": "one two"}
        assert anyio.current_time() - began == pytest.approx(0.1)


async def test_a_caller_that_leaves_stops_its_work_but_not_its_neighbours() -> None:
    engine = ScriptedRecognizer(final_delay_s=1.0)
    async with serving(engine) as callers:
        callers.ask("a", speech(0.4), leave_after_s=0.2)
        await anyio.sleep(0.1)
        callers.ask("b", speech(0.4), leave_after_s=0.3)
        callers.ask("c", speech(0.8))
        callers.ask("d", speech(0.4), leave_after_s=0.05)
    assert callers.outcomes == {"a": "left", "b": "left", "c": "one two", "d": "left"}
    assert [len(batch) for batch in engine.batches] == [1, 2]
    assert engine.running == 0


async def test_an_error_reaches_every_job_of_the_batch_and_the_next_batch_works() -> None:
    engine = ScriptedRecognizer(final_delay_s=0.1)
    async with serving(engine) as callers:
        callers.ask("x", speech(0.4))
        await anyio.sleep(0.05)
        callers.ask("a", speech(0.4))
        callers.ask("b", speech(0.4))
        await anyio.sleep(0.06)
        engine.fail_next(EngineUnavailable("gone", engine="asr"))
        await anyio.sleep(0.2)
        callers.ask("c", speech(0.4))
    assert callers.outcomes == {"x": "one", "a": "EngineUnavailable", "b": "EngineUnavailable", "c": "one"}


class Choosy(ScriptedRecognizer):
    """Refuses a batch with a request in German."""

    async def transcribe(self, requests: Sequence[TranscriptionRequest]) -> list[Transcript]:
        transcripts = await super().transcribe(requests)
        if any(request.language == "de" for request in requests):
            raise EngineRejected("no German", engine="asr")
        return transcripts


async def test_one_refused_request_does_not_fail_its_neighbours() -> None:
    async with serving(Choosy(final_delay_s=0.1)) as callers:
        callers.ask("x", speech(0.4))
        await anyio.sleep(0.05)
        callers.ask("a", TranscriptionRequest(speech(0.4).samples, "de"))
        callers.ask("b", speech(0.4))
    assert callers.outcomes == {"x": "one", "a": "EngineRejected", "b": "one"}


async def test_an_engine_that_stalls_is_given_up_and_used_again() -> None:
    engine = ScriptedRecognizer(final_delay_s=0.1)
    engine.stall_next()
    async with serving(engine, stall_s=3.0) as callers:
        callers.ask("a", speech(1.0))
        await anyio.sleep(4.01)
        callers.ask("b", speech(0.4))
    assert callers.outcomes == {"a": "EngineTimeout", "b": "one"}


async def test_shutting_down_ends_what_waits_and_refuses_what_comes() -> None:
    recognizer = Recognizer(ScriptedRecognizer(final_delay_s=9.0))
    async with anyio.create_task_group() as tasks:
        callers = Callers(recognizer, tasks)
        async with anyio.create_task_group() as service:
            service.start_soon(recognizer.run)
            callers.ask("a", speech(0.4))
            await anyio.sleep(0.1)
            callers.ask("b", speech(0.4))
            await anyio.sleep(0.1)
            assert recognizer.waiting == 1
            service.cancel_scope.cancel()
    assert callers.outcomes == {"a": "EngineUnavailable", "b": "EngineUnavailable"}
    with pytest.raises(EngineUnavailable, match="shut down"):
        await recognizer.transcribe("c", speech(0.4))


async def test_partials_of_many_calls_keep_to_their_share() -> None:
    engine = ScriptedRecognizer(partial_delay_s=0.15)
    recognizer, spent = Recognizer(engine), 0.0

    async def speak(call: str) -> None:
        nonlocal spent
        heard_s = captioned_s = 0.0
        for _ in range(600):
            await anyio.sleep(0.032)
            heard_s += 0.032
            if recognizer.may_start_partial(call, heard_s - captioned_s):
                captioned_s = heard_s
                if await recognizer.transcribe(call, speech(0.5, partial=True)) is not None:
                    spent += 0.15

    async with anyio.create_task_group() as service:
        service.start_soon(recognizer.run)
        began = anyio.current_time()
        async with anyio.create_task_group() as calls:
            for call in "abcdef":
                calls.start_soon(speak, call)
        took = anyio.current_time() - began
        assert recognizer.partial_interval_s() > 0.5
        service.cancel_scope.cancel()
    assert 0.25 * took < spent <= 0.4 * took + 0.6


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.booleans(), st.floats(0, 1), st.floats(0.05, 2)), min_size=1, max_size=14
    )
)
def test_every_request_ends_exactly_once(plan: list[tuple[str, bool, float, float]]) -> None:
    engine = ScriptedRecognizer(final_delay_s=0.2, partial_delay_s=0.1)

    async def run() -> list[str]:
        async with serving(engine, max_batch=3) as callers:
            for number, (call, partial, pause_s, patience_s) in enumerate(plan):
                callers.ask(f"{call}{number}", speech(0.4, partial=partial), leave_after_s=patience_s)
                await anyio.sleep(pause_s)
        return [outcome for _, outcome in callers.log]

    outcomes = anyio.run(run, backend="trio", backend_options={"clock": trio.testing.MockClock(autojump_threshold=0)})
    assert len(outcomes) == len(plan)
    assert set(outcomes) <= {"one", "left", "superseded"}
    assert engine.running == 0
