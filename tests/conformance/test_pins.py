"""KV pins over two real vLLMs: names of blocks as theirs, calls that stay, a replica that dies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import aclosing

import anyio
import pytest
from tests.services import Service, running_replicas

from duolog.adapters.replicated_llm import ReplicatedLanguageModel
from duolog.building import build_adapters, pin_options
from duolog.ports.llm import GenerationEnd, GenerationRequest, Sampling
from duolog.serving.batcher import Batcher, BatcherRequest, RequestClass
from duolog.serving.pins.keeper import PinKeeper
from duolog.serving.pins.observed_engine import ObservedEngine
from duolog.serving.pins.placement import PinnedPlacement
from duolog.serving.policies import DirectPolicy
from duolog.settings import (
    AsrSettings,
    Settings,
    SpeechEngine,
    TtsSettings,
    TurnDetectorEngine,
    TurnDetectorSettings,
    VadSettings,
)

pytestmark = [pytest.mark.real, pytest.mark.slow]
SESSIONS = 6


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def replicas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Settings, list[Service]]]:
    with running_replicas(tmp_path_factory.mktemp("replicas")) as found:
        yield found


def prompt(session: int, length: int) -> tuple[int, ...]:
    return tuple(1_000 + (37 * session + place * 11) % 20_000 for place in range(length))


def assert_named_alike(pins: PinnedPlacement, session: int, home: str) -> None:
    """vLLM's events name the blocks of the session's prompt as we do."""
    names, held = pins.sessions[f"s{session}"].asked.hashes, pins.replicas[home].residency
    assert [held.copies_of(name) for name in names] == [1] * 6


async def test_calls_stay_and_one_replica_may_die(replicas: tuple[Settings, list[Service]]) -> None:
    settings, services = replicas
    scripted = SpeechEngine.SCRIPTED
    settings = Settings(
        asr=AsrSettings(engine=scripted),
        vad=VadSettings(engine=scripted),
        tts=TtsSettings(engine=scripted),
        turn_detector=TurnDetectorSettings(engine=TurnDetectorEngine.NONE),
        llm=settings.llm,
        pins=settings.pins,
        store=settings.store,
    )
    adapters = build_adapters(settings)
    assert isinstance(adapters.llm, ReplicatedLanguageModel)
    pins = PinnedPlacement(adapters.replicas, pin_options(settings))
    batcher = Batcher(ObservedEngine(adapters.llm, pins), DirectPolicy(), placement=pins)
    keeper = PinKeeper(pins, batcher, adapters.pin_sources)

    async def turn(session: int, length: int) -> GenerationEnd:
        generation = GenerationRequest(
            f"turn-{session}-{length}",
            (),
            Sampling(0.0, max_tokens=4),
            f"s{session}",
            prompt_ids=prompt(session, length),
        )
        async with aclosing(batcher.generate(BatcherRequest(generation, RequestClass.FINAL, 0.0))) as stream:
            async for value in stream:
                if isinstance(value, GenerationEnd):
                    return value
        raise AssertionError("no end")

    async with anyio.create_task_group() as tasks:
        adapters.llm.listen(pins.set_alive)
        tasks.start_soon(adapters.llm.watch)
        tasks.start_soon(keeper.run)
        with anyio.fail_after(60):
            while len(adapters.llm.alive) < 2 or not all(one.epoch for one in pins.replicas.values()):  # noqa: ASYNC110 - rejected: real services have no event
                await anyio.sleep(0.1)
        for session in range(SESSIONS):
            await turn(session, 200)
        await anyio.sleep(1)
        homes = {session: pins.sessions[f"s{session}"].replica for session in range(SESSIONS)}
        assert set(homes.values()) == set(adapters.replicas), "new calls spread"
        for session, home in homes.items():
            assert_named_alike(pins, session, home)

        ends = [await turn(session, 240) for session in range(SESSIONS)]
        assert [end.usage.cached_tokens for end in ends] == [192] * SESSIONS
        assert {session: pins.sessions[f"s{session}"].replica for session in range(SESSIONS)} == homes

        await anyio.to_thread.run_sync(services[0].kill)
        ends = [await turn(session, 280) for session in range(SESSIONS)]
        assert all(end.usage.completion_tokens for end in ends), "no call is lost"
        left = adapters.replicas[1]
        assert {session.replica for session in pins.sessions.values()} == {left}
        ends = [await turn(session, 300) for session in range(SESSIONS)]
        assert all(end.usage.cached_tokens == 256 for end in ends)
        tasks.cancel_scope.cancel()
    for adapter in (adapters.llm, adapters.store, adapters.pin_sources.monitor, adapters.pin_sources.store):
        assert adapter is not None
        await adapter.aclose()
