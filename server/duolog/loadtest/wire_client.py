"""Places a real call over the socket, with our extensions: speaks at speaking pace, listens in real time, reports what
was played. For demos, tests and measurements; it knows the wire (docs/extensions.md), nothing of the server's inside.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlencode, urlsplit, urlunsplit

import anyio
import numpy as np
from numpy.typing import NDArray
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidMessage, InvalidStatus, InvalidURI

from duolog.loadtest.call_log import CallLog, Turn
from duolog.loadtest.failures import CallFailed, CallRefused
from duolog.loadtest.measure import turn_timeline
from duolog.loadtest.microphone import Microphone
from duolog.loadtest.pacing import FrameSchedule, SentFrames
from duolog.loadtest.timeline import TurnTimeline
from duolog.loadtest.wire_text import (
    Message,
    microphone_frame,
    number_field,
    parse_message,
    parse_speech_frame,
    text_field,
)
from duolog.loadtest.wire_writer import WireWriter

TICK_S = 0.02
REPORT_EVERY_S = 0.1
HANDSHAKE_TIMEOUT_S = 10.0
MAX_MESSAGE_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Said:
    """One message of a conversation."""

    role: Literal["user", "assistant"]
    text: str


@dataclass(frozen=True, slots=True)
class CallOptions:
    url: str = "ws://127.0.0.1:8000"
    """Of the server; `/v1/realtime` is added where it names no path."""
    persona: str = "ava"
    greeting: bool = False
    """Ask for the persona's greeting and hear it out first."""
    answer_timeout_s: float = 30.0
    """How long after the last voiced sample an answer may take to come and be played to its end without progress."""
    session: Mapping[str, object] | None = None
    """Fields of a `session.update` to send first, such as `instructions`."""
    history: tuple[Said, ...] = ()
    """What was said before, put into the conversation when the call begins."""
    api_key: str | None = None
    resume: str | None = None
    """Id of a session to take up again."""
    microphone: bool = True
    """False: no sound is sent, as by somebody who only types."""
    loudspeaker: bool = True
    """False: no sound is expected, and none is reported as played."""


Observer = Callable[[Message], None]
"""Sees each event as it comes, for live captions."""


