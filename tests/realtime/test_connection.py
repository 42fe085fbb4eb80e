"""One client and one scripted call, in virtual time: what is asked, what is answered, and every way it can end."""

from __future__ import annotations

import base64
import struct
from typing import Any

import anyio
import numpy as np
import pytest
from tests.realtime.conftest import Visit
from tests.realtime.fake_app import FakeHouse
from tests.realtime.fake_call import FakeCall
from tests.realtime.strict import check_pipecat, openai_event

from duolog.ports.errors import EngineUnavailable
from duolog.realtime.drain import Drain
from duolog.realtime.ports import WireLimits
from duolog.session.config import ServerVad
from duolog.session.control import PlayoutReport
from duolog.session.events import AudioDelta, CallErrorRaised, InputCleared, PlayoutFlush, SpeechStarted
from duolog.turns.conversation import ItemRole

pytestmark = pytest.mark.session

APPEND = {"type": "input_audio_buffer.append", "audio": base64.b64encode(bytes(4_800)).decode()}
EXTENDED = "model=ava&duolog=1"
SAMPLES = np.ones(480, dtype=np.int16)


def speech(generation: int) -> AudioDelta:
    return AudioDelta("resp_1", "item_1", generation, 0, SAMPLES, 24_000)


async def test_the_session_comes_first_whatever_the_client_sends(visit: Visit) -> None:
    async with visit() as client:
        await client.send("nonsense")
        assert (await client.event())["type"] == "session.created"
        assert (await client.event())["error"]["code"] == "invalid_json"


async def test_extensions_are_announced(visit: Visit, house: FakeHouse) -> None:
    async with visit(query=f"{EXTENDED}&greeting=1&session=sess_old") as client:
        session = (await client.until("session.created"))["session"]
        assert session["audio"]["input"]["format"] == {"type": "audio/pcm", "rate": 16_000}
        assert session["audio"]["output"]["format"] == {"type": "audio/pcm", "rate": 24_000}
        assert (await client.event())["input_rate_hz"] == 16_000
    persona, resume, options = house.opened[0]
    assert (persona, resume) == ("ava", "sess_old")
    assert options.extensions
    assert options.greeting


async def test_an_update_is_answered_with_the_whole_session(visit: Visit, house: FakeHouse) -> None:
    async with visit() as client:
        update = {"type": "realtime", "instructions": "Sing.", "audio": {"input": {"turn_detection": None}}}
        await client.send({"type": "session.update", "session": update})
        session = (await client.until("session.updated"))["session"]
        assert session["instructions"] == "Sing."
        assert session["audio"]["input"]["turn_detection"] is None
        assert session["audio"]["output"]["voice"] == "joe"
    assert house.calls[0].config.turn_detection is None


async def test_a_refused_update_changes_nothing(visit: Visit, house: FakeHouse) -> None:
    async with visit() as client:
        session = {"type": "realtime", "instructions": "x" * 40_000, "output_modalities": ["text"]}
        await client.send({"type": "session.update", "event_id": "u1", "session": session})
        error = (await client.until("error"))["error"]
        assert (error["code"], error["param"]) == ("string_above_max_length", "session.instructions")
        assert error["event_id"] == "u1"
    assert house.calls[0].asked == []


async def test_audio_before_configuration_is_taken_at_the_defaults(visit: Visit, house: FakeHouse) -> None:
    async with visit() as client:
        await client.send(APPEND)
        await client.send({"type": "input_audio_buffer.commit"})
        completed = await client.until("conversation.item.input_audio_transcription.completed")
        assert completed["usage"] == {"type": "duration", "seconds": 0.1}


async def test_a_long_append_reaches_the_call_in_slices(visit: Visit, house: FakeHouse) -> None:
    async with visit() as client:
        await client.until("session.created")
        await client.send({**APPEND, "audio": base64.b64encode(bytes(48_000 + 2)).decode()})
        await anyio.sleep(0.01)
        assert [len(part) for part in house.calls[0].heard] == [2_400] * 10 + [1]


async def test_telephone_input(visit: Visit, house: FakeHouse) -> None:
    async with visit() as client:
        audio = {"input": {"format": {"type": "audio/pcmu"}}}
        await client.send({"type": "session.update", "session": {"type": "realtime", "audio": audio}})
        await client.until("session.updated")
        await client.send({"type": "input_audio_buffer.append", "audio": base64.b64encode(b"\xff" * 80).decode()})
        await client.send({"type": "input_audio_buffer.append", "audio": base64.b64encode(b"\x00" * 81).decode()})
        await anyio.sleep(0.01)
        assert [len(part) for part in house.calls[0].heard] == [80, 81]
        assert house.calls[0].heard[0][0] == 0


