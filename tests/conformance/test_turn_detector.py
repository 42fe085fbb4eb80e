"""What every TurnDetector keeps to: the same tests for the scripted one and for Smart Turn."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import numpy as np
import pytest
from numpy.typing import NDArray

from duolog.adapters.scripted_turn_detector import ScriptedTurnDetector
from duolog.adapters.smart_turn import SmartTurn
from duolog.loadtest.audio_files import read_speech
from duolog.ports.errors import EngineRejected, EngineUnavailable, ModelMissing
from duolog.ports.turn_detector import TurnDetector

FOLDER = Path(__file__).resolve().parents[2] / ".duolog" / "models" / "smart-turn-v3.2"


def smart_turn() -> TurnDetector:
    if not FOLDER.is_dir():
        pytest.skip("Smart Turn is not in the model store; run `duolog models prepare`")
    return SmartTurn(FOLDER)


DETECTORS = [
    pytest.param(ScriptedTurnDetector, marks=pytest.mark.pure, id="scripted"),
    pytest.param(smart_turn, marks=pytest.mark.real, id="smart-turn"),
]
New = Callable[[], TurnDetector]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@asynccontextmanager
async def closing(new: New) -> AsyncGenerator[TurnDetector, None]:
    detector = new()
    try:
        yield detector
    finally:
        await detector.aclose()


def noise(seconds: float) -> NDArray[np.float32]:
    return np.random.default_rng(3).normal(0, 0.05, int(seconds * 16_000)).astype(np.float32)


def speech(corpus: Path, name: str) -> NDArray[np.float32]:
    return read_speech(corpus / name).astype(np.float32) / np.float32(32_768)


@pytest.mark.parametrize("new", DETECTORS)
@pytest.mark.parametrize("seconds", [0.0, 0.1, 2.0, 12.0])
async def test_any_length_gets_a_probability(new: New, seconds: float) -> None:
    async with closing(new) as detector:
        await detector.warm_up()
        assert 0.0 <= await detector.probability(noise(seconds)) <= 1.0


@pytest.mark.parametrize("new", DETECTORS)
async def test_only_the_last_eight_seconds_count(new: New) -> None:
    async with closing(new) as detector:
        last = noise(8.0)
        before = np.concatenate([np.ones(16_000, np.float32), last])
        assert await detector.probability(before) == await detector.probability(last)


@pytest.mark.parametrize("new", DETECTORS)
async def test_who_gives_up_gets_control_back_at_once_and_others_are_served(new: New) -> None:
    async with closing(new) as detector:
        await detector.warm_up()
        with anyio.move_on_after(0) as scope:
            await detector.probability(noise(4.0))
        assert scope.cancelled_caught
        assert 0.0 <= await detector.probability(noise(1.0)) <= 1.0


@pytest.mark.parametrize("new", DETECTORS)
async def test_closing_twice_is_no_error(new: New) -> None:
    async with closing(new) as detector:
        await detector.aclose()


@pytest.mark.real
@pytest.mark.corpus
async def test_smart_turn_hears_the_labelled_turns(corpus: Path) -> None:
    async with closing(smart_turn) as detector:
        unfinished = [
            await detector.probability(speech(corpus, f"turn/sm_smart_turn_0{number}_false.wav")) for number in (1, 2)
        ]
        complete = await detector.probability(speech(corpus, "en/sb_spk2_snt5.wav"))
    assert max(unfinished) < 0.3
    assert complete > 0.7


@pytest.mark.real
async def test_smart_turn_refuses_what_is_no_sound() -> None:
    async with closing(smart_turn) as detector:
        with pytest.raises(EngineRejected, match="mono"):
            await detector.probability(np.zeros((2, 16_000), np.float32))
        with pytest.raises(EngineRejected, match="finite"):
            await detector.probability(np.full(16_000, np.nan, np.float32))


@pytest.mark.real
async def test_smart_turn_after_its_end_says_so() -> None:
    detector = smart_turn()
    await detector.aclose()
    with pytest.raises(EngineUnavailable, match="turn"):
        await detector.probability(noise(1.0))


@pytest.mark.real
def test_smart_turn_without_its_file_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(ModelMissing, match="duolog models prepare"):
        SmartTurn(tmp_path)


@pytest.mark.real
async def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "smart-turn-v3.2-cpu.onnx").write_bytes(b"no model")
    detector = SmartTurn(tmp_path)
    try:
        with pytest.raises(ModelMissing, match="delete it"):
            await detector.warm_up()
    finally:
        await detector.aclose()
