"""One client's WebSocket around one call: a reader, a pump, a writer and two watches in one task group.

    socket ──▶ reader ──commands──▶ call ──events──▶ pump ──frames──▶ writer ──▶ socket
                  └────────────── errors, pongs ──────────────────────▲

The stream to the writer is short on purpose: what waits for a slow client waits in the call, where a flush overtakes
it. The first to end says how (`Ending`); everything else is cancelled, then the client gets the last word.
"""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass

import anyio
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from duolog.ports.errors import EngineError, Overloaded, RequestRefused
from duolog.ports.idempotency import Standing
from duolog.realtime.client_messages import ClientEvent, Ping
from duolog.realtime.commands import ClientCommands
from duolog.realtime.frames import Frame
from duolog.realtime.parsing import Refusal, parse_event
from duolog.realtime.ports import AppPorts
from duolog.realtime.rendering import error_json, refusal_json
from duolog.realtime.repeats import RepeatedEvents, acknowledgement
from duolog.realtime.server_messages import ErrorMessage
from duolog.realtime.translator import Translator
from duolog.serving.idempotency import Begun
from duolog.session.control import CallControl
from duolog.session.events import CallEvent, PlayoutFlush
from duolog.session.outbox import SlowConsumer

MAX_WAITING_FRAMES = 8
MAX_WAITING_EVENTS = 16
"""Repeated events that may wait for the end of the first."""

NORMAL_CLOSURE = 1000
GOING_AWAY = 1001
POLICY_VIOLATION = 1008
INTERNAL_ERROR = 1011
SERVICE_RESTART = 1012
TRY_AGAIN_LATER = 1013


@dataclass(frozen=True, slots=True)
class Ending:
    """How a connection ends."""

    code: int | None
    """WebSocket close code; None: the client has gone already."""
    reason: str
    """For the close frame, at most 123 bytes; and for the log."""
    error: ErrorMessage | None = None
    """Sent before the close, for clients that look at events only."""