@pytest.mark.parametrize(
    ("event", "code"),
    [
        ({"type": "input_audio_buffer.append", "audio": "???"}, "invalid_value"),
        ({"type": "input_audio_buffer.append", "audio": base64.b64encode(b"abc").decode()}, "invalid_value"),
        ({"type": "input_audio_buffer.commit"}, "input_audio_buffer_commit_empty"),
        ({"type": "response.cancel"}, "response_cancel_not_active"),
        ({"type": "conversation.item.delete", "item_id": "none"}, "item_not_found"),
        ({"type": "conversation.item.retrieve", "item_id": "none"}, "item_retrieve_invalid_item_id"),
        (
            {"type": "conversation.item.truncate", "item_id": "none", "content_index": 0, "audio_end_ms": 0},
            "item_not_found",
        ),
        ({"type": "duolog.mute", "muted": True}, "extensions_not_enabled"),
        ({"type": "made.up"}, "invalid_value"),
        (
            {"type": "response.create", "response": {"audio": {"output": {"format": {"type": "audio/pcmu"}}}}},
            "invalid_value",
        ),
        ({"type": "response.create", "response": {"instructions": "x" * 40_000}}, "string_above_max_length"),
    ],
)
async def test_refusals_name_the_event_and_the_call_goes_on(visit: Visit, event: dict[str, Any], code: str) -> None:
    async with visit() as client:
        await client.send({**event, "event_id": "mine"})
        refused = await client.until("error")
        openai_event(refused)
        check_pipecat(refused)
        assert refused["error"]["code"] == code
        assert refused["error"]["event_id"] == "mine"
        assert refused["error"]["type"] == "invalid_request_error"
        await client.send({"type": "input_audio_buffer.clear"})
        assert (await client.event())["type"] == "input_audio_buffer.cleared"


async def test_an_engine_that_fails_a_request_is_the_servers_error(visit: Visit, house: FakeHouse) -> None:
    async with visit() as client:
        await client.until("session.created")
        house.calls[0].broken = EngineUnavailable("The recognizer is gone.", engine="asr")
        await client.send({**APPEND, "event_id": "mine"})
        error = (await client.until("error"))["error"]
        assert (error["type"], error["event_id"]) == ("server_error", "mine")


async def test_items_keep_the_clients_ids_and_places(visit: Visit) -> None:
    async with visit() as client:
        part = [{"type": "input_text", "text": "Hi"}]
        item = {"type": "message", "role": "user", "content": part}
        await client.send({"type": "conversation.item.create", "item": {**item, "id": "second"}})
        await client.send(
            {"type": "conversation.item.create", "item": {**item, "id": "first"}, "previous_item_id": "root"}
        )
        await client.send({"type": "conversation.item.create", "item": item, "previous_item_id": "first"})
        added = [await client.until("conversation.item.added") for _ in range(3)]
        assert [one["item"]["id"] for one in added[:2]] == ["second", "first"]
        assert [one["previous_item_id"] for one in added] == [None, None, "first"]
        await client.send({"type": "conversation.item.create", "item": {**item, "id": "first"}})
        assert (await client.until("error"))["error"]["code"] == "item_id_already_exists"


async def test_a_response_with_everything_it_may_override(visit: Visit, house: FakeHouse) -> None:
    response = {
        "instructions": "Rhyme.",
        "output_modalities": ["text"],
        "max_output_tokens": 12,
        "metadata": {"client_event_id": "e1"},
        "conversation": "none",
        "input": [
            {"type": "item_reference", "id": "item_9"},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Is it polite?"}]},
        ],
        "audio": {"output": {"voice": "marin", "format": {"type": "audio/pcm", "rate": 24_000}}},
        "tool_choice": "none",
        "tools": [],
    }
    async with visit() as client:
        await client.send({"type": "response.create", "response": response})
        done = (await client.until("response.done"))["response"]
        assert done["metadata"] == {"client_event_id": "e1"}
        assert done["conversation_id"] is None
        assert done["max_output_tokens"] == 12
    options: Any = house.calls[0].asked[0][1]
    assert (options.instructions, options.max_output_tokens, options.out_of_band) == ("Rhyme.", 12, True)
    reference, inline = options.input_items
    assert (reference, inline.role, inline.text) == ("item_9", ItemRole.USER, "Is it polite?")
    assert list(house.calls[0].conversation) == []
    assert options.voice == "joe"


