"""Calls the peer with the same microphone clock, playout and definitions as Duolog's caller."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import anyio
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from benchmarks.peer_wire import PeerAudio, PeerInterruption, decode, encode_audio
from duolog.loadtest.call_log import Answer, Turn
from duolog.loadtest.campaign import LEAD_S, PAUSE_S, Utterance
from duolog.loadtest.measure import turn_timeline
from duolog.loadtest.measured_turn import MeasuredTurn, measured
from duolog.loadtest.microphone import Microphone
from duolog.loadtest.pacing import FrameSchedule, SentFrames
from duolog.loadtest.playout import VirtualPlayer
from duolog.loadtest.timeline import first_audible_sample

MICROPHONE_RATE_HZ = 16_000
QUIET_S = 1.0
"""The peer does not say when an answer has been spoken: it has when this long nothing audible came."""
ANSWER_TIMEOUT_S = 30.0
TICK_S = 0.02


@dataclass(frozen=True, slots=True)
class PeerCaller:
    url: str
    """With the configuration's letter, e.g. `ws://127.0.0.1:8010/ws/C`."""

    async def converse(self, utterances: Sequence[Utterance]) -> list[MeasuredTurn]:
        turns: list[MeasuredTurn] = []
        try:
            async with connect(self.url, max_size=None, compression=None, proxy=None) as connection:
                await _hold(PeerCall(connection), utterances, turns)
        except (ConnectionClosed, InvalidHandshake, OSError, TimeoutError) as error:
            turns.append(MeasuredTurn(utterances[min(len(turns), len(utterances) - 1)].name, failure=repr(error)))
        return turns


async def _hold(call: PeerCall, utterances: Sequence[Utterance], turns: list[MeasuredTurn]) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call.receive)
        tasks.start_soon(call.send_microphone)
        await anyio.sleep(LEAD_S)
        for utterance in utterances:
            turn = await call.say(utterance)
            if not call.finished(turn):
                turns.append(MeasuredTurn(utterance.name, turn.transcript, failure=_no_answer(turn)))
                break
            turns.append(measured(turn, turn_timeline(turn, call.sent)))
            await anyio.sleep(PAUSE_S)
        tasks.cancel_scope.cancel()


def _no_answer(turn: Turn) -> str:
    written = next((answer.text for answer in turn.answers if answer.text), "")
    return f'No answer was heard in {ANSWER_TIMEOUT_S:.0f} s: understood "{turn.transcript}", answered "{written}".'


class PeerCall:
    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._microphone = Microphone()
        self._turns: list[Turn] = []
        self._last_audible_s = 0.0
        self._ended = False
        self.sent = SentFrames(FrameSchedule(anyio.current_time()))

    async def say(self, utterance: Utterance) -> Turn:
        """Speak and hear the answer out; not `finished` where none came in time."""
        turn = Turn(utterance.name, anyio.current_time())
        self._turns.append(turn)
        self._microphone.speak(utterance.samples, turn)
        while not self.finished(turn):
            if self._given_up(turn):
                break
            await anyio.sleep(TICK_S)
        return turn

    def finished(self, turn: Turn) -> bool:
        """The answer was given and heard to its end."""
        answer = turn.answer
        if answer is None or not answer.done or answer.heard_s is None:
            return False
        return anyio.current_time() > self._last_audible_s + QUIET_S

    def _given_up(self, turn: Turn) -> bool:
        if turn.last_voiced_s is None:
            return self._ended
        newest_s = max(self._last_audible_s, turn.last_voiced_s)
        return self._ended or anyio.current_time() > newest_s + ANSWER_TIMEOUT_S

    async def send_microphone(self) -> None:
        schedule = FrameSchedule(anyio.current_time())
        self.sent = SentFrames(schedule)
        while not self._ended:
            await anyio.sleep_until(schedule.deadline_s(len(self.sent)))
            frame = encode_audio(self._microphone.next_frame(), MICROPHONE_RATE_HZ)
            try:
                await self._connection.send(frame)
            except ConnectionClosed:
                return
            now_s = anyio.current_time()
            self.sent.record(now_s)
            self._microphone.frame_sent(now_s)

    async def receive(self) -> None:
        try:
            async for message in self._connection:
                if self._turns:
                    self._take(message, self._turns[-1], anyio.current_time())
        except ConnectionClosed:
            pass
        self._ended = True

    def _take(self, message: str | bytes, turn: Turn, now_s: float) -> None:
        if isinstance(message, str):
            self._take_mark(json.loads(message), turn, now_s)
            return
        match decode(message):
            case PeerAudio() as audio:
                self._take_audio(audio, turn, now_s)
            case PeerInterruption():
                for answer in turn.answers:
                    if not answer.done:
                        answer.status = "cancelled"
                        answer.player.stop(now_s)
            case None:
                pass

    @staticmethod
    def _take_mark(mark: dict[str, str], turn: Turn, now_s: float) -> None:
        match mark["mark"]:
            case "endpoint":
                turn.stopped_s = now_s
            case "transcript":
                turn.transcript = f"{turn.transcript} {mark['text']}".strip()
                turn.transcript_s = now_s
            case "first_token":
                answer = Answer(str(len(turn.answers)), now_s, now_s, VirtualPlayer(MICROPHONE_RATE_HZ))
                answer.first_text_s = now_s
                turn.answers.append(answer)
            case "answer" if turn.answers and not turn.answers[-1].cancelled:
                turn.answers[-1].text = mark["text"]
                turn.answers[-1].status = "completed"

    def _take_audio(self, audio: PeerAudio, turn: Turn, now_s: float) -> None:
        audible = first_audible_sample(audio.samples)
        if not turn.answers or (audible is None and turn.answers[-1].first_frame_s is None):
            return
        answer = turn.answers[-1]
        if answer.first_frame_s is None:
            answer.player = VirtualPlayer(audio.rate_hz)
            answer.first_frame_s = now_s
        heard_from_s = answer.player.receive(len(audio.samples), now_s)
        if audible is None:
            return
        self._last_audible_s = heard_from_s + len(audio.samples) / audio.rate_hz
        if answer.heard_s is None:
            answer.heard_s = heard_from_s + audible / audio.rate_hz
