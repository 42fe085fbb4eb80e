"""Personas: who the caller talks to. One YAML file each, checked on load, reloaded on change.

The file's stem is the persona's id. Knows nothing of calls: a running call keeps the persona it began with.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import anyio
import structlog
import watchfiles
from pydantic import AfterValidator, Field

from duolog.ports.errors import ConfigurationError
from duolog.ports.llm import Sampling
from duolog.strict_yaml import build, parse_document

log = structlog.get_logger(__name__)

NonEmpty = Annotated[str, Field(min_length=1)]


class Priority(StrEnum):
    """Which calls are refused first when the machine is full."""

    LOW = "low"
    NORMAL = "normal"
    HIGH = "high"


class Endpointing(StrEnum):
    """What ends the user's turn."""

    SEMANTIC = "semantic"
    """A pause after what sounds and reads complete; the less it does, the longer the pause must be."""
    SILENCE = "silence"
    """Always the same silence."""


@dataclass(frozen=True, slots=True)
class TurnTaking:
    """How patient a persona is."""

    endpointing: Endpointing = Endpointing.SEMANTIC
    silence_ms: Annotated[int, Field(ge=100, le=5_000)] = 500
    """With `endpointing: silence`: silence after which the user's turn has ended."""
    shortest_wait_ms: Annotated[int, Field(ge=200, le=2_000)] = 300
    """With `endpointing: semantic`: silence that is waited even where all seems said."""
    longest_wait_ms: Annotated[int, Field(ge=500, le=8_000)] = 2_500
    """With `endpointing: semantic`: silence after which the turn is over, whatever was said."""
    min_speech_ms: Annotated[int, Field(ge=32, le=2_000)] = 120
    """Voiced sound shorter than this is no turn."""
    max_turn_s: Annotated[float, Field(ge=2, le=600)] = 60.0
    """A turn is committed after this much speech without a pause."""
    interruptible: bool = True
    """False: speech during an answer does not stop it."""
    idle_prompt_s: Annotated[float, Field(ge=5, le=600)] | None = None
    """Speak up after this much silence from the user; None: never."""


def _within_range(sampling: Sampling) -> Sampling:
    """Raises ValueError where a sampling value would be refused by an engine."""
    limits = (
        ("temperature", sampling.temperature, 0.0, 2.0),
        ("top_p", sampling.top_p, 0.01, 1.0),
        ("min_p", sampling.min_p, 0.0, 1.0),
        ("repetition_penalty", sampling.repetition_penalty, 0.5, 2.0),
        ("max_tokens", sampling.max_tokens, 1, 2_048),
    )
    for name, value, low, high in limits:
        if not low <= value <= high:
            raise ValueError(f"{name} must be from {low} to {high}, but is {value}")
    return sampling


@dataclass(frozen=True, slots=True)
class Persona:
    """One voice to talk to. Everything a call needs to be it."""

    id: str
    """The file's stem; clients choose it as `model`."""
    version: str
    """First 12 hex digits of the file's SHA-256: changes whenever the file does."""
    name: NonEmpty
    languages: Annotated[tuple[Annotated[str, Field(pattern=r"^[a-z]{2,3}$")], ...], Field(min_length=1)]
    """ISO 639-1 codes; the first is the one it speaks."""
    instructions: NonEmpty
    """System prompt. Small models follow few, short, clear sentences."""
    greeting: NonEmpty
    """Spoken first, where the client asks for it."""
    apology: NonEmpty
    """Said in the persona's voice where an answer failed."""
    voice: NonEmpty
    """Id of a voice."""
    description: str = ""
    """One line for the persona picker."""
    speed: Annotated[float, Field(ge=0.5, le=2.0)] = 1.0
    """1.0 is the voice's own pace."""
    sampling: Annotated[Sampling, AfterValidator(_within_range)] = field(default_factory=Sampling)
    turn_taking: TurnTaking = field(default_factory=TurnTaking)
    priority: Priority = Priority.NORMAL
    cache: bool | None = None
    """The same question gets the same answer again: `true` always, `false` never, None where the temperature is 0."""

    def allows_cache(self, sampling: Sampling) -> bool:
        """Answers made with `sampling` may be given again."""
        return sampling.temperature == 0 if self.cache is None else self.cache

    @property
    def spoken_language(self) -> str | None:
        """The language to expect from the user; None where several are possible and it must be detected."""
        return self.languages[0] if len(self.languages) == 1 else None


def load_persona(path: Path) -> Persona:
    """Read one persona file. Raises ConfigurationError naming file, line and the allowed keys."""
    try:
        content = path.read_bytes()
        document = parse_document(content.decode("utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"{path} cannot be read ({error}); check that it is a UTF-8 file you may open."
        ) from error
    version = hashlib.sha256(content).hexdigest()[:12]
    return build(Persona, document, {"id": path.stem, "version": version})


class PersonaLibrary:
    """All personas of a folder."""

    def __init__(self, folder: Path, default: str = "ava") -> None:
        """Loads every file. Raises ConfigurationError where one is wrong or the default is missing."""
        self._folder = folder
        self._default = default
        self._personas = {path.stem: load_persona(path) for path in self._files()}
        if default not in self._personas:
            raise ConfigurationError(
                f"the default persona `{default}` is not in {folder}; add {default}.yaml or change `personas.default`."
            )

    def get(self, persona_id: str) -> Persona:
        """The persona; the default one for an unknown id, as Realtime clients expect of unknown model names."""
        return self._personas.get(persona_id, self._personas[self._default])

    def all(self) -> tuple[Persona, ...]:
        """Every persona: the default first, then by id."""
        return tuple(sorted(self._personas.values(), key=lambda one: (one.id != self._default, one.id)))

    def reload_changed(self) -> tuple[str, ...]:
        """Read the folder again; returns the ids that changed. Blocks on files.

        A file that is broken now keeps the persona it held before, and is logged. The default is never removed.
        """
        fresh: dict[str, Persona] = {}
        for path in self._files():
            try:
                fresh[path.stem] = load_persona(path)
            except ConfigurationError as error:
                log.warning("persona not reloaded", persona=path.stem, reason=str(error))
                if (before := self._personas.get(path.stem)) is not None:
                    fresh[path.stem] = before
        fresh.setdefault(self._default, self._personas[self._default])
        known = self._personas.keys() | fresh.keys()
        changed = tuple(sorted(one for one in known if self._personas.get(one) != fresh.get(one)))
        self._personas = fresh
        return changed

    async def watch(self) -> None:
        """Reload on every change in the folder, until cancelled."""
        async for _ in watchfiles.awatch(self._folder, step=200):
            changed = await anyio.to_thread.run_sync(self.reload_changed)
            if changed:
                log.info("personas reloaded", personas=list(changed))

    def _files(self) -> list[Path]:
        return sorted(self._folder.glob("*.yaml"))
