"""One call, as the wire sees it: CallControl over the ear, the turns and the playout. Knows nothing of sockets.

audio ──▶ TurnTaking (Ear → VoiceActivity → Floor) ──turns──▶ TurnRunner ──▶ Understanding, Speaking ──▶ Outbox
"""

from __future__ import annotations

from collections.abc import AsyncGenerator

import anyio
import numpy as np
import structlog
from anyio.abc import TaskGroup
from numpy.typing import NDArray

from duolog.ports.errors import RequestRefused
from duolog.ports.store import StoredSession
from duolog.session.config import ResponseOptions, SessionConfig
from duolog.session.context import CallContext
from duolog.session.control import PlayoutReport
from duolog.session.events import (
    CallErrorRaised,
    CallEvent,
    PlayoutHeard,
    ResponseStatus,
    SessionCreated,
    SessionUpdated,
)
from duolog.session.outbox import SlowConsumer
from duolog.session.playing import Playback
from duolog.session.prefilling import Prefilling
from duolog.session.prompts import Prompts
from duolog.session.response import Outcome
from duolog.session.runner import TurnRunner, TurnStuck
from duolog.session.speaking import Speaking
from duolog.session.turn import Turn, TurnEnd
from duolog.session.turn_taking import TurnTaking
from duolog.session.understanding import Understanding
from duolog.turns.conversation import Item, encode_item

log = structlog.get_logger(__name__)

INPUT_CHUNKS = 64
"""Appends that may wait to be heard; the sender waits beyond."""
HEAR_AT_ONCE_MS = 320
"""A large append is heard in pieces of this length, so that other calls get their turn in between."""
IDLE_LOOK_S = 0.5
INPUT_STALL_S = 1.5
"""A caller whose audio stops in the middle of a word has ended the turn after this long."""


