"""Text of a client's message → a typed event, or a refusal that says which field is wrong and what is allowed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, get_args

from pydantic import BaseModel, Field, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from duolog.ports.errors import RequestRefused
from duolog.realtime.client_messages import ClientEvent
from duolog.realtime.session_messages import SessionPayload

_EVENTS: TypeAdapter[ClientEvent] = TypeAdapter(Annotated[ClientEvent, Field(discriminator="type")])

CLIENT_EVENT_TYPES: tuple[str, ...] = tuple(
    get_args(model.model_fields["type"].annotation)[0] for model in get_args(ClientEvent)
)

_CODES = {"missing": "missing_required_parameter", "extra_forbidden": "unknown_parameter"}
_SHOWN_INPUT_CHARS = 60


@dataclass(frozen=True, slots=True)
class Refusal:
    """A refused message, with the event id the client gave it (None: it gave none, or the text could not be read)."""

    error: RequestRefused
    event_id: str | None


def parse_event(text: str) -> ClientEvent | Refusal:
    """The event the text holds, or why it holds none."""
    try:
        return _EVENTS.validate_json(text)
    except ValidationError as error:
        return _refuse(text, error.errors(include_url=False)[0])


def parse_session(value: object) -> SessionPayload:
    """A session object that came outside of an event. Raises RequestRefused."""
    try:
        return SessionPayload.model_validate(value)
    except ValidationError as error:
        raise refusal_of({"session": value}, error.errors(include_url=False)[0], prefix=("session",)) from error


def _refuse(text: str, problem: ErrorDetails) -> Refusal:
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as error:
        message = f"The message is not valid JSON: {error}. Send one JSON object per text frame."
        return Refusal(RequestRefused(message, code="invalid_json"), None)
    if not isinstance(raw, dict):
        message = "The message must be a JSON object with a 'type'."
        return Refusal(RequestRefused(message, code="invalid_value"), None)
    event_id = raw.get("event_id")
    return Refusal(_name_problem(raw, problem), event_id if isinstance(event_id, str) else None)


def _name_problem(raw: dict[str, object], problem: ErrorDetails) -> RequestRefused:
    if problem["type"] == "union_tag_not_found" and not problem["loc"]:
        message = f"Missing required parameter 'type'. Supported values are: {_supported_types()}."
        return RequestRefused(message, code="missing_required_parameter", param="type")
    if problem["type"] == "union_tag_invalid" and not problem["loc"]:
        message = f"Invalid value for 'type': {_shown(raw.get('type'))}. Supported values are: {_supported_types()}."
        return RequestRefused(message, code="invalid_value", param="type")
    return refusal_of(raw, problem)


def refusal_of(raw: object, problem: ErrorDetails, prefix: tuple[str | int, ...] = ()) -> RequestRefused:
    """What is wrong with `raw`, from the first problem its validation found."""
    loc = prefix + problem["loc"]
    kind = problem["type"]
    if kind == "union_tag_not_found":
        kind, loc = "missing", (*loc, "type")
    elif kind == "union_tag_invalid":
        loc = (*loc, "type")
    param = field_path(raw, loc, missing=kind == "missing")
    code = _CODES.get(kind, "invalid_type" if kind.endswith("_type") else "invalid_value")
    return RequestRefused(_sentence(kind, param, problem), code=code, param=param or None)


def _sentence(kind: str, param: str, problem: ErrorDetails) -> str:
    if kind == "missing":
        return f"Missing required parameter '{param}'."
    if kind == "extra_forbidden":
        return f"Unknown parameter '{param}'."
    reason = problem["msg"].removeprefix("Value error, ")
    return f"Invalid value for '{param}': {reason} (got {_shown(problem['input'])})."


def field_path(raw: object, loc: tuple[str | int, ...], *, missing: bool) -> str:
    """`loc` as a client would write it: without the union tags that validation puts into it.

    A step that is not in the data is such a tag, except the last step of a missing field.
    """
    path = ""
    here = raw
    for position, step in enumerate(loc):
        found, inside = _step_into(here, step)
        if not found and not (missing and position == len(loc) - 1):
            continue
        here = inside
        path += f"[{step}]" if isinstance(step, int) else f".{step}"
    return path.removeprefix(".")


def _step_into(here: object, step: str | int) -> tuple[bool, object]:
    if isinstance(here, dict) and step in here:
        return True, here[step]
    if isinstance(here, list) and isinstance(step, int) and step < len(here):
        return True, here[step]
    return False, None


def _supported_types() -> str:
    return ", ".join(f"'{name}'" for name in CLIENT_EVENT_TYPES)


def _shown(value: object) -> str:
    if isinstance(value, BaseModel):
        value = value.model_dump(exclude_unset=True)
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _SHOWN_INPUT_CHARS else f"{text[:_SHOWN_INPUT_CHARS]}…"
