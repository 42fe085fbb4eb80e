"""Personas: the shipped ones, wrong files, and reloading."""

from __future__ import annotations

import shutil
from pathlib import Path

import anyio
import pytest
from structlog.testing import capture_logs

from duolog.personas import PersonaLibrary, Priority, load_persona
from duolog.ports.errors import ConfigurationError

pytestmark = pytest.mark.real
SHIPPED = Path(__file__).resolve().parents[2] / "configs" / "personas"

MINIMAL = "name: Bo\nlanguages: [en]\ninstructions: Be brief.\ngreeting: Hi.\napology: Sorry.\nvoice: joe\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "ava.yaml").write_text(MINIMAL, encoding="utf-8")
    return tmp_path


def test_the_shipped_personas_load_and_differ() -> None:
    everyone = PersonaLibrary(SHIPPED).all()
    assert everyone[0].id == "ava"
    assert len(everyone) >= 5
    assert len({one.instructions for one in everyone}) == len(everyone)
    assert max(one.speed for one in everyone) - min(one.speed for one in everyone) >= 0.4
    assert len({one.turn_taking.silence_ms for one in everyone}) >= 4
    assert any("zh" in one.languages for one in everyone)
    for one in everyone:
        assert one.description, one.id
        assert len(one.instructions) < 400, "small models follow few, short sentences"


def test_what_a_file_leaves_out_has_a_default(folder: Path) -> None:
    persona = load_persona(folder / "ava.yaml")
    assert (persona.id, persona.speed, persona.priority) == ("ava", 1.0, Priority.NORMAL)
    assert persona.sampling.temperature == 0.7
    assert persona.turn_taking.silence_ms == 500
    assert persona.spoken_language == "en"


def test_the_version_follows_the_file(folder: Path) -> None:
    before = load_persona(folder / "ava.yaml").version
    (folder / "ava.yaml").write_text(MINIMAL + "speed: 1.1\n", encoding="utf-8")
    assert load_persona(folder / "ava.yaml").version != before


@pytest.mark.parametrize(
    ("addition", "message"),
    [
        ("voicee: x\n", "ava.yaml, line 7: unknown key `voicee`; did you mean `voice`? Allowed here: name, languages"),
        ("sampling:\n  temp: 1\n", "ava.yaml, line 8: unknown key `sampling.temp`; did you mean `temperature`?"),
        (
            "sampling:\n  temperature: 9\n",
            "ava.yaml, line 7: `sampling`: temperature must be from 0.0 to 2.0, but is 9.0.",
        ),
        ("turn_taking: {silence_ms: 5}\n", "ava.yaml, line 7: `turn_taking.silence_ms`: input should be greater than"),
        ("priority: top\n", "ava.yaml, line 7: `priority`: input should be 'low', 'normal' or 'high'."),
        ("id: x\n", "ava.yaml, line 7: unknown key `id`"),
        ("speed: 9\n", "ava.yaml, line 7: `speed`: input should be less than or equal to 2."),
    ],
)
def test_a_wrong_key_or_value_is_named_with_its_line(folder: Path, addition: str, message: str) -> None:
    (folder / "ava.yaml").write_text(MINIMAL + addition, encoding="utf-8")
    with pytest.raises(ConfigurationError) as caught:
        PersonaLibrary(folder)
    assert str(caught.value).removeprefix(f"{folder}/").startswith(message)


def test_a_missing_key_is_named(folder: Path) -> None:
    (folder / "ava.yaml").write_text("name: Bo\n", encoding="utf-8")
    with pytest.raises(ConfigurationError, match="`greeting` is missing; add it"):
        PersonaLibrary(folder)


def test_a_file_that_is_no_text_is_an_error(folder: Path) -> None:
    (folder / "ava.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigurationError, match=r"ava\.yaml cannot be read"):
        PersonaLibrary(folder)


def test_the_default_must_exist(folder: Path) -> None:
    with pytest.raises(ConfigurationError, match="default persona `eve` is not in"):
        PersonaLibrary(folder, default="eve")


def test_an_unknown_id_is_the_default(folder: Path) -> None:
    assert PersonaLibrary(folder).get("gpt-realtime").id == "ava"


def test_reloading_takes_changes_and_keeps_what_is_broken_now(folder: Path) -> None:
    shutil.copy(folder / "ava.yaml", folder / "bo.yaml")
    shutil.copy(folder / "ava.yaml", folder / "cy.yaml")
    library = PersonaLibrary(folder)
    (folder / "bo.yaml").write_text("name: [", encoding="utf-8")
    (folder / "cy.yaml").unlink()
    (folder / "di.yaml").write_text(MINIMAL, encoding="utf-8")
    (folder / "ava.yaml").unlink()

    with capture_logs() as logs:
        assert library.reload_changed() == ("cy", "di")

    assert [one.id for one in library.all()] == ["ava", "bo", "di"]
    assert library.get("bo").name == "Bo"
    assert [entry["event"] for entry in logs] == ["persona not reloaded"]
    assert "bo.yaml, line 1" in logs[0]["reason"]


@pytest.mark.slow
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_change_of_a_file_is_noticed(folder: Path) -> None:
    library = PersonaLibrary(folder)
    async with anyio.create_task_group() as group:
        group.start_soon(library.watch)
        with anyio.fail_after(20):
            attempt = 0
            while library.get("ava").greeting == "Hi.":
                attempt += 1
                (folder / "ava.yaml").write_text(MINIMAL.replace("Hi.", f"Hello {attempt}."), encoding="utf-8")
                await anyio.sleep(0.4)
        group.cancel_scope.cancel()