class Call:
    """A call that is up. Made by `place_call`."""

    def __init__(self, writer: WireWriter, options: CallOptions, observer: Observer | None) -> None:
        self.log = CallLog()
        self.sent = SentFrames(FrameSchedule(anyio.current_time()))
        self._microphone = Microphone()
        self._writer = writer
        self._options = options
        self._observer = observer
        self._ended: CallFailed | None = None
        self._over = anyio.Event()
        self._greeting = self._begin_greeting() if options.greeting else None
        """Begun with the call: the greeting may come at once."""

    async def listen(self) -> Turn:
        """Hear out what the server says unasked (the greeting). Raises CallFailed."""
        turn, self._greeting = self._greeting or self._begin_greeting(), None
        await self._hear_out(turn)
        return turn

    def _begin_greeting(self) -> Turn:
        turn = self.log.begin_turn("greeting", anyio.current_time())
        turn.last_voiced_s = anyio.current_time()
        return turn

    async def say(self, samples: NDArray[np.int16], label: str) -> Turn:
        """Speak a recording (16 kHz) and hear the answer out. Raises CallFailed where none comes."""
        turn = self.speak(samples, label)
        await self._hear_out(turn)
        return turn

    def speak(self, samples: NDArray[np.int16], label: str) -> Turn:
        """Begin to speak a recording (16 kHz), whatever the server does, and go on at once."""
        now_s = anyio.current_time()
        turn = self.log.begin_turn(label, now_s)
        self._microphone.speak(samples, turn, self.sent.schedule.first_frame_from(now_s) - len(self.sent))
        return turn

    async def type_text(self, text: str) -> Turn:
        """Send a typed message and hear the answer out. Raises CallFailed where none comes."""
        turn = await self.send_text(text)
        await self._hear_out(turn)
        return turn

    async def send_text(self, text: str) -> Turn:
        """Send a typed message and ask for its answer; one that is still being made is cancelled first."""
        unfinished = any(not answer.done for turn in self.log.turns for answer in turn.answers)
        turn = self.log.begin_turn(text, anyio.current_time())
        turn.transcript, turn.typed = text, True
        if unfinished:
            await self._writer.send_event({"type": "response.cancel"})
        await self._put(Said("user", text))
        await self._writer.send_event({"type": "response.create"})
        turn.last_voiced_s = anyio.current_time()
        return turn

    async def stay_until(self, at_s: float) -> None:
        """Stay on the line until this time. Raises CallFailed where the call ends before."""
        with anyio.move_on_after(max(0.0, at_s - anyio.current_time())):
            await self._over.wait()
        self._raise_if_ended()

    async def configure(self, session: Mapping[str, object]) -> None:
        """Change fields of the session for the rest of the call."""
        await self._writer.send_event({"type": "session.update", "session": {"type": "realtime", **session}})

    async def remember(self, history: Sequence[Said]) -> None:
        """Put messages at the end of the conversation; nobody answers them."""
        for said in history:
            await self._put(said)

    async def _put(self, said: Said) -> None:
        kind = "input_text" if said.role == "user" else "output_text"
        item = {"type": "message", "role": said.role, "content": [{"type": kind, "text": said.text}]}
        await self._writer.send_event({"type": "conversation.item.create", "item": item})

    async def pause(self, seconds: float) -> None:
        """Be silent for a while, as people are between turns."""
        await anyio.sleep(seconds)

    def timeline(self, turn: Turn) -> TurnTimeline | None:
        """Where the turn's time went; None where nothing answered."""
        return turn_timeline(turn, self.sent)

    async def until_ready(self) -> None:
        """Wait for the server's greeting of the wire. Raises CallFailed."""
        with anyio.move_on_after(HANDSHAKE_TIMEOUT_S):
            while not self.log.ready:
                self._raise_if_ended()
                await anyio.sleep(TICK_S)
            return
        raise CallFailed(
            f"{self._options.url} took the connection but sent no duolog.session within {HANDSHAKE_TIMEOUT_S:.0f} s; "
            "is it a Duolog server?"
        )

    async def send_microphone(self) -> None:
        """Send a frame each 20 ms on an absolute schedule, until cancelled or the connection ends."""
        schedule = FrameSchedule(anyio.current_time())
        self.sent = SentFrames(schedule)
        while self._ended is None:
            await anyio.sleep_until(schedule.deadline_s(len(self.sent)))
            await self._writer.send_bytes(microphone_frame(len(self.sent), self._microphone.next_frame()))
            now_s = anyio.current_time()
            self.sent.record(now_s)
            self._microphone.frame_sent(now_s)

    async def send_playout_reports(self) -> None:
        """Say every 100 ms what has really been played, until cancelled."""
        while self._ended is None:
            await anyio.sleep(REPORT_EVERY_S)
            for report in self.log.playout_reports(anyio.current_time()):
                await self._writer.send_event(report)

    async def receive(self, connection: ClientConnection) -> None:
        """Take in everything the server sends, until the connection ends."""
        try:
            async for message in connection:
                await self._take(message, anyio.current_time())
            self._end(CallFailed("The server hung up before the call was over."))
        except ConnectionClosed as closed:
            self._end(CallFailed(f"The connection broke off: {_close_reason(closed)}."))
        except ValueError as error:
            self._end(CallFailed(f"The server sent something that is not our wire: {error}."))

    async def _take(self, message: str | bytes, now_s: float) -> None:
        if isinstance(message, bytes):
            self.log.on_speech(parse_speech_frame(message), now_s)
            return
        event = parse_message(message)
        for reply in self.log.on_message(event, now_s):
            await self._writer.send_event(reply)
        if text_field(event, "type") == "error" and not (self.log.ready and self.log.turns):
            self._end(_refusal(event))
        if self._observer is not None:
            self._observer(event)

    async def _hear_out(self, turn: Turn) -> None:
        while not turn.finished(now_s := anyio.current_time()):
            self._raise_if_ended()
            self._raise_if_failed(turn)
            if turn.last_voiced_s is not None and now_s > self._patience_ends_s(turn):
                raise CallFailed(_no_answer(turn, self._options.answer_timeout_s))
            await anyio.sleep(TICK_S)
        self._raise_if_failed(turn)

    def _patience_ends_s(self, turn: Turn) -> float:
        """Sound that still arrives renews it: a long answer is no missing answer."""
        newest_s = max((answer.last_sign_s for answer in turn.answers), default=0.0)
        return max(newest_s, turn.last_voiced_s or 0.0) + self._options.answer_timeout_s

    def _end(self, why: CallFailed) -> None:
        """The first reason is the true one: what follows is its consequence."""
        self._ended = self._ended or why
        self._over.set()

    def _raise_if_ended(self) -> None:
        if self._ended is not None:
            raise self._ended

    @staticmethod
    def _raise_if_failed(turn: Turn) -> None:
        failed = next((answer for answer in turn.answers if answer.status == "failed"), None)
        if failed is not None:
            raise CallFailed(f"The answer to {turn.label} failed: {failed.reason or 'the server gave no reason'}")


