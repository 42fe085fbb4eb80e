"""The LLM server refuses, stalls, dies or talks nonsense: the persona apologises, and the next turn works."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from functools import partial

import anyio
import numpy as np
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from tests.app.guest import Guest, utterance, visiting
from tests.app.running import RunningApp, eventually, running, scripted
from tests.llm_server import (
    DONE,
    LAST,
    SSE_HEAD,
    Manner,
    Server,
    answer,
    event,
    good_answer,
    piece,
    serving,
    streams,
)

from duolog.settings import LlmSettings

pytestmark = [pytest.mark.real, pytest.mark.slow]

APOLOGY = "Sorry, I lost my train of thought. Could you say that again?"
HALF = piece("The sea is wide. And it")
WELL = good_answer("All is", " well now.")
CARD = answer(200, '{"data": [{"id": "tiny"}]}')


@pytest.fixture(scope="module")
def portal() -> Iterator[BlockingPortal]:
    with start_blocking_portal() as made:
        yield made


@pytest.fixture(scope="module")
def llm(portal: BlockingPortal) -> Iterator[Server]:
    with portal.wrap_async_context_manager(serving(Server(WELL, card=CARD))) as server:
        yield server


@pytest.fixture(scope="module")
def house(llm: Server) -> Iterator[RunningApp]:
    with running(scripted(llm=settings(llm))) as application:
        yield application
        assert application.failures() == []


def settings(llm: Server) -> LlmSettings:
    return LlmSettings(
        base_url=f"http://127.0.0.1:{llm.port}/v1",
        model="tiny",
        connect_timeout_s=0.5,
        first_token_timeout_s=0.5,
        token_timeout_s=0.4,
    )


@pytest.fixture
async def guest(house: RunningApp, llm: Server) -> AsyncIterator[Guest]:
    llm.manner = WELL
    async with visiting(house) as visitor:
        yield visitor
    llm.manner = WELL


@pytest.mark.parametrize(
    ("manner", "heard"),
    [
        (partial(streams), ""),
        (partial(streams, answer(503, '{"error": {"message": "queue full"}}')), ""),
        (partial(streams, answer(400, '{"error": {"message": "prompt too long"}}')), ""),
        (partial(streams, 3.0), ""),
        (partial(streams, SSE_HEAD, 3.0), ""),
        (partial(streams, SSE_HEAD, HALF, 3.0), "The sea is wide."),
        (partial(streams, SSE_HEAD, HALF), "The sea is wide."),
        (partial(streams, SSE_HEAD, event('{"error": {"message": "boom", "code": 500}}'), DONE, LAST), ""),
        (partial(streams, SSE_HEAD, HALF, event('{"error": {"message": "boom"}}'), DONE, LAST), "The sea is wide."),
        (partial(streams, SSE_HEAD, event("{not json"), LAST), ""),
    ],
    ids=[
        "hangs up",
        "refuses",
        "rejects",
        "stalls",
        "stalls after its head",
        "stalls in mid-sentence",
        "dies in mid-sentence",
        "error in a 200 stream",
        "error in mid-sentence",
        "nonsense",
    ],
)
async def test_the_apology_is_spoken_and_the_next_turn_works(
    guest: Guest, llm: Server, manner: Manner, heard: str
) -> None:
    llm.manner = manner
    await guest.type("Tell me about the sea.")
    failed = (await guest.until("response.done")).response
    assert failed.status == "failed"
    assert "127.0.0.1" in failed.status_details.error.message
    text = failed.output[0].content[0].transcript
    assert text.startswith(heard)
    assert text.endswith(APOLOGY)
    assert np.abs(guest.audio()).max() > 3_000

    llm.manner = WELL
    await guest.type("And now?")
    done = (await guest.until("response.done")).response
    assert (done.status, done.output[0].content[0].transcript) == ("completed", "All is well now.")
    assert guest.of("error") == []


async def test_a_spoken_turn_is_apologised_for_too(guest: Guest, llm: Server) -> None:
    llm.manner = partial(streams, answer(500, ""))
    await guest.speak(utterance(0.8))
    failed = (await guest.until("response.done")).response
    assert failed.status == "failed"
    assert failed.output[0].content[0].transcript == APOLOGY
    assert guest.of("conversation.item.input_audio_transcription.completed")[0]["transcript"]


def test_a_server_that_goes_away_and_comes_back(portal: BlockingPortal) -> None:
    llm = Server(WELL, card=CARD)
    presence = portal.wrap_async_context_manager(serving(llm))
    presence.__enter__()
    with running(scripted(llm=settings(llm))) as house:

        async def call() -> None:
            async with visiting(house) as guest:
                await anyio.to_thread.run_sync(presence.__exit__, None, None, None)
                await guest.type("Hello?")
                failed = (await guest.until("response.done")).response
                assert "refused the connection" in failed.status_details.error.message
                assert failed.output[0].content[0].transcript == APOLOGY
                with portal.wrap_async_context_manager(serving(llm)):
                    await guest.type("Hello?")
                    assert (await guest.until("response.done")).response.status == "completed"

        anyio.run(call)


def test_a_server_that_comes_late_is_waited_for(portal: BlockingPortal) -> None:
    llm = Server(WELL, card=answer(503, '{"error": {"message": "loading"}}'))
    with portal.wrap_async_context_manager(serving(llm)), running(scripted(llm=settings(llm)), ready=False) as house:

        async def check() -> None:
            await eventually(lambda: bool(llm.requests))
            parts = await house.parts()
            assert parts["llm"]["ready"] is False
            llm.card = CARD
            await eventually(house.ready)
            async with visiting(house) as guest:
                await guest.type("Hello?")
                assert (await guest.until("response.done")).response.status == "completed"

        anyio.run(check)
