"""The newest official SDK drives real calls of the real application, every event checked for form and order."""

from __future__ import annotations

import base64

import anyio
import numpy as np
import pytest
from blockbuster import blockbuster_ctx
from tests.app.guest import RATE_HZ, Guest, loud, quiet, utterance, visiting
from tests.app.running import RunningApp

pytestmark = [pytest.mark.real, pytest.mark.slow]

MANUAL = {"type": "realtime", "audio": {"input": {"turn_detection": None}}}
LONG = "tell me everything there is to know about the sea and the ships upon it " * 4
SPOKEN_TURN = [
    "session.created",
    "input_audio_buffer.speech_started",
    "input_audio_buffer.speech_stopped",
    "input_audio_buffer.committed",
    "conversation.item.added",
    "conversation.item.done",
    "conversation.item.input_audio_transcription.completed",
    "response.created",
    "response.output_item.added",
    "conversation.item.added",
    "response.content_part.added",
]


async def test_a_spoken_turn(server: RunningApp) -> None:
    async with visiting(server) as guest:
        await guest.speak(utterance(1.0))
        done = (await guest.until("response.done")).response
        heard = guest.of("conversation.item.input_audio_transcription.completed")[0]["transcript"]
        kinds = [kind for kind in guest.kinds() if not kind.endswith("transcription.delta")]
    assert heard.startswith("one two")
    assert kinds[: len(SPOKEN_TURN)] == SPOKEN_TURN
    assert done.status == "completed"
    assert done.output[0].content[0].transcript == f"You said: {heard} And I heard every word of it."
    assert done.usage.output_tokens > 0
    assert np.abs(guest.audio()).max() > 3_000
    assert len(guest.audio()) > 24_000


async def test_two_spoken_turns_are_one_conversation(server: RunningApp) -> None:
    async with visiting(server) as guest:
        for _ in range(2):
            await guest.speak(utterance(0.5))
            heard = await guest.until("response.done")
            await anyio.sleep(_seconds(guest, heard.response.id))
        items = guest.of("conversation.item.added")
    assert [item["item"]["role"] for item in items] == ["user", "assistant", "user", "assistant"]
    assert [item["previous_item_id"] for item in items] == [None, *[item["item"]["id"] for item in items[:3]]]


def _seconds(guest: Guest, response_id: str) -> float:
    """How long an answer takes to be heard."""
    deltas = [event for event in guest.of("response.output_audio.delta") if event["response_id"] == response_id]
    return sum(len(base64.b64decode(delta["delta"])) for delta in deltas) / 2 / RATE_HZ


async def test_no_greeting_unless_asked_for(server: RunningApp) -> None:
    async with visiting(server) as guest:
        await guest.speak(quiet(0.5))
        with anyio.move_on_after(0.5):
            await guest.until("response.created")
        assert [event["type"] for event in guest.events] == ["session.created"]
    async with visiting(server, greeting="1") as guest:
        greeting = (await guest.until("response.done")).response.output[0].content[0].transcript
    assert greeting == "Hi, I'm Ava. What's on your mind?"


async def test_a_text_turn(server: RunningApp) -> None:
    async with visiting(server) as guest:
        await guest.wire.session.update(session={"type": "realtime", "output_modalities": ["text"]})
        assert (await guest.until("session.updated")).session.output_modalities == ["text"]
        await guest.type("Good morning.", metadata={"topic": "greeting"})
        done = (await guest.until("response.done")).response
    assert done.output[0].content[0].text == "You said: Good morning. And I heard every word of it."
    assert done.metadata == {"topic": "greeting"}
    assert guest.of("response.output_audio.delta") == []


async def test_a_manual_turn(server: RunningApp) -> None:
    async with visiting(server) as guest:
        await guest.wire.session.update(session=MANUAL)  # type: ignore[arg-type]
        updated = await guest.until("session.updated")
        assert updated.session.audio.input.turn_detection is None
        await guest.speak(np.concatenate([loud(1.0), quiet(1.0), loud(0.5)]))
        await guest.wire.input_audio_buffer.commit()
        heard = await guest.until("conversation.item.input_audio_transcription.completed")
        assert heard.transcript
        with anyio.move_on_after(0.3):
            await guest.until("response.created")
        assert guest.of("response.created") == []
        await guest.wire.response.create()
        assert (await guest.until("response.done")).response.status == "completed"
        await guest.wire.input_audio_buffer.commit(event_id="again")
        refused = await guest.error()
    assert (refused.code, refused.event_id) == ("input_audio_buffer_commit_empty", "again")