@asynccontextmanager
async def place_call(options: CallOptions, observer: Observer | None = None) -> AsyncIterator[Call]:
    """A call for the duration of the block; hangs up at its end. Raises CallFailed. Runs on anyio's asyncio backend."""
    connection = await _open(options)
    try:
        async with anyio.create_task_group() as tasks:
            call = Call(WireWriter(connection), options, observer)
            tasks.start_soon(call.receive, connection)
            await call.until_ready()
            if options.session is not None:
                await call.configure(options.session)
            await call.remember(options.history)
            if options.microphone:
                tasks.start_soon(call.send_microphone)
            if options.loudspeaker:
                tasks.start_soon(call.send_playout_reports)
            yield call
            tasks.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        failure = _only_failure(group)
        if failure is None:
            raise
        raise failure from failure.__cause__
    finally:
        with anyio.move_on_after(2, shield=True):
            await connection.close()


def call_url(options: CallOptions) -> str:
    """The address of the call. Raises CallFailed where the server's address cannot be one."""
    parts = urlsplit(options.url)
    scheme = {"http": "ws", "https": "wss"}.get(parts.scheme, parts.scheme)
    if scheme not in ("ws", "wss") or not parts.netloc:
        raise CallFailed(f"{options.url!r} is no address of a server; write it like ws://127.0.0.1:8000.")
    query = {"model": options.persona, "duolog": "1"} | ({"greeting": "1"} if options.greeting else {})
    if options.resume:
        query["session"] = options.resume
    path = parts.path if parts.path.strip("/") else "/v1/realtime"
    return urlunsplit((scheme, parts.netloc, path, urlencode(query), ""))


async def _open(options: CallOptions) -> ClientConnection:
    headers = {"Authorization": f"Bearer {options.api_key}"} if options.api_key else {}
    try:
        return await connect(
            call_url(options),
            additional_headers=headers,
            max_size=MAX_MESSAGE_BYTES,
            open_timeout=HANDSHAKE_TIMEOUT_S,
            compression=None,
            proxy=None,
        )
    except InvalidStatus as refused:
        body = (refused.response.body or b"").decode("utf-8", "replace").strip()
        status = f"{refused.response.status_code} {refused.response.reason_phrase}"
        sentence = f"The server at {options.url} refused the call: {status}. {body[:300]}".strip()
        code = _error_code(body) or f"http_{refused.response.status_code}"
        raise CallRefused(sentence, code=code) from refused
    except (InvalidHandshake, InvalidMessage, InvalidURI) as error:
        raise CallFailed(f"What answers at {options.url} is no Duolog server: {error}.") from error
    except OSError as error:
        raise CallFailed(f"No server answers at {options.url} ({error}); start one with `make run`.") from error


def _only_failure(group: BaseExceptionGroup[BaseException]) -> BaseException | None:
    """The one error in the group, however deep; None where there are several."""
    while len(group.exceptions) == 1:
        error = group.exceptions[0]
        if not isinstance(error, BaseExceptionGroup):
            return error
        group = error
    return None


def _refusal(event: Message) -> CallRefused:
    """An error event in place of a call."""
    sentence = f"The server refused the call: {text_field(event, 'error', 'message')}"
    code = text_field(event, "error", "code") or text_field(event, "error", "type") or "error"
    return CallRefused(sentence, code=code, retry_after_s=number_field(event, "error", "retry_after_s"))


def _error_code(body: str) -> str:
    """The code in a refusing HTTP answer, empty where it has none."""
    try:
        return text_field(parse_message(body), "error", "code")
    except ValueError:
        return ""


def _close_reason(closed: ConnectionClosed) -> str:
    received = closed.rcvd
    return f"{received.reason or 'no reason given'} (code {received.code})" if received else "the server is gone"


def _no_answer(turn: Turn, timeout_s: float) -> str:
    heard = f'it understood "{turn.transcript}"' if turn.transcript else "it recognised no words"
    problems = f" It said: {'; '.join(turn.problems)}" if turn.problems else ""
    return f"No answer to {turn.label} came within {timeout_s:.0f} s; {heard}.{problems}"
