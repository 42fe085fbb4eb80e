"""The deployment examples hold together: YAML, settings, flags and the files they name."""

from __future__ import annotations

import configparser
from pathlib import Path

import pytest
import yaml

from duolog.processes.children import COMMON_FLAGS, GPU_FLAGS
from duolog.settings import load_settings

pytestmark = pytest.mark.pure
DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
REQUIRED = {**COMMON_FLAGS, **GPU_FLAGS}


@pytest.mark.parametrize("file", sorted(DEPLOY.rglob("duolog.yaml")), ids=lambda file: file.parent.name)
def test_settings_load_and_start_no_vllm_of_their_own(file: Path) -> None:
    assert not load_settings(file, {}).starts_vllm


@pytest.mark.parametrize("file", sorted(DEPLOY.rglob("*.yaml")), ids=lambda file: file.name)
def test_every_yaml_file_is_a_mapping(file: Path) -> None:
    assert isinstance(yaml.safe_load(file.read_text(encoding="utf-8")), dict)


def test_compose_services_name_files_and_services_that_exist() -> None:
    folder = DEPLOY / "compose"
    services = yaml.safe_load((folder / "compose.yaml").read_text(encoding="utf-8"))["services"]
    for service in services.values():
        assert set(service.get("depends_on", ())) <= services.keys()
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            assert not source.startswith("./") or (folder / source).is_file(), source
    assert (folder / "Dockerfile").is_file()
    settings = load_settings(folder / "duolog.yaml", {})
    assert settings.llm_url.startswith("http://vllm:")
    assert settings.store_url.startswith("redis://redis:")


def test_both_gpu_examples_pass_the_flags_the_server_counts_on() -> None:
    compose = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text(encoding="utf-8"))
    composed = " ".join(compose["services"]["vllm"]["command"]).replace("=", " ")
    unit = (DEPLOY / "gpu" / "vllm.service").read_text(encoding="utf-8").replace("\\\n", " ")
    for flag, value in REQUIRED.items():
        wanted = f"{flag} {value}".strip()
        assert wanted in " ".join(unit.split()), flag
        assert wanted in composed or flag == "--disable-uvicorn-access-log", flag


@pytest.mark.parametrize("file", sorted(DEPLOY.rglob("*.service")), ids=lambda file: file.name)
def test_units_have_their_sections(file: Path) -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(file.read_text(encoding="utf-8").replace("\\\n", " "))
    assert unit.sections() == ["Unit", "Service", "Install"]
    assert unit["Service"]["ExecStart"].startswith("/opt/")
