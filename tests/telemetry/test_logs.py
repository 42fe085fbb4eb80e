"""Log lines: ids bound, personal data kept out, JSON readable."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import anyio
import pytest
import structlog

from duolog.telemetry.logs import call_bound, configure_logs, turn_bound

pytestmark = pytest.mark.pure


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield
    root.handlers = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def configured(*, pii: bool = False, level: str = "info") -> io.StringIO:
    stream = io.StringIO()
    configure_logs(level, json=True, pii=pii, stream=stream)
    return stream


def test_a_line_is_json_with_message_level_time_and_fields() -> None:
    stream = configured()
    structlog.get_logger("duolog.x").warning("engine slow", engine="asr", milliseconds=900)
    (line,) = lines(stream)
    assert line["event"] == "engine slow"
    assert (line["level"], line["logger"], line["engine"], line["milliseconds"]) == ("warning", "duolog.x", "asr", 900)
    assert str(line["timestamp"]).endswith("Z")


def test_lines_of_libraries_look_the_same() -> None:
    stream = configured()
    logging.getLogger("uvicorn.error").info("Started server process [%d]", 7, extra={"color_message": "x"})
    (line,) = lines(stream)
    assert line["event"] == "Started server process [7]"
    assert line["level"] == "info"


def test_what_is_below_the_level_is_left_out() -> None:
    stream = configured(level="warning")
    structlog.get_logger("duolog.x").info("quiet")
    assert not lines(stream)


def test_speech_is_never_logged_and_personal_fields_only_where_allowed() -> None:
    for pii in (False, True):
        stream = configured(pii=pii)
        structlog.get_logger("duolog.x").info(
            "turn", transcript="my secret", text="too", transcript_pii="mine", words=2
        )
        (line,) = lines(stream)
        assert "transcript" not in line
        assert "text" not in line
        assert ("transcript_pii" in line) is pii
        assert line["words"] == 2


async def test_call_and_turn_ids_reach_tasks_started_inside() -> None:
    stream = configured()
    log = structlog.get_logger("duolog.x")

    async def stage() -> None:
        log.info("stage")

    with call_bound("call_1"):
        async with anyio.create_task_group() as group:
            with turn_bound("turn_1"):
                group.start_soon(stage)
        log.info("call goes on")
    log.info("outside")

    found = {line["event"]: (line.get("call_id"), line.get("turn_id")) for line in lines(stream)}
    assert found == {"stage": ("call_1", "turn_1"), "call goes on": ("call_1", None), "outside": (None, None)}


def test_an_exception_is_part_of_the_line() -> None:
    stream = configured()
    try:
        int("broken")
    except ValueError:
        structlog.get_logger("duolog.x").exception("turn failed")
    (line,) = lines(stream)
    assert "broken" in json.dumps(line["exception"])


def test_the_console_form_is_for_people() -> None:
    stream = io.StringIO()
    configure_logs("info", json=False, pii=False, stream=stream)
    structlog.get_logger("duolog.x").info("ready", port=8000)
    assert "ready" in stream.getvalue()
    assert "port=8000" in stream.getvalue()
