"""The order of REALTIME events that every client relies on, checked on everything a connection was sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.realtime.strict import check_pipecat, openai_event

Event = Mapping[str, Any]

SPOKEN = (
    "input_audio_buffer.speech_started",
    "conversation.item.input_audio_transcription.delta",
    "input_audio_buffer.speech_stopped",
    "input_audio_buffer.committed",
    "conversation.item.added",
    "conversation.item.done",
    "conversation.item.input_audio_transcription.completed",
)
"""Of one user item; deltas may stand anywhere between the first and the last."""
ANSWER = (
    "response.created",
    "response.output_item.added",
    "conversation.item.added",
    "response.content_part.added",
    "delta",
    "response.output_audio.done",
    "response.output_audio_transcript.done",
    "response.output_text.done",
    "response.content_part.done",
    "item done",
    "response.done",
)
"""Of one response; neighbours of one rank may change places."""
ITEM_DONE = ("conversation.item.done", "response.output_item.done")


def check_order(events: Sequence[Event]) -> None:
    """Everything one connection was sent, from its first event on."""
    assert events[0]["type"] == "session.created"
    assert len({event["event_id"] for event in events}) == len(events)
    known: set[str | None] = {None}
    for event in events:
        openai_event(event)
        check_pipecat(event)
        if event["type"] in ("conversation.item.added", "input_audio_buffer.committed"):
            assert event.get("previous_item_id") in known, event
            known.add(event.get("item_id") or event["item"]["id"])
    for item_id in _unique(event["item_id"] for event in events if event["type"] == SPOKEN[3]):
        _check_spoken([event for event in events if _item_id(event) == item_id])
    for response_id in _unique(_response_id(event) for event in events):
        if response_id is not None:
            _check_answer(response_id, events)


def kinds(events: Sequence[Event]) -> list[str]:
    """Types in order, a run of one type once."""
    types = [event["type"] for event in events]
    return [kind for at, kind in enumerate(types) if at == 0 or types[at - 1] != kind]


def _check_spoken(events: Sequence[Event]) -> None:
    ranks = [SPOKEN.index(event["type"]) for event in events if event["type"] in SPOKEN]
    steady = [rank for rank in ranks if rank != 1]
    assert steady == sorted(set(steady)), kinds(events)
    if 1 in ranks:
        assert ranks.index(1) > ranks.index(0)
        assert len(ranks) - 1 - ranks[::-1].index(1) < ranks.index(6)


def _check_answer(response_id: str, events: Sequence[Event]) -> None:
    item_id = next(
        (
            e["item"]["id"]
            for e in events
            if e["type"] == "response.output_item.added" and _response_id(e) == response_id
        ),
        None,
    )
    own = [
        event
        for event in events
        if _response_id(event) == response_id
        or (event["type"] in ("conversation.item.added", "conversation.item.done") and _item_id(event) == item_id)
    ]
    types = [event["type"] for event in own]
    assert types.count("response.created") == 1, types
    hung_up = response_id == _response_id([event for event in events if _response_id(event)][-1])
    end = types.index("response.done") if "response.done" in types or not hung_up else len(types)
    ranks = [_rank(kind) for kind in types[: end + 1]]
    assert ranks == sorted(ranks), kinds(own)
    assert not [kind for kind in types[end + 1 :] if kind.startswith("response.")], types
    assert all(types.count(kind) <= 1 for kind in types if not kind.endswith("delta")), types


def _rank(kind: str) -> int:
    if kind.endswith(".delta"):
        return ANSWER.index("delta")
    return ANSWER.index("item done" if kind in ITEM_DONE else kind)


def _response_id(event: Event) -> str | None:
    return event.get("response_id") or (event["response"]["id"] if "response" in event else None)


def _item_id(event: Event) -> str | None:
    return event.get("item_id") or (event["item"]["id"] if "item" in event else None)


def _unique(values: Any) -> list[Any]:
    return list(dict.fromkeys(values))