class RealtimeConnection:
    """Drives one connection until the client leaves, the call ends, or a limit is reached."""

    def __init__(
        self,
        socket: WebSocket,
        call: CallControl,
        commands: ClientCommands,
        translator: Translator,
        repeats: RepeatedEvents,
        ports: AppPorts,
    ) -> None:
        self._socket = socket
        self._repeats = repeats
        self._waiting_events = 0
        self._call = call
        self._commands = commands
        self._translator = translator
        self._limits = ports.limits
        self._drain = ports.drain
        self._scope = anyio.CancelScope()
        self._ending: Ending | None = None
        self._introduced = anyio.Event()
        """The session has been announced: nothing else may come first."""
        self._generation_floor = 0
        self._heard_at_s = 0.0

    async def run(self) -> Ending:
        """Until the connection has ended; the socket is then closed. An error of the call is raised through."""
        self._heard_at_s = anyio.current_time()
        send, receive = anyio.create_memory_object_stream[Frame | Ending](MAX_WAITING_FRAMES)
        with self._scope:
            async with send, receive, anyio.create_task_group() as tasks:
                tasks.start_soon(self._read, send, tasks)
                tasks.start_soon(self._pump, send)
                tasks.start_soon(self._write, receive)
                tasks.start_soon(self._watch_time)
                tasks.start_soon(self._watch_drain)
        ending = self._ending or Ending(NORMAL_CLOSURE, "the call has ended")
        await self._say_goodbye(ending)
        return ending

    def _end(self, ending: Ending) -> None:
        """The first ending holds."""
        if self._ending is None:
            self._ending = ending
        self._scope.cancel()

    # Client → call

    async def _read(self, outgoing: MemoryObjectSendStream[Frame | Ending], tasks: TaskGroup) -> None:
        await self._introduced.wait()
        while True:
            message = await self._socket.receive()
            if message["type"] == "websocket.disconnect":
                self._end(Ending(None, f"the client closed the connection ({message.get('code')})"))
                return
            self._heard_at_s = anyio.current_time()
            try:
                event = await self._take(message.get("text"), message.get("bytes"))
                answers = event if isinstance(event, list) else await self._take_event(event, outgoing, tasks)
            except SlowConsumer:
                self._end(Ending(POLICY_VIOLATION, "the client asks for more than it reads"))
                return
            for answer in answers:
                await outgoing.send(answer)

    async def _take(self, text: str | None, binary: bytes | None) -> ClientEvent | list[Frame]:
        """The event in one message; or, where there is none, the frames that answer the message."""
        size = len(binary or b"") if text is None else len(text)
        if size > self._limits.max_message_bytes:
            message = f"The message has {size} bytes; at most {self._limits.max_message_bytes} are taken. Send less."
            return [self._refused(RequestRefused(message, code="message_too_large"), None)]
        if text is None:
            return await self._take_binary(binary or b"")
        event = parse_event(text)
        return [self._refused(event.error, event.event_id)] if isinstance(event, Refusal) else event

    async def _take_event(
        self, event: ClientEvent, outgoing: MemoryObjectSendStream[Frame | Ending], tasks: TaskGroup
    ) -> list[Frame]:
        """Carry it out, unless it has been; the frames that answer it here: a pong, an error, what came of it."""
        told = self._repeats.under_way(event)
        if told is not None:
            return [self._translator.again(message) for message in told]
        try:
            begun = await self._repeats.begin(event)
        except RequestRefused as error:
            return [self._refused(error, event.event_id)]
        if begun.standing is not Standing.RUNNING:
            return await self._answer(event, begun)
        if self._waiting_events >= MAX_WAITING_EVENTS:
            message = "Too many repeated events wait for the end of the first; wait for their answers."
            return [self._refused(RequestRefused(message, code="event_in_progress", param="event_id"), event.event_id)]
        self._waiting_events += 1
        tasks.start_soon(self._answer_later, event, outgoing)
        return []

    async def _answer_later(self, event: ClientEvent, outgoing: MemoryObjectSendStream[Frame | Ending]) -> None:
        """The same event is being carried out elsewhere: audio and other events do not wait for its end."""
        try:
            for frame in await self._answer(event, await self._repeats.wait(event)):
                await outgoing.send(frame)
        except RequestRefused as error:
            await outgoing.send(self._refused(error, event.event_id))
        except SlowConsumer:
            self._end(Ending(POLICY_VIOLATION, "the client asks for more than it reads"))
        finally:
            self._waiting_events -= 1

    async def _answer(self, event: ClientEvent, begun: Begun) -> list[Frame]:
        if begun.standing is Standing.DONE:
            return [self._translator.again(message) for message in acknowledgement(begun.result)]
        try:
            told = await self._commands.apply(event)
        except RequestRefused as error:
            self._repeats.refused(event, begun)
            return [self._refused(error, event.event_id)]
        except (Overloaded, EngineError) as error:
            self._repeats.refused(event, begun)
            failed = error_json(str(error), code="server_error", kind="server_error", event_id=event.event_id)
            return [self._translator.frame(failed)]
        self._repeats.carried_out(event, begun, told)
        return [self._pong(event)] if isinstance(event, Ping) else []

    async def _take_binary(self, frame: bytes) -> list[Frame]:
        try:
            await self._commands.append_binary(frame)
        except RequestRefused as error:
            return [self._refused(error, None)]
        return []

    def _refused(self, error: RequestRefused, event_id: str | None) -> Frame:
        return self._translator.frame(refusal_json(error, event_id))

    def _pong(self, ping: Ping) -> Frame:
        now_ms = anyio.current_time() * 1000
        return self._translator.frame(
            {"type": "duolog.pong", "client_time_ms": ping.client_time_ms, "server_time_ms": now_ms}
        )

    # Call → client

    async def _pump(self, outgoing: MemoryObjectSendStream[Frame | Ending]) -> None:
        async with aclosing(self._call.events()) as events:
            async for event in events:
                self._note_flush(event)
                frames = self._translator.translate(event)
                self._repeats.told(event, frames)
                for frame in frames:
                    await outgoing.send(frame)
                self._introduced.set()
        await outgoing.send(Ending(NORMAL_CLOSURE, "the call has ended"))

    def _note_flush(self, event: CallEvent) -> None:
        if isinstance(event, PlayoutFlush):
            self._generation_floor = max(self._generation_floor, event.generation)

    async def _write(self, incoming: MemoryObjectReceiveStream[Frame | Ending]) -> None:
        async for frame in incoming:
            if isinstance(frame, Ending):
                self._end(frame)
                return
            if frame.generation is not None and frame.generation < self._generation_floor:
                continue
            if not await self._send(frame):
                return

    async def _send(self, frame: Frame) -> bool:
        """False: the connection has ended."""
        limit_s = self._limits.send_timeout_s
        with anyio.move_on_after(limit_s) as scope:
            try:
                await _send_payload(self._socket, frame.encoded())
            except WebSocketDisconnect:
                self._end(Ending(None, "the client vanished"))
                return False
        if scope.cancelled_caught:
            self._end(Ending(POLICY_VIOLATION, f"the client read nothing for {limit_s:g} s"))
        return not scope.cancelled_caught

    # Limits

    async def _watch_time(self) -> None:
        expires_at_s = anyio.current_time() + self._limits.max_call_s
        while (now_s := anyio.current_time()) < expires_at_s:
            idle_at_s = self._heard_at_s + self._limits.idle_call_s
            if now_s >= idle_at_s:
                self._expire(f"nothing came from the client for {self._limits.idle_call_s:g} s")
                return
            await anyio.sleep_until(min(idle_at_s, expires_at_s))
        self._expire(f"the call has reached its limit of {self._limits.max_call_s:g} s")

    def _expire(self, why: str) -> None:
        error = error_json(f"The session has ended: {why}. Open a new one.", code="session_expired")
        self._end(Ending(GOING_AWAY, why, error))

    async def _watch_drain(self) -> None:
        await self._drain.wait_begun()
        error = error_json(self._drain.reason, code="server_shutting_down", kind="server_error")
        self._end(Ending(SERVICE_RESTART, self._drain.reason, error))

    async def _say_goodbye(self, ending: Ending) -> None:
        if ending.code is None:
            return
        last = None if ending.error is None else self._translator.frame(ending.error)
        await close_socket(self._socket, ending.code, ending.reason, last=last, timeout_s=self._limits.close_timeout_s)


async def close_socket(
    socket: WebSocket, code: int, reason: str, *, last: Frame | None = None, timeout_s: float
) -> None:
    """Send a last frame and close; a client that does not take it in time, or has gone, is left.

    Runs to its end in a cancelled scope, too.
    """
    with anyio.move_on_after(timeout_s, shield=True):
        try:
            if last is not None and _is_open(socket):
                await _send_payload(socket, last.encoded())
            if _is_open(socket):
                await socket.close(code, _cut(reason))
        except WebSocketDisconnect:
            return


async def _send_payload(socket: WebSocket, payload: str | bytes) -> None:
    if isinstance(payload, bytes):
        await socket.send_bytes(payload)
    else:
        await socket.send_text(payload)


def _is_open(socket: WebSocket) -> bool:
    connected = WebSocketState.CONNECTED
    return socket.client_state is connected and socket.application_state is connected


def _cut(reason: str) -> str:
    """A close frame has room for 123 bytes of reason."""
    return reason.encode()[:123].decode(errors="ignore")
