"""A server that computes the chat model itself: typed calls, one and several at once, answered in batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import anyio
import pytest
from tests.app.guest import visiting
from tests.app.running import ROOT, RunningApp, running, scripted
from tests.services import TINY_MODEL

from duolog.settings import BatcherSettings, BatchPolicy, LlmEngine, LlmSettings, Profile

pytestmark = [pytest.mark.real, pytest.mark.slow]

LOAD_S = 60.0


@pytest.fixture(scope="module", params=[BatchPolicy.SLO, BatchPolicy.TARGET_SIZE])
def house(request: pytest.FixtureRequest) -> Iterator[RunningApp]:
    if not (TINY_MODEL / "model.safetensors").exists():
        pytest.skip("no model in .duolog/models/smollm2-135m; run `duolog models prepare --profile tiny`")
    settings = replace(
        scripted(llm=LlmSettings(engine=LlmEngine.TRANSFORMERS, max_model_len=2_048, first_token_timeout_s=60)),
        profile=Profile.TINY,
        models_dir=ROOT / ".duolog" / "models",
        batcher=BatcherSettings(policy=request.param),
    )
    with running(settings, patience_s=LOAD_S) as application:
        yield application
        assert application.failures() == []


async def answer(house: RunningApp, said: str, into: list[str]) -> None:
    async with visiting(house) as guest:
        await guest.type(said)
        done = await guest.until("response.done")
        assert done.response.status in ("completed", "incomplete"), done  # incomplete: as long as it may be
        into.append(done.response.output[0].content[0].transcript)


async def test_a_typed_turn_is_answered(house: RunningApp) -> None:
    answers: list[str] = []
    await answer(house, "Tell me about the sea.", answers)
    assert len(answers[0].split()) > 2
    assert "loading" not in (await house.parts())["llm"]["detail"]


async def test_calls_at_once_are_all_answered(house: RunningApp) -> None:
    answers: list[str] = []
    async with anyio.create_task_group() as tasks:
        for number in range(3):
            tasks.start_soon(answer, house, f"Tell me about the number {number}.", answers)
    assert len(answers) == 3
    assert all(answers)