class Call:
    """Implements CallControl. `run` must be running while it is used."""

    def __init__(self, context: CallContext, *, resumed: bool = False) -> None:
        self._context = context
        self._audio_in, self._audio_out = anyio.create_memory_object_stream[NDArray[np.int16]](INPUT_CHUNKS)
        prompts = Prompts(context)
        self._prefilling = Prefilling(context.engines.batcher, context.session_id, prompts.open)
        self._understanding = Understanding(context, self._prefilling)
        self._runner = TurnRunner(self._work, self._finish_turn)
        self._speaking = Speaking(context, prompts, self._prefilling, self._answer_audible)
        self._tasks: TaskGroup | None = None
        self._taking: TurnTaking | None = None
        self._resumed = resumed
        self._saved = self._encoded_items() if resumed else None
        """The conversation as the writer last got it."""
        self._over = anyio.Event()

    async def run(self, *, ready: anyio.Event, greet: bool) -> None:
        """Live until cancelled or the client stops reading. Sets `ready` once the methods may be used."""
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                self._taking = TurnTaking(self._context, self._understanding, self._runner, tasks)
                self._begin(greet=greet)
                ready.set()
                tasks.start_soon(self._runner.run)
                tasks.start_soon(self._prefilling.run)
                tasks.start_soon(self._watch_idle)
                await self._listen()
        except* SlowConsumer:
            log.warning("call ended: its client does not read")
        except* TurnStuck as group:
            log.warning("call ended: a turn did not end", error=str(group.exceptions[0]))
        finally:
            ready.set()
            self._audio_in.close()
            self._audio_out.close()
            self._context.outbox.close()
            self._cut_unheard()
            self._save()
            self._over.set()

    def _cut_unheard(self) -> None:
        """What was still to be played when the call ended is never heard, and not part of its history."""
        for playback in self._context.playbacks.unfinished():
            playback.update_by_clock()
            playback.over.set()
            self._context.items.cut(playback)

    async def hang_up(self) -> None:
        """End the call; returns when nothing of it runs and its last state has gone to the writer."""
        if self._tasks is not None:
            self._tasks.cancel_scope.cancel()
        await self._over.wait()

    @property
    def session_id(self) -> str:
        return self._context.session_id

    @property
    def config(self) -> SessionConfig:
        return self._context.config

    def update(self, config: SessionConfig) -> None:
        self._context.config = config
        self._floor.reconfigure()
        self._prefilling.history_changed()
        self._context.outbox.put(SessionUpdated(config))

    async def append_audio(self, samples: NDArray[np.int16]) -> None:
        step = max(1, self.config.input_rate_hz * HEAR_AT_ONCE_MS // 1000)
        for start in range(0, len(samples), step):
            try:
                await self._audio_in.send(samples[start : start + step])
            except anyio.ClosedResourceError:  # the call has ended; its client is about to be told
                return

    def commit_audio(self) -> str:
        self._hear_waiting()
        return self._floor.commit()

    def clear_audio(self) -> None:
        self._hear_waiting()
        self._floor.clear()

    def create_item(self, item: Item, after: str | None) -> str | None:
        previous = self._context.items.create(item, after)
        self._conversation_changed()
        return previous

    def delete_item(self, item_id: str) -> None:
        self._context.items.delete(item_id)
        for turn in self._runner.turns():
            if turn.response is not None and turn.response.item_id == item_id:
                self._runner.cancel(turn, TurnEnd.CLIENT_CANCELLED)
        playback = self._context.playbacks.of_item(item_id)
        if playback is not None and not playback.over.is_set():
            self._floor.interrupt(TurnEnd.CLIENT_CANCELLED)
        self._conversation_changed()

    def retrieve_item(self, item_id: str) -> None:
        self._context.items.retrieve(item_id)

    def truncate_item(self, item_id: str, content_index: int, audio_end_ms: int) -> None:
        self._context.items.truncate(item_id, content_index, audio_end_ms)
        playback = self._context.playbacks.of_item(item_id)
        if playback is not None and playback.ledger.complete:
            playback.over.set()  # who cuts an answer has stopped playing it
        self._conversation_changed()

    def create_response(self, options: ResponseOptions) -> None:
        self._hear_waiting()
        self._floor.request_answer(options)

    def cancel_response(self, response_id: str | None) -> None:
        active = [turn.response for turn in self._runner.turns() if turn.response is not None]
        known = response_id is None or any(response.id == response_id for response in active)
        if not known or not self._floor.interrupt(TurnEnd.CLIENT_CANCELLED):
            raise RequestRefused(
                "Cancellation failed: no answer is in progress.", code="response_cancel_not_active", param="response_id"
            )

    def greet(self) -> None:
        """Speak the greeting now."""
        self._floor.say(self._context.config.greeting or self._context.persona.greeting)

    def report_playout(self, report: PlayoutReport) -> None:
        playback = self._context.playbacks.report(report)
        if playback is None:
            return
        if playback.cut:
            self._context.items.cut(playback)
            self._conversation_changed()
            return
        self._tell_heard(playback)

    def set_muted(self, muted: bool) -> None:
        self._floor.ear.muted = muted

    def events(self) -> AsyncGenerator[CallEvent, None]:
        return self._context.outbox.drain()

    @property
    def _floor(self) -> TurnTaking:
        if self._taking is None:
            raise RuntimeError("the call is not running")
        return self._taking

    def _begin(self, *, greet: bool) -> None:
        self._context.outbox.put(SessionCreated(self._context.config, self._resumed))
        self._prefilling.history_changed()
        if self._resumed:
            self._context.items.announce_all()
        if greet and not self._resumed:
            self.greet()

    async def _listen(self) -> None:
        while True:
            with anyio.move_on_after(INPUT_STALL_S) as patience:
                self._floor.hear(await self._audio_out.receive())
            if patience.cancelled_caught:
                self._floor.input_stalled()

    async def _watch_idle(self) -> None:
        while True:
            await anyio.sleep(IDLE_LOOK_S)
            self._floor.prompt_if_idle()

    def _hear_waiting(self) -> None:
        """What was appended before a commit belongs to it."""
        while True:
            try:
                self._floor.hear(self._audio_out.receive_nowait())
            except (anyio.WouldBlock, anyio.EndOfStream, anyio.ClosedResourceError):
                return

    async def _work(self, turn: Turn) -> None:
        said = turn.utterance is None or await self._understanding.final(turn, turn.utterance)
        if not said and not self._floor.answer_owed:
            return
        if not turn.answer:
            await turn.committed.wait()  # the client may ask for an answer until it has ended
        if not turn.answer:
            return
        if turn.committed.is_set():
            self._floor.answer_begun()
        outcome = await self._speaking.answer(turn)
        self._speaking.finish(turn, outcome)

    def _finish_turn(self, turn: Turn, failure: Exception | None) -> None:
        if turn.end is TurnEnd.DROPPED:
            return
        if failure is not None:
            self._speaking.finish(
                turn, Outcome(ResponseStatus.FAILED, error=f"Internal error: {type(failure).__name__}.")
            )
            self._context.outbox.put(CallErrorRaised("internal_error", "This answer failed; the call goes on."))
        elif turn.end is not None:
            self._speaking.finish(turn, Outcome(ResponseStatus.CANCELLED, reason=turn.end.value))
        self._conversation_changed()
        playback = turn.response.playback if turn.response is not None else None
        if playback is None or playback.over.is_set():
            self._rest_if_idle()
        elif self._tasks is not None:
            self._tasks.start_soon(self._see_out, playback)

    async def _see_out(self, playback: Playback) -> None:
        """Wait until an answer has been heard to its end."""
        await playback.played_out()
        playback.over.set()
        if playback.cut:
            self._prefilling.history_changed()
        else:
            self._tell_heard(playback)
        self._rest_if_idle()

    def _rest_if_idle(self) -> None:
        """The bot has the floor for as long as an answer is asked for, made, or in the air."""
        asked = any(turn.committed.is_set() and turn.end is None for turn in self._runner.turns())
        if not asked and not self._context.playbacks.unfinished():
            self._floor.answer_ended()

    def _answer_audible(self) -> None:
        self._floor.answer_begun()
        self._floor.answer_audible()

    def _tell_heard(self, playback: Playback) -> None:
        ledger = playback.ledger
        self._context.outbox.put(
            PlayoutHeard(ledger.item_id, ledger.heard_text(), ledger.played_ms, ledger.approximate)
        )

    def _conversation_changed(self) -> None:
        self._prefilling.history_changed()
        self._save()

    def _save(self) -> None:
        """Hand the conversation to the writer, where it has changed.

        Only then: another server may have taken up the session of a call whose client was cut off, and what this call
        knows when it ends at last is older.
        """
        items = self._encoded_items()
        if items == self._saved:
            return
        self._saved = items
        self._context.engines.writer.submit(
            StoredSession(
                session_id=self._context.session_id,
                persona=self._context.persona.id,
                items=items,
                updated_at=self._context.engines.clock.unix_time(),
            )
        )

    def _encoded_items(self) -> tuple[str, ...]:
        return tuple(encode_item(item) for item in self._context.items.conversation)
