"""Doctor's verdicts: what each failure says and what it tells the person to do."""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from pathlib import Path

import pytest
from typer import Typer
from typer.testing import CliRunner

from duolog import doctor
from duolog.doctor import CheckResult, Installation, Verdict
from duolog.models.manifest import load_manifest
from duolog.models.store import ModelStore
from duolog.ports.errors import ConfigurationError
from duolog.settings import Profile, ServerSettings, Settings

pytestmark = pytest.mark.real

MANIFEST = Path(__file__).resolve().parents[2] / "configs" / "models.yaml"


@pytest.fixture
def installation(tmp_path: Path) -> Installation:
    """An installation without models."""
    return Installation(Settings(), ModelStore(tmp_path / "models", load_manifest(MANIFEST)), tmp_path)


def results(check: str, installation: Installation) -> list[CheckResult]:
    return doctor.run([check], installation)


def test_packages_differ_from_the_lock() -> None:
    lock = "numpy==2.3.5 \\\n    --hash=sha256:00\nPyYAML==6.0.4 \\\nsix==1.17.0 \\\n"
    installed = {"numpy": "2.4.0", "pyyaml": "6.0.4"}
    assert list(doctor.differences(lock, installed)) == ["numpy 2.4.0 instead of 2.3.5", "six is missing"]


@pytest.mark.slow
def test_a_missing_package_says_make_setup(installation: Installation) -> None:
    for kind in ("cpu", "gpu"):
        (installation.locks / f"{kind}.txt").write_text("no-such-package==1.0 \\\n", encoding="utf-8")
    (found,) = results("packages", installation)
    assert found.verdict is Verdict.FAILED
    assert "no-such-package is missing" in found.found
    assert "make setup" in found.mend


def test_cuda_extension_files_beside_a_cpu_torch(tmp_path: Path) -> None:
    assert doctor.judge_torch("2.13.0+cpu", tmp_path).verdict is Verdict.OK
    (tmp_path / "_torchaudio.so").touch()
    found = doctor.judge_torch("2.13.0+cpu", tmp_path)
    assert found.verdict is Verdict.FAILED
    assert f"delete {tmp_path}/*.so" in found.mend
    assert doctor.judge_torch("2.13.0", tmp_path).verdict is Verdict.OK


def test_absent_models_say_how_to_prepare_them(installation: Installation) -> None:
    found = results("models", installation)
    assert {result.verdict for result in found} == {Verdict.FAILED}
    assert all("duolog models prepare --profile small" in result.mend for result in found)


@pytest.mark.slow
def test_a_taken_port_names_its_setting(installation: Installation) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        settings = replace(installation.settings, server=ServerSettings(port=port))
        wrong = [it for it in results("ports", replace(installation, settings=settings)) if it.mend]
    assert f"port {port}" in wrong[0].found
    assert "`server.port`" in wrong[0].mend


def test_a_full_disk_says_so(tmp_path: Path) -> None:
    found = doctor.judge_disk(tmp_path, free_bytes=10**9, needed_bytes=2 * 10**9)
    assert (found.verdict, "3.0 GB are needed" in found.found) == (Verdict.FAILED, True)
    assert "free some space" in found.mend


def test_a_single_core_is_too_little(installation: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "machine_cores", lambda: (0,))
    assert any(result.verdict is Verdict.FAILED for result in results("cores", installation))


def test_two_cores_are_shared_between_language_and_speech(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "machine_cores", lambda: (0, 1))
    text = doctor.as_text(results("cores", installation))
    assert "vLLM on cores 0, 1 (binding 0,1)" in text, "the default model is larger than the tiny one"
    tiny = replace(installation, settings=replace(installation.settings, profile=Profile.TINY))
    assert "vLLM on core 0 (binding auto)" in doctor.as_text(results("cores", tiny))
    assert "Whisper on core 1, 1 thread" in text
    assert "Coqui in ONNX Runtime on core 1, 1 thread" in text


def test_the_phonemizer_and_the_store_are_here(installation: Installation) -> None:
    for check in ("phonemizer", "store"):
        assert [result.verdict for result in results(check, installation)] == [Verdict.OK]


def test_an_unknown_check_lists_the_known(installation: Installation) -> None:
    with pytest.raises(ConfigurationError, match="There is no check `wings`; choose from packages"):
        doctor.run(["wings"], installation)


@pytest.mark.parametrize("verdict", list(Verdict))
def test_the_exit_code_tells_of_failures(verdict: Verdict, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "run", lambda *_: [CheckResult("disk", verdict, "found", "mend")])
    monkeypatch.setattr(doctor, "open_installation", lambda _: None)
    app = Typer()
    app.command()(doctor.doctor)
    result = CliRunner().invoke(app, ["--json"])
    assert result.exit_code == (1 if verdict is Verdict.FAILED else 0)
    assert json.loads(result.stdout)[0] == {"part": "disk", "verdict": verdict, "found": "found", "mend": "mend"}