async def test_what_was_appended_can_be_cleared(server: RunningApp) -> None:
    async with visiting(server) as guest:
        await guest.wire.session.update(session=MANUAL)  # type: ignore[arg-type]
        await guest.speak(loud(1.0))
        await guest.wire.input_audio_buffer.clear()
        await guest.until("input_audio_buffer.cleared")
        await guest.wire.input_audio_buffer.commit()
        assert (await guest.error()).code == "input_audio_buffer_commit_empty"


async def test_cancel(server: RunningApp) -> None:
    async with visiting(server) as guest:
        await guest.type(LONG)
        first = await guest.until("response.output_audio.delta")
        await guest.wire.response.create(event_id="second")
        refused = await guest.error()
        assert (refused.code, refused.event_id) == ("conversation_already_has_active_response", "second")
        await guest.wire.response.cancel(response_id=first.response_id)
        done = (await guest.until("response.done")).response
        assert (done.id, done.status) == (first.response_id, "cancelled")
        assert done.status_details.reason == "client_cancelled"
        await guest.wire.response.cancel(event_id="late")
        refused = await guest.error()
        assert (refused.code, refused.event_id) == ("response_cancel_not_active", "late")
        await guest.type("And now?", output_modalities=["text"])
        assert (await guest.until("response.done")).response.status == "completed"


async def test_barge_in(server: RunningApp) -> None:
    async with visiting(server) as guest:
        await guest.type(LONG)
        await guest.until("response.output_audio.delta")
        await guest.speak(utterance(1.0))
        done = (await guest.until("response.done")).response
        assert (done.status, done.status_details.reason) == ("cancelled", "turn_detected")
        answer = await guest.until("response.created")
        await guest.until("response.output_audio.delta")
        await guest.wire.response.cancel(response_id=answer.response.id)
        await guest.until("response.done")


async def test_truncate(server: RunningApp) -> None:
    async with visiting(server) as guest:
        await guest.type("Good morning.")
        item_id = (await guest.until("response.done")).response.output[0].id
        await guest.wire.conversation.item.truncate(item_id=item_id, content_index=0, audio_end_ms=500)
        cut = await guest.until("conversation.item.truncated")
        assert (cut.item_id, cut.content_index, cut.audio_end_ms) == (item_id, 0, 500)
        await guest.wire.conversation.item.retrieve(item_id=item_id)
        kept = (await guest.until("conversation.item.retrieved")).item.content[0].transcript
    assert kept
    assert "You said: Good morning.".startswith(kept.strip())


async def test_items_are_made_fetched_and_deleted(server: RunningApp) -> None:
    async with visiting(server) as guest:
        items = guest.wire.conversation.item
        for item_id, previous in (("b", None), ("a", "root")):
            await items.create(
                item={
                    "id": item_id,
                    "type": "message",
                    "role": "user",
                    "content": [{"type": "input_text", "text": f"I am {item_id}."}],
                },
                **({"previous_item_id": previous} if previous else {}),
            )
            assert (await guest.until("conversation.item.added")).item.id == item_id
        await items.retrieve(item_id="a")
        assert (await guest.until("conversation.item.retrieved")).item.content[0].text == "I am a."
        await items.delete(item_id="b")
        assert (await guest.until("conversation.item.deleted")).item_id == "b"
        await items.delete(item_id="b", event_id="twice")
        refused = await guest.error()
        assert (refused.code, refused.event_id) == ("item_not_found", "twice")
        await guest.wire.response.create(response={"output_modalities": ["text"]})
        answer = (await guest.until("response.done")).response.output[0].content[0].text
    assert answer.startswith("You said: I am a.")


