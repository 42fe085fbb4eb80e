"""Client events that come twice are carried out once: one connection's share of it (docs/wire.md, "Sent twice").

A client that was cut off does not know whether its last events arrived. It resumes its session, on this server or
another, and sends them again with the same `event_id`: what was carried out is only acknowledged again, in the words
of the first time. Knows no socket.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from duolog.ports.errors import RequestRefused
from duolog.ports.idempotency import Standing
from duolog.ports.llm import TokenUsage
from duolog.realtime.client_messages import (
    ClientEvent,
    InputAudioCommit,
    ItemCreate,
    ItemDelete,
    ItemTruncate,
    ResponseCreate,
)
from duolog.realtime.frames import Frame
from duolog.realtime.rendering import usage_json
from duolog.serving.idempotency import Begun, DifferentRequest, Idempotency, RequestKey, count_repeat
from duolog.session.events import CallEvent, ResponseCreated, ResponseDone

Protected = ItemCreate | ItemDelete | ItemTruncate | InputAudioCommit | ResponseCreate
"""Events that would do something a second time; the others may be repeated, or carry sound."""
WAIT_S = 30.0
"""Longest wait for another server that carries the same event out."""
MAX_ANSWERS = 64
"""Asked for in one connection and not begun; the oldest is then no longer protected."""

Message = dict[str, object]


@dataclass(slots=True)
class _Answer:
    """An answer that this connection asked for and has not been told the end of."""

    request: RequestKey
    owner: str
    created: Message | None = None
    """`response.created`, once it has been told."""


class RepeatedEvents:
    """Events of one connection: `begin` first; what it lets in is carried out and then `done`, `asked` or `refused`."""

    def __init__(self, idempotency: Idempotency | None, session_id: str, *, resumed: bool) -> None:
        """None: nothing is protected. `resumed`: another process may know of events of this session."""
        self._idempotency = idempotency
        self._session_id = session_id
        self._resumed = resumed
        self._answers: dict[str, _Answer] = {}
        """By the client's event id."""

    async def begin(self, event: ClientEvent) -> Begun:
        """Whether to carry the event out. Waits for the store only in a resumed session, and a moment at most.

        Raises RequestRefused where the id came before with another content.
        """
        request = self._request(event)
        if self._idempotency is None or request is None:
            return Begun(Standing.CLAIMED)
        try:
            begun = await self._idempotency.begin(request, fresh=not self._resumed)
        except DifferentRequest as error:
            raise _differs(event) from error
        if begun.standing is Standing.DONE:
            count_repeat("event", "replayed")
        return begun

    async def wait(self, event: ClientEvent) -> Begun:
        """As `begin`, but not before the first of its kind has ended, wherever it runs.

        Raises RequestRefused, also where that takes too long.
        """
        request = self._request(event)
        if self._idempotency is None or request is None:
            return Begun(Standing.CLAIMED)
        try:
            begun = await self._idempotency.wait(request, WAIT_S)
        except DifferentRequest as error:
            raise _differs(event) from error
        if begun.standing is Standing.RUNNING:
            count_repeat("event", "refused")
            message = f"The same event has been under way elsewhere for {WAIT_S:g} s; wait and send it again."
            raise RequestRefused(message, code="event_in_progress", param="event_id")
        if begun.standing is Standing.DONE:
            count_repeat("event", "waited")
        return begun

    def under_way(self, event: ClientEvent) -> list[Message] | None:
        """What this connection itself has told so far of an answer that it is making; None: it makes none for it."""
        answer = self._answers.get(event.event_id or "")
        if answer is None or answer.request != self._request(event):
            return None
        count_repeat("event", "replayed")
        return [answer.created] if answer.created is not None else []

    def carried_out(self, event: ClientEvent, begun: Begun, acknowledgement: Sequence[Mapping[str, object]]) -> None:
        """The call has done it. An answer is acknowledged later, as it is told of."""
        request = self._request(event)
        if self._idempotency is None or request is None or not begun.owner:
            return
        if not isinstance(event, ResponseCreate):
            self._idempotency.finish(request, begun.owner, _encoded(acknowledgement))
            return
        self._answers[event.event_id or ""] = _Answer(request, begun.owner)
        if len(self._answers) > MAX_ANSWERS:
            oldest = self._answers.pop(next(iter(self._answers)))
            self._idempotency.release(oldest.request, oldest.owner)

    def refused(self, event: ClientEvent, begun: Begun) -> None:
        """The call said no, and nothing has changed: the event may come again."""
        request = self._request(event)
        if self._idempotency is not None and request is not None and begun.owner:
            self._idempotency.release(request, begun.owner)

    def told(self, event: CallEvent, frames: Sequence[Frame]) -> None:
        """The client is being sent these frames of an event of the call."""
        if not self._answers or not isinstance(event, ResponseCreated | ResponseDone):
            return
        answer = self._answers.get(event.response.asked_by or "")
        if answer is None:
            return
        messages = [_without_id(frame.payload) for frame in frames if not isinstance(frame.payload, bytes)]
        if isinstance(event, ResponseCreated):
            answer.created = messages[0]
            return
        del self._answers[event.response.asked_by or ""]
        self._finish(answer, messages[0])

    def close(self) -> None:
        """The connection has ended, or another one has taken its session over.

        An answer that was begun has been cut off, and repeating its request tells so; one of which nothing was told may
        be asked for again.
        """
        answers, self._answers = self._answers, {}
        for answer in answers.values():
            if answer.created is not None:
                self._finish(answer, _cut_off(answer.created))
            elif self._idempotency is not None:
                self._idempotency.release(answer.request, answer.owner)

    def _finish(self, answer: _Answer, done: Message) -> None:
        if self._idempotency is not None:
            told = [done] if answer.created is None else [answer.created, done]
            self._idempotency.finish(answer.request, answer.owner, _encoded(told))

    def _request(self, event: ClientEvent) -> RequestKey | None:
        """None: it may be carried out as often as it comes."""
        if not isinstance(event, Protected) or not event.event_id:
            return None
        content = json.dumps(event.model_dump(mode="json", exclude_unset=True), sort_keys=True)
        return RequestKey.of("event", (self._session_id, event.event_id), content.encode())


def acknowledgement(result: bytes) -> list[Message]:
    """The messages of the first time, without their event ids; empty where they cannot be read."""
    try:
        messages = json.loads(result)
    except ValueError:
        return []
    return [message for message in messages if isinstance(message, dict)] if isinstance(messages, list) else []


def _encoded(messages: Sequence[Mapping[str, object]]) -> bytes:
    return json.dumps(messages, separators=(",", ":")).encode()


def _without_id(payload: Mapping[str, object]) -> Message:
    return {name: value for name, value in payload.items() if name != "event_id"}


def _cut_off(created: Message) -> Message:
    """`response.done` of an answer whose connection broke."""
    response = created["response"]
    if not isinstance(response, dict):
        raise TypeError("response.created without its response")
    cut = {"type": "cancelled", "reason": "client_cancelled"}
    ended = {"status": "cancelled", "status_details": cut, "usage": usage_json(TokenUsage())}
    return {"type": "response.done", "response": {**response, **ended}}


def _differs(event: ClientEvent) -> RequestRefused:
    count_repeat("event", "differs")
    message = (
        f"The event id {event.event_id!r} came before with another content; give each event an id of its own, and "
        "repeat an event without changing it."
    )
    return RequestRefused(message, code="event_id_reused", param="event_id")
