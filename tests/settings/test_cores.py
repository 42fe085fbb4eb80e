"""Who computes on which core."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duolog.cores import CoreMap, has_bfloat16, machine_cores, share_cores, vllm_binding
from duolog.settings import AsrSettings, LlmEngine, LlmSettings, Profile, Settings

pytestmark = pytest.mark.pure


@pytest.mark.parametrize(
    ("cores", "expected", "binding"),
    [
        ((0,), CoreMap((0,), (0,), (0,)), "auto"),
        ((0, 1), CoreMap((0, 1), (1,), (1,)), "0,1"),
        ((0, 1, 2), CoreMap((0, 1), (2,), (2,)), "0,1"),
        ((2, 3, 5, 7), CoreMap((2, 3), (5,), (7,)), "2,3"),
    ],
)
def test_speech_has_the_last_cores(cores: tuple[int, ...], expected: CoreMap, binding: str) -> None:
    shared = share_cores(Settings(), cores)
    assert shared == expected
    assert vllm_binding(Settings(), shared) == binding


def test_of_two_cores_the_tiny_model_has_one_and_replicas_share_it() -> None:
    one = CoreMap((0,), (1,), (1,))
    assert share_cores(Settings(profile=Profile.TINY), (0, 1)) == one
    assert share_cores(Settings(llm=LlmSettings(replicas=2)), (0, 1)) == one
    other = Settings(profile=Profile.TINY, llm=LlmSettings(model="/models/larger"))
    assert share_cores(other, (0, 1)).llm == (0, 1)


def test_the_settings_own_choice_wins() -> None:
    settings = Settings(asr=AsrSettings(cores=(3,)), llm=LlmSettings(threads_bind="0-5"))
    shared = share_cores(settings, range(8))
    assert shared.asr == (3,)
    assert vllm_binding(settings, shared) == "0-5"


def test_a_chat_model_in_the_server_has_the_cores_of_the_own_vllm() -> None:
    embedded = Settings(llm=LlmSettings(engine=LlmEngine.TRANSFORMERS))
    for cores in ((0,), (0, 1, 2), (0, 1, 2, 3)):
        assert share_cores(embedded, cores) == share_cores(Settings(), cores)
    assert share_cores(embedded, (0, 1)).llm == (0,)


def test_with_the_llm_elsewhere_speech_may_use_every_core() -> None:
    settings = Settings(llm=LlmSettings(base_url="http://gpu/v1"))
    assert share_cores(settings, (0, 1)) == CoreMap((0, 1), (0, 1), (0, 1))


@pytest.mark.parametrize(
    ("cores", "replicas", "bindings"),
    [
        ((0, 1), 2, ["0", "0"]),
        ((0, 1, 2, 3), 2, ["0", "1"]),
        (range(8), 2, ["0,1,2", "3,4,5"]),
        (range(9), 3, ["0,1", "2,3", "4,5,6"]),
        (range(4), 3, ["0", "1", "0"]),
    ],
)
def test_replicas_share_the_cores_of_the_llm_out(cores: Iterable[int], replicas: int, bindings: list[str]) -> None:
    settings = Settings(llm=LlmSettings(replicas=replicas))
    shared = share_cores(settings, cores)
    assert [vllm_binding(settings, shared, replica) for replica in range(replicas)] == bindings


@given(st.sets(st.integers(0, 63), min_size=3))
def test_no_core_of_the_llm_is_shared(cores: set[int]) -> None:
    shared = share_cores(Settings(), cores)
    assert not set(shared.llm) & {*shared.asr, *shared.tts}
    assert {*shared.llm, *shared.asr, *shared.tts} <= cores


def test_a_twin_of_a_physical_core_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1, 2, 3})
    for core, siblings in enumerate(("0,2", "1,3", "0,2", "1,3")):
        (folder := tmp_path / f"cpu{core}" / "topology").mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{siblings}\n")
    assert machine_cores(tmp_path) == (0, 1)
    assert machine_cores(tmp_path / "absent") == (0, 1, 2, 3)


def test_two_twins_alone_count_as_two_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1})
    for core in range(2):
        (folder := tmp_path / f"cpu{core}" / "topology").mkdir(parents=True)
        (folder / "thread_siblings_list").write_text("0-1\n")
    assert machine_cores(tmp_path) == (0, 1)


@pytest.mark.parametrize(
    ("cpuinfo", "expected"),
    [
        ("model name : AMD EPYC\nflags\t\t: fpu avx2 fma avx512f avx512_bf16\n", True),
        ("flags\t\t: fpu avx2 fma\n", False),
        ("model name : bf16 machine\nflags : avx2\n", False),
        ("Features\t: fp asimd bf16\n", True),
    ],
)
def test_bfloat16_is_read_from_the_processors_flags(tmp_path: Path, cpuinfo: str, expected: bool) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text(cpuinfo)
    assert has_bfloat16(file) is expected


def test_unknown_processor_has_no_bfloat16(tmp_path: Path) -> None:
    assert not has_bfloat16(tmp_path / "absent")