async def test_extension_requests(visit: Visit, house: FakeHouse) -> None:
    async with visit(query=EXTENDED) as client:
        await client.send({"type": "duolog.playout.report", "generation": 2, "played_samples": 480, "ended": True})
        await client.send({"type": "duolog.mute", "muted": True})
        await client.send({"type": "duolog.greet"})
        await client.send({"type": "output_audio_buffer.clear"})
        await client.send_bytes(struct.pack("<BBH", 1, 0, 0) + bytes(640))
        await client.send({"type": "duolog.ping", "client_time_ms": 12.5})
        pong = await client.until("duolog.pong")
        assert pong["client_time_ms"] == 12.5
        call = house.calls[0]
        assert call.asked == [("playout", PlayoutReport(2, 480, True)), ("muted", True), ("greet",)]
        assert [len(part) for part in call.heard] == [320]


@pytest.mark.parametrize(
    ("query", "frame", "code"),
    [
        ("model=ava", bytes(640), "extensions_not_enabled"),
        (EXTENDED, b"\x07\x00\x00\x00ab", "invalid_binary_frame"),
        (EXTENDED, b"\x01\x00\x00\x00abc", "invalid_value"),
        (EXTENDED, b"", "invalid_binary_frame"),
    ],
)
async def test_binary_frames_that_are_refused(visit: Visit, query: str, frame: bytes, code: str) -> None:
    async with visit(query=query) as client:
        await client.send_bytes(frame)
        assert (await client.until("error"))["error"]["code"] == code
        await client.send({"type": "input_audio_buffer.clear"})
        await client.until("input_audio_buffer.cleared")


async def test_oversized_messages_are_refused_and_the_call_goes_on(visit: Visit) -> None:
    async with visit(query=EXTENDED, ports={"limits": WireLimits(max_message_bytes=1_000)}) as client:
        await client.send({"type": "input_audio_buffer.append", "audio": "A" * 2_000})
        assert (await client.until("error"))["error"]["code"] == "message_too_large"
        await client.send_bytes(bytes(2_000))
        assert (await client.until("error"))["error"]["code"] == "message_too_large"
        await client.send({"type": "input_audio_buffer.clear"})
        await client.until("input_audio_buffer.cleared")


async def test_stale_audio_never_leaves_after_a_flush(visit: Visit, house: FakeHouse) -> None:
    async with visit(query=EXTENDED) as client:
        await client.until("duolog.session")
        client.stop_reading()
        house.calls[0].say(*(speech(1) for _ in range(4)), PlayoutFlush(2), speech(1), speech(2), InputCleared())
        await anyio.sleep(1)
        client.reading.set()
        kinds = []
        while (message := await client.message()).get("text") is None or "cleared" not in message["text"]:
            kinds.append("flush" if message.get("text") else struct.unpack_from("<I", message["bytes"], 4)[0])
        # One frame was on its way when the client stopped reading.
        assert kinds == [1, "flush", 2]


async def test_errors_of_the_call_are_told_where_they_do_no_harm(visit: Visit, house: FakeHouse) -> None:
    async with visit(query="duolog=1") as client:
        await client.until("session.created")
        house.calls[0].say(CallErrorRaised("llm_unavailable", "The language model does not answer."))
        error = (await client.until("error"))["error"]
        assert (error["code"], error["type"], error["event_id"]) == ("llm_unavailable", "server_error", None)
    async with visit() as client:
        await client.until("session.created")
        house.calls[1].say(CallErrorRaised("llm_unavailable", "The language model does not answer."))
        house.calls[1].say(InputCleared())
        assert (await client.event())["type"] == "input_audio_buffer.cleared"


async def test_a_client_that_never_reads_is_closed(visit: Visit, house: FakeHouse) -> None:
    async with visit() as client:
        await client.until("session.created")
        client.stop_reading()
        house.calls[0].say(*(SpeechStarted("item_1", 0) for _ in range(100)))
        await anyio.sleep(9)
        assert house.running == 1
        await anyio.sleep(10)
        assert house.running == 0


async def test_a_client_that_floods_and_never_reads_is_held_back(visit: Visit, house: FakeHouse) -> None:
    async with visit() as client:
        await client.until("session.created")
        client.stop_reading()
        for _ in range(500):
            await client.send("nonsense")
        await anyio.sleep(20)
        assert house.running == 0


async def test_a_slow_reader_is_told_why(visit: Visit, house: FakeHouse) -> None:
    async with visit() as client:
        await client.until("session.created")
        client.stop_reading()
        house.calls[0].say(SpeechStarted("item_1", 0), SpeechStarted("item_1", 0))
        await anyio.sleep(11)
        client.reading.set()
        close = await client.close_frame()
        assert (close["code"], close["reason"]) == (1008, "the client read nothing for 10 s")


