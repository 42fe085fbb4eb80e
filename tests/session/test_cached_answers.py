"""Remembered answers in whole calls: only where the persona allows it, and on the very same path as any other."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest
from tests.serving.fake_cache import FakeByteCache, settle, working
from tests.session.harness import Caller, World, persona, world

from duolog.adapters.scripted_llm import Line
from duolog.personas import Persona
from duolog.ports.llm import Sampling
from duolog.serving.prefill import CHUNK_TOKENS
from duolog.serving.prompt_cache import PromptCache
from duolog.serving.tiered_cache import CacheOptions, TieredCache
from duolog.session.config import ResponseOptions
from duolog.session.events import AudioDelta, PlayoutHeard, ResponseDone, ResponseStatus, TurnTimings
from duolog.turns.conversation import ContentPart, Item, ItemRole, PartKind

pytestmark = pytest.mark.session

GREEDY = persona(sampling=Sampling(temperature=0.0, max_tokens=400))
LINES = {"*": Line("Here is what I know, and it is a lot. There is more where that came from, my friend.")}


@asynccontextmanager
async def remembering(one: Persona, store: FakeByteCache | None = None) -> AsyncGenerator[World, None]:
    async with working() as worker:
        tiers = TieredCache("prompt", store or FakeByteCache(), worker, CacheOptions(1_000_000, 3_600))
        async with world(one=one, lines=LINES, prompt_cache=PromptCache(tiers, "scripted")) as w:
            yield w


async def spoken_turn(caller: Caller) -> ResponseDone:
    """Says the same sentence for the same time in every call."""
    await caller.pause(0.3)
    await caller.say(1.0)
    done = await caller.wait_for(ResponseDone)
    await caller.wait_for(TurnTimings)
    return done


def sound(caller: Caller) -> bytes:
    return b"".join(delta.samples.tobytes() for delta in caller.of(AudioDelta))


async def test_a_call_that_goes_as_another_did_gets_the_same_answer_without_the_model() -> None:
    async with remembering(GREEDY) as w:
        async with w.call() as first:
            made = await spoken_turn(first)
        asked = len(w.llm.requests)
        async with w.call() as second:
            remembered = await spoken_turn(second)
        assert len(w.llm.requests) == asked
    assert first.answers() == second.answers() == [LINES["*"].text]
    assert first.names() == second.names()
    assert sound(first) == sound(second) != b""
    assert remembered.response.usage.cached_tokens == made.response.usage.prompt_tokens
    ours, theirs = second.of(TurnTimings)[0], first.of(TurnTimings)[0]
    assert (theirs.answer_source, ours.answer_source) == ("model", "memory")
    assert ours.admitted_ms is None
    assert None not in (ours.first_token_ms, ours.first_phrase_ms, ours.first_audio_ms, ours.first_audio_sent_ms)
    assert ours.first_token_ms is not None
    assert theirs.first_token_ms is not None
    assert ours.first_token_ms < theirs.first_token_ms


async def test_a_remembered_answer_is_interrupted_as_any_other() -> None:
    async with remembering(GREEDY) as w:
        async with w.call() as first:
            await spoken_turn(first)
        async with w.call() as second:
            await spoken_turn(second)
            await second.pause(3.5)
            await second.say(1.5)
            await second.wait_for(PlayoutHeard)
            await second.wait_for(ResponseDone, 2)
            answers = [one for one in second.call._context.items.conversation if one.role is ItemRole.ASSISTANT]
        assert answers[0].interrupted
        assert LINES["*"].text.startswith(answers[0].text)
        assert 0 < len(answers[0].text) < len(LINES["*"].text)


async def test_a_prompt_that_was_answered_from_memory_is_still_to_be_computed() -> None:
    question = "word " * 5 * CHUNK_TOKENS
    async with remembering(GREEDY) as w:
        for _ in range(2):
            async with w.call() as caller:
                await caller.pause(0.5)
                caller.call.create_item(
                    Item("item_hi", ItemRole.USER, (ContentPart(PartKind.INPUT_TEXT, question),)), None
                )
                caller.call.create_response(ResponseOptions())
                await caller.wait_for(ResponseDone)
                await caller.wait_for_state("listening")
                await caller.pause(1.0)
        assert len(w.llm.requests) == 1
        lengths = [len(one.prompt_ids) for one in w.llm.prefills if one.session_id == caller.call.session_id]
    assert lengths[-1] > 5 * CHUNK_TOKENS
    assert max(after - before for before, after in pairwise([0, *lengths])) <= CHUNK_TOKENS


@pytest.mark.parametrize(
    ("one", "remembers"),
    [
        (GREEDY, True),
        (persona(sampling=Sampling(temperature=0.0, max_tokens=400), cache=False), False),
        (persona(), False),
        (persona(cache=True), True),
        (persona(cache=False), False),
    ],
)
async def test_only_where_the_persona_allows_it(one: Persona, *, remembers: bool) -> None:
    store = FakeByteCache()
    async with remembering(one, store) as w:
        for _ in range(2):
            async with w.call() as caller:
                caller.call.create_item(Item("item_hi", ItemRole.USER, (ContentPart(PartKind.INPUT_TEXT, "hi"),)), None)
                caller.call.create_response(ResponseOptions())
                assert (await caller.wait_for(ResponseDone)).response.status is ResponseStatus.COMPLETED
        await settle()
        assert len([request for request in w.llm.requests if not request.prefill]) == (1 if remembers else 2)
    assert bool(store.held) is remembers
