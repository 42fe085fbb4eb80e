"""Every setting, persona key, metric and extension message is in the documentation, with the default it really has."""

from __future__ import annotations

import dataclasses
import re
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from duolog.personas import Persona
from duolog.settings import Settings
from duolog.strict_yaml import setting_paths
from duolog.telemetry.metrics import REGISTRY

pytestmark = pytest.mark.pure
ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


def rows(page: str) -> dict[str, str]:
    """First column (without backticks) → the row, of every table row of a page that starts with code."""
    found = re.findall(r"^\| `([^`]+)` (\|.*)$", (DOCS / page).read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(found)


def shown(field: dataclasses.Field[Any]) -> str:
    if field.default is not dataclasses.MISSING:
        value = field.default
    else:
        assert field.default_factory is not dataclasses.MISSING
        value = field.default_factory()
    if isinstance(value, Enum):
        return str(value.value)
    return {"None": "null", "()": "[]", "True": "true", "False": "false"}.get(str(value), str(value))


@pytest.mark.parametrize(("path", "field"), list(setting_paths(Settings)), ids=lambda value: str(value)[:40])
def test_a_setting_is_documented_with_its_default(path: str, field: dataclasses.Field[Any]) -> None:
    assert rows("settings.md").get(path, "").startswith(f"| `{shown(field)}` | "), f"docs/settings.md: `{path}`"


def test_no_setting_is_documented_that_there_is_not() -> None:
    assert set(rows("settings.md")) == {path for path, _ in setting_paths(Settings)}


def test_persona_keys_are_documented() -> None:
    keys = {path for path, _ in setting_paths(Persona)} - {"id", "version"}
    assert {key for key in rows("personas.md") if " " not in key} >= keys


def test_the_shipped_personas_are_documented() -> None:
    assert set(rows("personas.md")) >= {file.stem for file in (ROOT / "configs" / "personas").glob("*.yaml")}


def test_metrics_are_documented_and_no_others() -> None:
    named = {family.name for family in REGISTRY.collect() if not family.name.startswith("process_")}
    assert set(rows("metrics.md")) == named


def test_extension_messages_are_documented() -> None:
    quoted = re.compile(r"\"(duolog\.[a-z_]+(?:\.[a-z_]+)?)\"")
    sources = (ROOT / "server" / "duolog" / "realtime").rglob("*.py")
    used = {name for source in sources for name in quoted.findall(source.read_text(encoding="utf-8"))}
    page = (DOCS / "extensions.md").read_text(encoding="utf-8")
    assert not {name for name in used if f"`{name}`" not in page}
