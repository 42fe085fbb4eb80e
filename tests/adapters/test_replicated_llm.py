"""Several replicas as one model: who answers, what is tried again, what is not."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest
from trio.testing import MockClock

from duolog.adapters.replicated_llm import PROBE_EVERY_S, ReplicatedLanguageModel
from duolog.ports.errors import EngineRejected, EngineTimeout, EngineUnavailable
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

pytestmark = pytest.mark.session
GONE = EngineUnavailable("gone", engine="llm")


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "trio", {"clock": MockClock(autojump_threshold=0)}


@dataclass
class Replica:
    """Answers with its name, or fails before or after its first word."""

    name: str
    context_tokens: int = 2048
    before: Exception | None = None
    after: Exception | None = None
    probe: Exception | None = None
    hangs: bool = False
    asked: list[str] = field(default_factory=list)
    closed: bool = False

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[TextDelta | GenerationEnd, None]:
        self.asked.append(request.request_id)
        if self.before:
            raise self.before
        yield TextDelta(self.name)
        if self.after:
            raise self.after
        yield GenerationEnd(FinishReason.STOP, TokenUsage())

    def prompt_ids(self, messages: tuple[ChatMessage, ...], end: PromptEnd) -> tuple[int, ...]:
        return tuple(self.name.encode())

    async def warm_up(self) -> None:
        if self.hangs:
            await anyio.sleep_forever()
        if self.probe:
            raise self.probe

    async def aclose(self) -> None:
        self.closed = True

    def die(self) -> None:
        self.before = self.probe = GONE

    def come_back(self) -> None:
        self.before = self.probe = None


def asking(replica: str = "") -> GenerationRequest:
    return GenerationRequest("r", (ChatMessage(Role.USER, "Hi"),), Sampling(), replica=replica)


async def heard(model: ReplicatedLanguageModel, replica: str = "") -> str:
    async with aclosing(model.generate(asking(replica))) as stream:
        return "".join([value.text async for value in stream if isinstance(value, TextDelta)])


@asynccontextmanager
async def watched(*replicas: Replica) -> AsyncIterator[ReplicatedLanguageModel]:
    model = ReplicatedLanguageModel({replica.name: replica for replica in replicas})
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(model.watch)
        await anyio.sleep(PROBE_EVERY_S / 2)
        yield model
        tasks.cancel_scope.cancel()


async def test_the_replica_that_is_named_answers() -> None:
    async with watched(Replica("a"), Replica("b")) as model:
        assert await heard(model, "b") == "b"
        assert await heard(model, "a") == "a"
        assert await heard(model, "unknown") == "a"


async def test_what_has_streamed_nothing_is_answered_by_another() -> None:
    first, second = Replica("a", before=GONE), Replica("b")
    async with watched(first, second) as model:
        assert await heard(model, "a") == "b"
        assert first.asked == second.asked == ["r"]


async def test_an_answer_that_has_begun_is_not_begun_again() -> None:
    second = Replica("b")
    async with watched(Replica("a", after=GONE), second) as model:
        with pytest.raises(EngineUnavailable):
            await heard(model, "a")
        assert second.asked == []


@pytest.mark.parametrize("failure", [EngineRejected("no", engine="llm"), EngineTimeout("slow", engine="llm")])
async def test_what_another_would_not_mend_is_not_tried_there(failure: Exception) -> None:
    second = Replica("b")
    async with watched(Replica("a", before=failure), second) as model:
        with pytest.raises(type(failure)):
            await heard(model, "a")
        assert second.asked == []


async def test_a_dead_replica_is_left_alone_until_it_is_back() -> None:
    first, second = Replica("a"), Replica("b")
    changes: list[tuple[str, bool]] = []
    async with watched(first, second) as model:
        model.listen(lambda name, alive: changes.append((name, alive)))
        first.die()
        assert await heard(model, "a") == "b"
        await anyio.sleep(0.01)
        assert model.alive == {"b"}, "the failed request had it probed at once"
        first.asked.clear()
        assert await heard(model, "a") == "b"
        assert first.asked == []
        first.come_back()
        await anyio.sleep(PROBE_EVERY_S)
        assert await heard(model, "a") == "a"
    assert changes == [("a", True), ("b", True), ("a", False), ("a", True)]


async def test_a_replica_that_hangs_is_away_and_does_not_delay_the_others() -> None:
    first, second = Replica("a"), Replica("b", hangs=True)
    async with watched(first, second) as model:
        assert model.alive == {"a"}
        first.hangs = True
        await anyio.sleep(10)
        assert model.alive == set()


async def test_with_none_alive_the_error_is_that_of_the_one_asked() -> None:
    async with watched(Replica("a", before=GONE, probe=GONE), Replica("b", before=GONE, probe=GONE)) as model:
        with pytest.raises(EngineUnavailable):
            await heard(model, "b")
        with pytest.raises(EngineUnavailable):
            await model.warm_up()


async def test_it_is_ready_with_one_replica_and_knows_the_shortest_context() -> None:
    first, second = Replica("a", context_tokens=4096, probe=GONE), Replica("b")
    model = ReplicatedLanguageModel({"a": first, "b": second})
    await model.warm_up()
    assert (set(model.alive), model.context_tokens) == ({"b"}, 2048)
    assert model.prompt_ids((), PromptEnd.OPEN) == tuple(b"b")
    await model.aclose()
    assert first.closed
    assert second.closed
