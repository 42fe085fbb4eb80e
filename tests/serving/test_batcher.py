"""The batcher in virtual time: every request ends exactly once, whatever happens to it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace

import anyio
import pytest
from trio.testing import MockClock

from duolog.ports.errors import EngineProtocolError, EngineTimeout, EngineUnavailable, Overloaded
from duolog.ports.llm import (
    ChatMessage,
    FinishReason,
    GenerationEnd,
    GenerationRequest,
    PromptEnd,
    Role,
    Sampling,
    TextDelta,
    TokenUsage,
)
from duolog.serving.batcher import Admitted, Batcher, BatcherOptions, BatcherRequest, Outcome, RequestClass
from duolog.serving.placement import Placed
from duolog.serving.policies import Decision, DirectPolicy, Drop, DropReason, FlightRequest, QueuedRequest

pytestmark = pytest.mark.session

Stream = AsyncGenerator[TextDelta | GenerationEnd, None]
END = GenerationEnd(FinishReason.STOP, TokenUsage(3, 0, 2))


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return "trio", {"clock": MockClock(autojump_threshold=0)}


@dataclass
class Engine:
    """Plays `script` for each request and remembers what it saw."""

    script: Callable[[GenerationRequest], Stream]
    seen: list[GenerationRequest] = field(default_factory=list)
    running: int = 0
    context_tokens: int = 2048

    async def generate(self, request: GenerationRequest) -> Stream:
        self.seen.append(request)
        self.running += 1
        try:
            async with aclosing(self.script(request)) as stream:
                async for value in stream:
                    yield value
        finally:
            self.running -= 1

    def prompt_ids(self, messages: tuple[ChatMessage, ...], end: PromptEnd) -> tuple[int, ...]:
        return ()

    async def warm_up(self) -> None: ...

    async def aclose(self) -> None: ...


async def two_words(request: GenerationRequest) -> Stream:
    for word in ("Hello", " there"):
        await anyio.sleep(0.1)
        yield TextDelta(word)
    yield END


async def silence(request: GenerationRequest) -> Stream:
    await anyio.sleep_forever()
    yield END


async def stuck_after_a_word(request: GenerationRequest) -> Stream:
    yield TextDelta("Hello")
    await anyio.sleep_forever()


async def cut_short(request: GenerationRequest) -> Stream:
    yield TextDelta("Hello")


async def failing(request: GenerationRequest) -> Stream:
    yield TextDelta("Hello")
    raise EngineUnavailable("gone", engine="llm")


class Gate:
    """A policy that admits `size` at a time, in the order of DirectPolicy; looks again each `period_s` if given."""

    def __init__(self, size: int, period_s: float | None = None) -> None:
        self.size = size
        self.period_s = period_s
        self.refuse: set[int] = set()
        self.abort: set[int] = set()
        self.asked: list[float] = []

    def decide(self, queue: Sequence[QueuedRequest], in_flight: Sequence[FlightRequest], now: float) -> Decision:
        self.asked.append(now)
        ordered = DirectPolicy().decide(queue, in_flight, now).admit
        free = max(0, self.size - len(in_flight))
        return Decision(
            admit=ordered[:free],
            refuse=tuple(self.refuse),
            abort=tuple(Drop(ticket, DropReason.SHED) for ticket in self.abort),
            look_again_at=None if self.period_s is None else now + self.period_s,
        )


def asking(name: str = "r", klass: RequestClass = RequestClass.FINAL, deadline: float = 0.0) -> BatcherRequest:
    message = ChatMessage(Role.USER, "What is new?")
    return BatcherRequest(GenerationRequest(name, (message,), Sampling(), session_id=name), klass, deadline)


async def collect(batcher: Batcher, request: BatcherRequest) -> list[Admitted | TextDelta | GenerationEnd]:
    async with aclosing(batcher.generate(request)) as stream:
        return [value async for value in stream]


def check_books(batcher: Batcher, **ended: int) -> None:
    """Nothing queued, nothing in flight, and the outcomes are these."""
    snapshot = batcher.snapshot()
    assert sum(snapshot.queued.values()) == sum(snapshot.in_flight.values()) == 0
    assert {outcome.value: count for outcome, count in snapshot.ended.items() if count} == ended
    assert snapshot.arrived == sum(snapshot.ended.values())


async def test_the_stream_is_admitted_deltas_end() -> None:
    batcher = Batcher(Engine(two_words), DirectPolicy())
    assert await collect(batcher, asking()) == [Admitted(0.0), TextDelta("Hello"), TextDelta(" there"), END]
    check_books(batcher, finished=1)


async def test_the_class_becomes_the_engines_priority() -> None:
    engine = Engine(two_words)
    batcher = Batcher(engine, DirectPolicy())
    for klass in RequestClass:
        await collect(batcher, asking(klass=klass))
    assert [request.priority for request in engine.seen] == [0, 5, 10, 20, 30, 40]


async def test_admission_is_by_class_then_deadline() -> None:
    engine = Engine(two_words)
    gate = Gate(0)
    batcher = Batcher(engine, gate)
    async with anyio.create_task_group() as tasks:
        for name, klass, deadline in [
            ("touch", RequestClass.TOUCH, 0.0),
            ("late", RequestClass.FINAL, 9.0),
            ("soon", RequestClass.FINAL, 1.0),
            ("partial", RequestClass.PARTIAL, 0.0),
        ]:
            tasks.start_soon(collect, batcher, asking(name, klass, deadline))
            await anyio.wait_all_tasks_blocked()
        gate.size = 1
        assert (await collect(batcher, asking("first", deadline=-1.0)))[0] == Admitted(0.0)
    assert [request.request_id for request in engine.seen] == ["first", "soon", "late", "partial", "touch"]
    check_books(batcher, finished=5)


async def test_a_guess_waits_behind_finals_until_its_turn_has_ended() -> None:
    engine = Engine(two_words)
    gate = Gate(0)
    batcher = Batcher(engine, gate)
    async with anyio.create_task_group() as tasks:
        for name, klass in [
            ("guess", RequestClass.SPECULATIVE),
            ("promoted", RequestClass.SPECULATIVE),
            ("final", RequestClass.FINAL),
        ]:
            tasks.start_soon(collect, batcher, asking(name, klass, 1.0))
            await anyio.wait_all_tasks_blocked()
        batcher.promote("promoted")
        batcher.promote("nobody")
        assert batcher.snapshot().queued[RequestClass.SPECULATIVE] == 1
        gate.size = 1
        await collect(batcher, asking("first", deadline=-1.0))
    assert [request.request_id for request in engine.seen] == ["first", "promoted", "final", "guess"]
    check_books(batcher, finished=4)


async def test_a_guess_whose_turn_ended_before_it_arrived_is_a_final() -> None:
    engine = Engine(two_words)
    batcher = Batcher(engine, DirectPolicy())
    guess = replace(asking("guess", RequestClass.SPECULATIVE), committed=anyio.Event())
    assert guess.committed is not None
    guess.committed.set()
    await collect(batcher, guess)
    assert [request.priority for request in engine.seen] == [0]


async def test_admitted_says_how_long_it_waited() -> None:
    batcher = Batcher(Engine(two_words), Gate(1))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(collect, batcher, asking("one"))
        await anyio.wait_all_tasks_blocked()
        admitted = (await collect(batcher, asking("two")))[0]
    assert isinstance(admitted, Admitted)
    assert admitted.waited_s == pytest.approx(0.2)
    assert batcher.snapshot().waited_s_total == pytest.approx(0.2)


async def test_cancelling_in_the_queue_frees_the_place() -> None:
    engine = Engine(two_words)
    batcher = Batcher(engine, Gate(1))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(collect, batcher, asking("one"))
        await anyio.wait_all_tasks_blocked()
        with anyio.move_on_after(0.05):
            await collect(batcher, asking("two"))
        assert batcher.snapshot().queued[RequestClass.FINAL] == 0
    assert [request.request_id for request in engine.seen] == ["one"]
    check_books(batcher, finished=1, aborted=1)


@pytest.mark.parametrize("after_s", [0.0, 0.05, 0.1, 0.15, 0.19])
async def test_cancelling_at_any_moment_stops_the_engine(after_s: float) -> None:
    engine = Engine(two_words)
    batcher = Batcher(engine, DirectPolicy())
    with anyio.move_on_after(after_s):
        await collect(batcher, asking())
    assert engine.running == 0
    check_books(batcher, aborted=1)


@pytest.mark.parametrize("values", [1, 2, 3])
async def test_closing_at_any_value_stops_the_engine(values: int) -> None:
    engine = Engine(two_words)
    batcher = Batcher(engine, DirectPolicy())
    async with aclosing(batcher.generate(asking())) as stream:
        for _ in range(values):
            await anext(stream)
    assert engine.running == 0
    check_books(batcher, aborted=1)


async def test_a_silent_engine_is_a_timeout() -> None:
    batcher = Batcher(Engine(silence), DirectPolicy(), BatcherOptions(first_token_timeout_s=3.0))
    started = anyio.current_time()
    with pytest.raises(EngineTimeout, match="silent for 3 s"):
        await collect(batcher, asking())
    assert anyio.current_time() - started == pytest.approx(3.0)
    check_books(batcher, timed_out=1)


async def test_an_engine_that_stops_in_mid_sentence_is_a_timeout() -> None:
    batcher = Batcher(Engine(stuck_after_a_word), DirectPolicy(), BatcherOptions(inter_token_timeout_s=2.0))
    with pytest.raises(EngineTimeout, match="silent for 2 s"):
        await collect(batcher, asking())
    check_books(batcher, timed_out=1)


async def test_a_slow_caller_is_no_engine_timeout() -> None:
    batcher = Batcher(Engine(two_words), DirectPolicy(), BatcherOptions(inter_token_timeout_s=1.0))
    async with aclosing(batcher.generate(asking())) as stream:
        async for _ in stream:
            await anyio.sleep(30)
    check_books(batcher, finished=1)


async def test_a_stream_without_end_is_a_protocol_error() -> None:
    batcher = Batcher(Engine(cut_short), DirectPolicy())
    with pytest.raises(EngineProtocolError):
        await collect(batcher, asking())
    check_books(batcher, failed=1)


async def test_the_engines_error_passes() -> None:
    batcher = Batcher(Engine(failing), DirectPolicy())
    with pytest.raises(EngineUnavailable):
        await collect(batcher, asking())
    check_books(batcher, failed=1)


async def test_a_full_queue_refuses() -> None:
    batcher = Batcher(Engine(two_words), Gate(0), BatcherOptions(max_queued=1, retry_after_s=7.0))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(collect, batcher, asking("waits"))
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(Overloaded) as refusal:
            await collect(batcher, asking("refused"))
        assert refusal.value.retry_after_s == 7.0
        tasks.cancel_scope.cancel()
    check_books(batcher, refused=1, aborted=1)


async def test_waiting_too_long_is_refused() -> None:
    batcher = Batcher(Engine(two_words), Gate(0), BatcherOptions(queue_timeout_s=5.0))
    with pytest.raises(Overloaded):
        await collect(batcher, asking())
    check_books(batcher, refused=1)


async def test_the_policy_may_refuse_a_waiting_request() -> None:
    gate = Gate(0, period_s=0.5)
    batcher = Batcher(Engine(two_words), gate)
    gate.refuse = {1}
    with pytest.raises(Overloaded):
        await collect(batcher, asking())
    check_books(batcher, refused=1)


async def test_the_policy_is_asked_again_when_it_said() -> None:
    gate = Gate(0, period_s=0.05)
    batcher = Batcher(Engine(two_words), gate)

    async def open_gate() -> None:
        await anyio.sleep(1.02)
        gate.size = 1

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(open_gate)
        admitted = (await collect(batcher, asking()))[0]
    assert isinstance(admitted, Admitted)
    assert admitted.waited_s == pytest.approx(1.05)


async def test_a_policy_that_is_never_content_does_not_spin() -> None:
    gate = Gate(0, period_s=0.0)
    batcher = Batcher(Engine(two_words), gate, BatcherOptions(queue_timeout_s=0.1))
    with pytest.raises(Overloaded):
        await collect(batcher, asking())
    assert len(gate.asked) < 150


async def test_the_look_again_time_outlives_its_waiter() -> None:
    gate = Gate(0, period_s=0.2)
    batcher = Batcher(Engine(two_words), gate)
    second = anyio.CancelScope()

    async def cancelled() -> None:
        with second:
            await collect(batcher, asking("two"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(collect, batcher, asking("one"))
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(cancelled)
        await anyio.wait_all_tasks_blocked()
        second.cancel()
        await anyio.wait_all_tasks_blocked()
        gate.size = 1
    check_books(batcher, finished=1, aborted=1)


async def test_the_policy_may_abort_what_is_in_flight() -> None:
    engine = Engine(stuck_after_a_word)
    gate = Gate(2)
    batcher = Batcher(engine, gate)
    seen: list[list[Admitted | TextDelta | GenerationEnd]] = []

    async def first() -> None:
        seen.append(await collect(batcher, asking("partial", RequestClass.PARTIAL)))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(first)
        await anyio.wait_all_tasks_blocked()
        gate.abort = {1}
        engine.script = two_words
        await collect(batcher, asking("final"))
    assert seen[0][-1] == GenerationEnd(FinishReason.ABORTED, TokenUsage())
    check_books(batcher, finished=1, aborted=1)


async def test_work_the_engine_did_for_nothing_is_counted() -> None:
    batcher = Batcher(Engine(stuck_after_a_word), Gate(1))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(collect, batcher, asking("runs", RequestClass.NEXT_TURN))
        await anyio.wait_all_tasks_blocked()
        with anyio.move_on_after(0.5):
            await collect(batcher, asking("waits", RequestClass.PARTIAL))
        tasks.cancel_scope.cancel()
    snapshot = batcher.snapshot()
    assert snapshot.ended[Outcome.ABORTED] == 2
    assert {klass: count for klass, count in snapshot.aborted_in_engine.items() if count} == {RequestClass.NEXT_TURN: 1}
    assert snapshot.aborted_s_total == pytest.approx(0.5)


async def test_an_abort_between_two_pulls_is_not_lost() -> None:
    gate = Gate(2)
    batcher = Batcher(Engine(two_words), gate)
    async with aclosing(batcher.generate(asking("partial", RequestClass.PARTIAL))) as stream:
        await anext(stream)
        gate.abort = {1}
        await collect(batcher, asking("final"))
        assert await anext(stream) == GenerationEnd(FinishReason.ABORTED, TokenUsage())
    check_books(batcher, finished=1, aborted=1)


async def test_three_hundred_requests_with_random_fates_leave_nothing_behind() -> None:
    engine = Engine(two_words)
    batcher = Batcher(engine, Gate(7, period_s=0.3), BatcherOptions(queue_timeout_s=4.0))

    async def one(number: int) -> None:
        await anyio.sleep((number * 37 % 101) / 20)
        klass = RequestClass(number % len(RequestClass))
        with anyio.move_on_after((number * 13 % 29) / 10 + 0.01):
            try:
                await collect(batcher, asking(str(number), klass, float(number % 5)))
            except Overloaded:
                return

    async with anyio.create_task_group() as tasks:
        for number in range(300):
            tasks.start_soon(one, number)
    assert engine.running == 0
    snapshot = batcher.snapshot()
    assert snapshot.arrived == sum(snapshot.ended.values()) == 300
    assert snapshot.ended[Outcome.FINISHED] > 0
    assert snapshot.ended[Outcome.ABORTED] > 0


async def test_a_waiting_request_that_is_given_up_ends_without_having_entered() -> None:
    engine = Engine(two_words)
    gate = Gate(0)
    batcher = Batcher(engine, gate)
    seen: list[list[Admitted | TextDelta | GenerationEnd]] = []

    async def first() -> None:
        seen.append(await collect(batcher, asking("partial", RequestClass.PARTIAL)))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(first)
        await anyio.wait_all_tasks_blocked()
        gate.abort, gate.size = {1}, 1
        await collect(batcher, asking("final"))
    assert seen == [[GenerationEnd(FinishReason.ABORTED, TokenUsage())]]
    assert [request.request_id for request in engine.seen] == ["final"]
    check_books(batcher, finished=1, aborted=1)


async def test_requests_of_one_decision_are_one_batch() -> None:
    engine = Engine(two_words)
    gate = Gate(0)
    batcher = Batcher(engine, gate)
    async with anyio.create_task_group() as tasks:
        for name in ("one", "two"):
            tasks.start_soon(collect, batcher, asking(name))
            await anyio.wait_all_tasks_blocked()
        gate.size = 2
        tasks.start_soon(collect, batcher, asking("three"))
    batches = {request.request_id: (request.batch, request.batch_size) for request in engine.seen}
    assert batches["one"] == batches["two"] == (1, 2)
    assert batches["three"] == (2, 1)


@dataclass
class Moving:
    """A placement whose replica changes while requests wait."""

    placed: Placed
    asked: list[str] = field(default_factory=list)

    def place(self, request: GenerationRequest) -> Placed:
        self.asked.append(request.request_id)
        return self.placed


async def test_a_request_is_placed_when_it_arrives_and_again_when_it_enters() -> None:
    engine = Engine(two_words)
    gate = Gate(0)
    moving = Moving(Placed("dead", 64))
    batcher = Batcher(engine, gate, placement=moving)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(collect, batcher, asking("one"))
        await anyio.wait_all_tasks_blocked()
        moving.placed = Placed("alive", 32)
        gate.size = 2
        await collect(batcher, asking("two"))
    assert moving.asked == ["one", "two", "one", "two"]
    assert {request.replica for request in engine.seen} == {"alive"}