async def test_the_answer_in_progress_can_be_deleted(server: RunningApp) -> None:
    async with visiting(server) as guest:
        await guest.type(LONG)
        item_id = (await guest.until("response.output_item.added")).item.id
        await guest.wire.conversation.item.delete(item_id=item_id)
        assert (await guest.until("response.done")).response.status == "cancelled"
        await guest.type("Go on.", output_modalities=["text"])
        assert (await guest.until("response.done")).response.status == "completed"


async def test_updates_are_merged(server: RunningApp) -> None:
    async with visiting(server) as guest:
        await guest.wire.session.update(session={"type": "realtime", "instructions": "Be brief."})
        await guest.until("session.updated")
        await guest.wire.session.update(
            session={
                "type": "realtime",
                "audio": {"input": {"turn_detection": {"type": "server_vad", "silence_duration_ms": 900}}},
            }
        )
        merged = (await guest.until("session.updated")).session
        assert merged.instructions == "Be brief."
        assert merged.audio.input.turn_detection.silence_duration_ms == 900
        await guest.wire.session.update(
            session={"type": "realtime", "audio": {"output": {"speed": 99}}}, event_id="too-fast"
        )
        refused = await guest.error()
        assert (refused.event_id, refused.param) == ("too-fast", "session.audio.output.speed")
        await guest.wire.session.update(session={"type": "realtime", "output_modalities": ["text"]})
        merged = (await guest.until("session.updated")).session
    assert (merged.instructions, merged.output_modalities) == ("Be brief.", ["text"])


@pytest.mark.parametrize(("model", "persona"), [("orla", "orla"), ("gpt-realtime", "ava"), ("nobody", "ava")])
async def test_the_model_is_the_persona(server: RunningApp, model: str, persona: str) -> None:
    async with visiting(server, model) as guest:
        assert guest.events[0]["session"]["model"] == persona


async def test_silence_and_noise_are_no_turn(server: RunningApp) -> None:
    async with visiting(server) as guest:
        hum = (np.random.default_rng(2).standard_normal(24_000) * 60).astype(np.int16)
        await guest.speak(np.concatenate([quiet(1.0), hum, quiet(1.0)]))
        with anyio.move_on_after(0.5):
            await guest.until("response.created")
        assert guest.of("response.created") == []
        assert guest.of("input_audio_buffer.committed") == []
        await guest.type("Still there?")
        assert (await guest.until("response.done")).response.status == "completed"


HALF_A_SAMPLE = base64.b64encode(bytes(481)).decode()
RATE = '{"type":"realtime","audio":{"input":{"format":{"type":"audio/pcm","rate":11025}}}}'


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        ("{", "invalid_json"),
        ("[]", "invalid_value"),
        ('{"type":"no.such.event"}', "invalid_value"),
        ('{"type":"input_audio_buffer.append","audio":7}', "invalid_type"),
        ('{"type":"input_audio_buffer.append","audio":"%%%"}', "invalid_value"),
        (f'{{"type":"input_audio_buffer.append","audio":"{HALF_A_SAMPLE}"}}', "invalid_value"),
        (f'{{"type":"session.update","session":{RATE}}}', "invalid_value"),
        ("x" * 17_000_000, "message_too_large"),
    ],
    ids=["json", "no object", "event type", "field type", "base64", "odd bytes", "rate", "too large"],
)
async def test_bad_input_is_refused_and_the_call_goes_on(server: RunningApp, sent: str, code: str) -> None:
    async with visiting(server) as guest:
        await guest.wire.send_raw(sent)
        assert (await guest.error()).code == code
        await guest.type("Still there?", output_modalities=["text"])
        assert (await guest.until("response.done")).response.status == "completed"


async def test_no_call_is_left(server: RunningApp) -> None:
    async with visiting(server) as guest:
        await guest.type("Hello.")
        await guest.until("response.created")
        assert await server.metric("duolog_calls_active") == 1
    await server.until_no_call()


async def test_nothing_in_a_call_blocks_the_loop(server: RunningApp) -> None:
    with blockbuster_ctx(["duolog"]):
        async with visiting(server, greeting="1") as guest:
            await guest.until("response.done")
            await guest.type("Hello.", output_modalities=["text"])
            await guest.until("response.done")
        async with visiting(server) as guest:
            await guest.speak(utterance(0.6))
            assert (await guest.until("response.done")).response.status == "completed"
