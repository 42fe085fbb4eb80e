"""Warm-ups of personas: what is computed, when, and who ends it. Scripted engine, virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

import anyio
import pytest
from trio.testing import MockClock

from duolog.adapters.scripted_llm import ScriptedLanguageModel, ScriptedOptions
from duolog.ports.llm import (
    ChatMessage,
    FinishReason,
    GenerationEnd,
    GenerationRequest,
    PromptEnd,
    Role,
    Sampling,
    TextDelta,
)
from duolog.ports.replicas import ReplicaStats
from duolog.serving.batcher import Batcher, BatcherRequest, RequestClass
from duolog.serving.guard import GuardLevel
from duolog.serving.load_limits import LoadLimits
from duolog.serving.persona_warmth import PersonaWarmth
from duolog.serving.pins.observed_engine import ObservedEngine
from duolog.serving.pins.placement import PinnedPlacement
from duolog.serving.policies import AdmissionPolicy, DirectPolicy
from duolog.serving.policies.slo import SloPolicy
from duolog.session.prompts import opening

pytestmark = pytest.mark.session

AVA = "You are Ava, and you like to talk of ships. " * 20
PIP = "You are Pip. You are small and quick, and you never say more than a sentence. " * 10


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "trio", {"clock": MockClock(autojump_threshold=0)}


class House:
    def __init__(self, replicas: Sequence[str] = ("a",), policy: AdmissionPolicy | None = None) -> None:
        self.llm = ScriptedLanguageModel(ScriptedOptions(first_token_s=0.01, prefill_token_s=0.002))
        self.pins = PinnedPlacement(replicas)
        self.batcher = Batcher(ObservedEngine(self.llm, self.pins), policy or SloPolicy(), None, self.pins)
        self.limits = LoadLimits()
        self.personas = {"ava": AVA, "pip": PIP}
        self.warmth = PersonaWarmth(
            self.batcher, self.pins, self.limits, lambda: {one: opening(said) for one, said in self.personas.items()}
        )

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.warmth.run)
            yield
            tasks.cancel_scope.cancel()

    def warmed(self) -> list[tuple[int, ...]]:
        """Prompts of the warm-ups."""
        return [request.prompt_ids for request in self.llm.prefills if request.request_id.startswith("warm_up")]

    async def first_turn(self, instructions: str) -> tuple[float, int, int]:
        """Seconds to the first token, prompt tokens, and of those the cached ones."""
        messages = (*opening(instructions)[:-1], ChatMessage(Role.USER, "Good morning."))
        ids = self.batcher.prompt_ids(messages, PromptEnd.ANSWER)
        request = GenerationRequest("turn", messages, Sampling(), "call", prompt_ids=ids)
        began_at, first_s = anyio.current_time(), 0.0
        stream = self.batcher.generate(BatcherRequest(request, RequestClass.FINAL, began_at))
        async with aclosing(stream):
            async for value in stream:
                if isinstance(value, GenerationEnd):
                    assert value.reason is FinishReason.STOP
                    return first_s, value.usage.prompt_tokens, value.usage.cached_tokens
                if isinstance(value, TextDelta):
                    first_s = first_s or anyio.current_time() - began_at
        raise AssertionError("an answer without an end")


async def test_the_first_turn_of_every_persona_finds_its_prompt() -> None:
    house = House()
    async with house.open():
        await anyio.sleep(10)
        for instructions in house.personas.values():
            _, prompt_tokens, cached_tokens = await house.first_turn(instructions)
            assert cached_tokens >= prompt_tokens - 64


async def test_what_is_warm_is_not_computed_again() -> None:
    house = House()
    async with house.open():
        await anyio.sleep(10)
        count = len(house.warmed())
        await anyio.sleep(600)
        assert len(house.warmed()) == count > 0


async def test_every_replica_is_warmed_up_and_a_restarted_one_again() -> None:
    house = House(("a", "b"))
    async with house.open():
        await anyio.sleep(20)
        asked = [request.replica for request in house.llm.prefills]
        assert asked.count("a") == asked.count("b") > 0
        for epoch in ("1", "2"):
            house.pins.learn("b", ReplicaStats(epoch, None, 0.0, 0, 0))
        await anyio.sleep(60)
        again = [request.replica for request in house.llm.prefills][len(asked) :]
        assert set(again) == {"b"}
        assert len(again) == asked.count("b")


async def test_a_changed_persona_is_warmed_up() -> None:
    house = House()
    async with house.open():
        await anyio.sleep(10)
        house.personas["pip"] = "You are Pip the second. " * 30
        await anyio.sleep(10)
        _, prompt_tokens, cached_tokens = await house.first_turn(house.personas["pip"])
    assert cached_tokens >= prompt_tokens - 64


async def test_evicted_blocks_are_computed_again_but_not_all_the_time() -> None:
    house = House()
    async with house.open():
        await anyio.sleep(10)
        count = len(house.warmed())
        for _ in range(600):
            house.pins.replicas["a"].residency.clear()
            await anyio.sleep(0.1)
        assert count < len(house.warmed()) <= 3 * count


@pytest.mark.parametrize("policy", [SloPolicy(), DirectPolicy()], ids=["slo", "direct"])
async def test_whatever_comes_ends_a_warm_up(policy: AdmissionPolicy) -> None:
    house = House(policy=policy)
    async with house.open():
        await anyio.sleep(0.55)
        assert house.batcher.snapshot().in_flight[RequestClass.WARM_UP] == 1
        turn_s, _, _ = await house.first_turn("Be short.")
        assert turn_s < 1.0
        assert house.batcher.snapshot().in_flight[RequestClass.WARM_UP] == 0
        count = len(house.warmed())
        await anyio.sleep(0.5)
        assert len(house.warmed()) == count, "calls that pause for a moment are left alone"
        await anyio.sleep(10)
        assert len(house.warmed()) > count


async def test_under_load_nothing_is_warmed_up() -> None:
    house = House()
    house.limits.level = GuardLevel.NO_EXTRAS
    async with house.open():
        await anyio.sleep(60)
        assert house.warmed() == []
        house.limits.level = GuardLevel.NORMAL
        await anyio.sleep(60)
        assert house.warmed()


async def test_personas_that_do_not_fit_are_left_out() -> None:
    house = House()
    house.pins.replicas["a"].kept.total_blocks = 32
    async with house.open():
        await anyio.sleep(60)
    ava = house.batcher.prompt_ids(opening(AVA), PromptEnd.OPEN)
    assert all(ids == ava[: len(ids)] for ids in house.warmed())