async def test_a_client_that_vanishes_in_mid_word_ends_the_call(visit: Visit, house: FakeHouse) -> None:
    async with visit() as client:
        await client.until("session.created")
        await client.send(APPEND)
        house.calls[0].say(SpeechStarted("item_1", 0))
        await client.vanish()
        await anyio.sleep(0.1)
        assert house.running == 0


async def test_a_socket_that_breaks_while_sending_ends_the_call(visit: Visit, house: FakeHouse) -> None:
    async with visit() as client:
        await client.until("session.created")
        client.break_socket()
        house.calls[0].say(SpeechStarted("item_1", 0))
        await anyio.sleep(0.1)
        assert house.running == 0


async def test_the_end_of_the_call_is_the_end_of_the_connection(visit: Visit, house: FakeHouse) -> None:
    async with visit() as client:
        await client.until("session.created")
        house.calls[0].say(SpeechStarted("item_1", 0))
        house.calls[0].end()
        assert (await client.event())["type"] == "input_audio_buffer.speech_started"
        assert (await client.close_frame())["code"] == 1000


@pytest.mark.slow
async def test_a_call_that_breaks_ends_its_own_connection(visit: Visit, house: FakeHouse) -> None:
    async with visit() as client:
        await client.until("session.created")
        house.calls[0].broken = RuntimeError("a fault")
        house.calls[0].say()
        error = (await client.until("error"))["error"]
        assert error["type"] == "server_error"
        assert "a fault" not in error["message"]
        assert (await client.close_frame())["code"] == 1011
    assert house.running == 0


async def test_a_silent_client_is_closed_when_idle(visit: Visit) -> None:
    async with visit(ports={"limits": WireLimits(idle_call_s=60)}) as client:
        await anyio.sleep(50)
        await client.send({"type": "input_audio_buffer.clear"})
        await anyio.sleep(50)
        await client.until("input_audio_buffer.cleared")
        error = (await client.event())["error"]
        assert error["code"] == "session_expired"
        assert "60 s" in error["message"]
        assert (await client.close_frame())["code"] == 1001


async def test_a_call_has_a_longest_time(visit: Visit) -> None:
    async with visit(ports={"limits": WireLimits(max_call_s=120, idle_call_s=100)}) as client:
        await anyio.sleep(90)
        await client.send({"type": "input_audio_buffer.clear"})
        assert "limit of 120 s" in (await client.until("error"))["error"]["message"]


async def test_the_servers_end_is_announced(visit: Visit, house: FakeHouse) -> None:
    drain = Drain()
    async with visit(ports={"drain": drain}) as client:
        await client.until("session.created")
        assert drain.open_connections == 1
        drain.begin("The server restarts; call again.")
        drain.begin("later")
        assert (await client.until("error"))["error"]["code"] == "server_shutting_down"
        close = await client.close_frame()
        assert (close["code"], close["reason"]) == (1012, "The server restarts; call again.")
        await drain.wait_idle()
    assert house.running == 0


async def test_transcription_sessions_have_no_responses(visit: Visit, house: FakeHouse) -> None:
    async with visit(query="intent=transcription") as client:
        session = (await client.until("session.updated"))["session"]
        assert session["object"] == "realtime.transcription_session"
        await client.send({"type": "response.create"})
        assert (await client.until("error"))["error"]["code"] == "invalid_value"
    detection = house.calls[0].config.turn_detection
    assert isinstance(detection, ServerVad)
    assert not detection.create_response


async def test_a_held_response_is_cancelled(visit: Visit, house: FakeHouse) -> None:
    house.make_call = lambda config: FakeCall(config, hold_responses=True)
    async with visit() as client:
        await client.send({"type": "response.create"})
        await client.until("response.output_audio.delta")
        await client.send({"type": "response.create", "event_id": "second"})
        error = (await client.until("error"))["error"]
        assert (error["code"], error["event_id"]) == ("conversation_already_has_active_response", "second")
        await client.send({"type": "response.cancel"})
        done = (await client.until("response.done"))["response"]
        assert done["status_details"] == {"type": "cancelled", "reason": "client_cancelled"}
        assert done["usage"]["total_tokens"] == 44


async def test_close_reasons_fit_into_a_close_frame(visit: Visit) -> None:
    drain = Drain()
    async with visit(ports={"drain": drain}) as client:
        await client.until("session.created")
        drain.begin("長" * 100)
        close = await client.close_frame()
        assert 100 < len(close["reason"].encode()) <= 123
