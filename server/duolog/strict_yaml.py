"""YAML files from people's hands: read with line numbers, checked against a dataclass, every mistake named exactly.

Knows neither settings nor personas: both hand in their dataclass. Keys are checked here; types and ranges by pydantic.
"""

from __future__ import annotations

import dataclasses
import difflib
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import TypeAdapter, ValidationError

from duolog.ports.errors import ConfigurationError

KeyPath = tuple[str | int, ...]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Document:
    """Plain values of a file, and where each of them stands."""

    name: str
    """How the file is called in messages."""
    values: dict[str, Any]
    origins: dict[KeyPath, str] = field(default_factory=dict)
    """Key path → `file, line n`, or another source such as an environment variable."""

    def origin(self, path: KeyPath) -> str:
        """Where the value at `path`, or the nearest thing around it, was written."""
        for length in range(len(path), 0, -1):
            if (known := self.origins.get(path[:length])) is not None:
                return known
        return self.name


def read_document(path: Path) -> Document:
    """Read a YAML mapping. An empty file is an empty mapping. Raises ConfigurationError."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"{path} cannot be read ({error}); check that it is a UTF-8 file you may open."
        ) from error
    return parse_document(text, str(path))


def parse_document(text: str, name: str) -> Document:
    """As `read_document`, of a text that is called `name` in messages."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigurationError(f"{name}, line {line}: not valid YAML, {error.problem or error.context}.") from error
    except yaml.YAMLError as error:
        raise ConfigurationError(f"{name} is not valid YAML: {error}.") from error
    if root is None:
        return Document(name, {})
    if not isinstance(root, yaml.MappingNode):
        raise ConfigurationError(f"{name}, line {root.start_mark.line + 1}: expected `key: value` lines at the top.")
    origins: dict[KeyPath, str] = {}
    _locate(root, name, (), origins)
    return Document(name, yaml.safe_load(text), origins)


def _locate(node: yaml.Node, name: str, path: KeyPath, origins: dict[KeyPath, str]) -> None:
    """Note the line of every key below `node`; a key given twice is an error."""
    children: list[tuple[str | int, yaml.Node, yaml.Node]] = []
    if isinstance(node, yaml.MappingNode):
        children = [(str(key.value), key, value) for key, value in node.value]
    elif isinstance(node, yaml.SequenceNode):
        children = [(index, item, item) for index, item in enumerate(node.value)]
    for key, key_node, value in children:
        where = f"{name}, line {key_node.start_mark.line + 1}"
        if (*path, key) in origins:
            raise ConfigurationError(f"{where}: `{_dotted((*path, key))}` is given twice; remove one of them.")
        origins[(*path, key)] = where
        _locate(value, name, (*path, key), origins)


def build(shape: type[T], document: Document, given: Mapping[str, Any] | None = None) -> T:
    """Make a `shape` (a dataclass) of the document; `given` are fields that do not come from the file.

    Raises ConfigurationError with one line for each mistake.
    """
    given = given or {}
    problems = list(_unknown_keys(shape, document, document.values, (), frozenset(given)))
    if problems:
        raise ConfigurationError("\n".join(problems))
    try:
        return TypeAdapter(shape).validate_python({**_filled_sections(shape, document.values), **given})
    except ValidationError as error:
        raise ConfigurationError("\n".join(_explain(document, shape, error))) from error


def setting_paths(shape: type) -> Iterator[tuple[str, dataclasses.Field[Any]]]:
    """Every leaf field of a dataclass tree with its dotted path, in order."""
    hints = typing.get_type_hints(shape)
    for item in dataclasses.fields(shape):
        section = _section(hints[item.name])
        if section is None:
            yield item.name, item
        else:
            yield from ((f"{item.name}.{path}", leaf) for path, leaf in setting_paths(section))


def _unknown_keys(
    shape: type, document: Document, values: object, path: KeyPath, hidden: frozenset[str] = frozenset()
) -> Iterator[str]:
    if not isinstance(values, dict):
        return
    hints = typing.get_type_hints(shape)
    allowed = [item.name for item in dataclasses.fields(shape) if item.name not in hidden]
    for key, value in values.items():
        here = (*path, str(key))
        if key not in allowed:
            yield f"{document.origin(here)}: unknown key `{_dotted(here)}`{_nearest(str(key), allowed)}"
        elif (section := _section(hints[key])) is not None:
            yield from _unknown_keys(section, document, value, here)
        elif (entry := _entry(hints[key])) is not None and isinstance(value, list):
            for index, item in enumerate(value):
                yield from _unknown_keys(entry, document, item, (*here, index))


def _filled_sections(shape: type, values: dict[str, Any]) -> dict[str, Any]:
    """The values without sections that hold nothing, as when every key in them is commented out."""
    hints = typing.get_type_hints(shape)
    filled: dict[str, Any] = {}
    for key, value in values.items():
        section = _section(hints[key])
        if section is None or value is not None:
            filled[key] = _filled_sections(section, value) if section and isinstance(value, dict) else value
    return filled


def _nearest(key: str, allowed: list[str]) -> str:
    close = difflib.get_close_matches(key, allowed, n=1, cutoff=0.5)
    hint = f"; did you mean `{close[0]}`?" if close else "."
    return f"{hint} Allowed here: {', '.join(allowed)}."


def _section(hint: object) -> type | None:
    """The dataclass behind an annotation: itself, in an Annotated, or beside None in a union."""
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return hint
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return next((found for arg in typing.get_args(hint) if (found := _section(arg))), None)
    return None


def _entry(hint: object) -> type | None:
    """The dataclass of which an annotation is a list: `tuple[It, ...]`, also in an Annotated."""
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) is typing.Annotated:
        return _entry(arguments[0])
    return _section(arguments[0]) if typing.get_origin(hint) is tuple and arguments[1:] == (...,) else None


def _explain(document: Document, shape: type, error: ValidationError) -> Iterator[str]:
    for problem in error.errors():
        path: KeyPath = tuple(problem["loc"])
        message = problem["msg"].removeprefix("Value error, ")
        if problem["type"] in ("missing", "missing_argument"):
            yield f"{document.origin(path[:-1])}: `{_dotted(path)}` is missing; add it."
            continue
        known = _known_part(document, path)
        yield f"{document.origin(path)}: `{_dotted(known) or shape.__name__}`: {message[:1].lower()}{message[1:]}."


def _known_part(document: Document, path: KeyPath) -> KeyPath:
    """The part of a pydantic location that is in the file: union members add their own names at its end."""
    while path and path not in document.origins:
        path = path[:-1]
    return path


def _dotted(path: KeyPath) -> str:
    return ".".join(str(part) for part in path)
