"""A client that believes nothing: it checks every event of a call as it comes against what must always hold.

It plays what it is sent in real time, reports that (or not), and remembers what was promised: ids, generations, texts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import singledispatchmethod

import anyio
import numpy as np
from tests.session.harness import FRAME_S, RATE_HZ, World

from duolog.session.call import Call
from duolog.session.control import PlayoutReport
from duolog.session.events import (
    AudioDelta,
    AudioDone,
    CallEvent,
    ContentPartAdded,
    ContentPartDone,
    InputCommitted,
    ItemAdded,
    ItemDeleted,
    ItemDone,
    ItemTruncated,
    OutputItemAdded,
    OutputItemDone,
    PlayoutFlush,
    PlayoutHeard,
    ResponseCreated,
    ResponseDone,
    ResponseStatus,
    SessionCreated,
    SpeechAnnounced,
    SpeechStarted,
    SpeechStopped,
    StateChanged,
    TextDelta,
    TextDone,
    TranscriptCompleted,
    TranscriptDelta,
    TranscriptFailed,
    TurnTimings,
)
from duolog.turns.conversation import ItemRole

OUTPUT_RATE_HZ = 24_000


@dataclass(slots=True)
class Answer:
    """What is known of one response."""

    item_id: str | None = None
    text: str = ""
    done: bool = False
    sounded: bool = False


@dataclass(slots=True)
class Sound:
    """One generation as the client plays it."""

    item_id: str
    received: int = 0
    ends_at: float = 0.0

    def played(self, now: float) -> int:
        return max(0, self.received - max(0, round((self.ends_at - now) * OUTPUT_RATE_HZ)))


@dataclass
class Witness:
    """One client of one call."""

    call: Call
    world: World
    reports: bool
    answers: dict[str, Answer] = field(default_factory=dict)
    """By response id, in order."""
    items: dict[str, str] = field(default_factory=dict)
    """Id → role of every item that was ever announced."""
    deleted: set[str] = field(default_factory=set)
    committed: list[str] = field(default_factory=list)
    transcripts: Counter[str] = field(default_factory=Counter)
    captions: dict[str, str] = field(default_factory=dict)
    sounds: dict[int, Sound] = field(default_factory=dict)
    state: str = "listening"
    ready: bool = False
    readable: anyio.Event = field(default_factory=anyio.Event)
    """Set while the client reads what it is sent."""
    transcribing: bool = True
    flushes: int = 0
    heard_events: list[PlayoutHeard] = field(default_factory=list)
    _spoken: set[str] = field(default_factory=set)
    _open_speech: str | None = None
    _texts: dict[str, str] = field(default_factory=dict)
    _floor: int = 0
    _newest: int = 0
    _noise: np.random.Generator = field(default_factory=lambda: np.random.default_rng(1))

    def __post_init__(self) -> None:
        self.readable.set()

    async def listen(self) -> None:
        async with aclosing(self.call.events()) as events:
            async for event in events:
                await self.readable.wait()
                self.engines_are_alone()
                assert self.ready or isinstance(event, SessionCreated), f"{event} before the session was announced"
                self._see(event)

    async def report(self) -> None:
        """The page's playout reports, every 100 ms."""
        while True:
            await anyio.sleep(0.1)
            for generation, sound in tuple(self.sounds.items()):
                played = sound.played(anyio.current_time())
                self.call.report_playout(PlayoutReport(generation, played, ended=self._over(sound, played)))
                if generation < self._floor or self._over(sound, played):
                    del self.sounds[generation]

    async def say(self, seconds: float) -> None:
        await self._send(seconds, 3_000)

    async def pause(self, seconds: float) -> None:
        await self._send(seconds, 0)

    async def until(self, true: Callable[[], bool], patience_s: float) -> None:
        """Keep silent until something holds, at most for a while."""
        until = anyio.current_time() + patience_s
        while not true() and anyio.current_time() < until:
            await self.pause(FRAME_S)

    def engines_are_alone(self) -> None:
        """An engine does one thing at a time; the caller of a port keeps that."""
        assert self.world.asr.running <= 1, "two batches of speech at once"
        assert self.world.tts.running <= 1, "two phrases at once"

    def at_rest(self) -> None:
        """What must hold when nobody has said anything for long."""
        unfinished = [response_id for response_id, answer in self.answers.items() if not answer.done]
        assert not unfinished, f"responses never done: {unfinished}"
        assert self.state == "listening", f"nobody speaks, and the call is {self.state}"
        running = (self.world.llm.running, self.world.tts.running, self.world.asr.running)
        assert running == (0, 0, 0), f"engines still run (llm, tts, asr): {running}"
        for item_id in self.committed:
            missing = self.transcripts[item_id] != 1 and self.transcribing and item_id not in self.deleted
            assert not missing, f"{self.transcripts[item_id]} transcripts of {item_id}"

    async def _send(self, seconds: float, amplitude: float) -> None:
        for _ in range(max(1, round(seconds / FRAME_S))):
            noise = self._noise.standard_normal(int(RATE_HZ * FRAME_S)) * amplitude
            await self.call.append_audio(noise.astype(np.int16))
            self.engines_are_alone()
            await anyio.sleep(FRAME_S)

    def _over(self, sound: Sound, played: int) -> bool:
        made = all(answer.done for answer in self.answers.values() if answer.item_id == sound.item_id)
        return made and played >= sound.received

    def _answer_in_progress(self, response_id: str) -> Answer:
        assert response_id in self.answers, f"{response_id} was never created"
        assert not self.answers[response_id].done, f"something of {response_id} after it was done"
        return self.answers[response_id]

    @singledispatchmethod
    def _see(self, event: CallEvent) -> None:
        """Nothing to check."""

    @_see.register
    def _(self, event: SessionCreated) -> None:
        assert not self.ready
        self.ready = True

    @_see.register
    def _(self, event: StateChanged) -> None:
        assert event.state != self.state, f"{event.state} announced twice"
        self.state = event.state

    @_see.register
    def _(self, event: SpeechStarted) -> None:
        assert event.item_id not in self._spoken
        assert self._open_speech is None, "speech starts twice"
        self._spoken.add(event.item_id)
        self._open_speech = event.item_id

    @_see.register
    def _(self, event: SpeechStopped) -> None:
        assert event.item_id == self._open_speech, "speech stops that has not started"
        self._open_speech = None

    @_see.register
    def _(self, event: TranscriptDelta) -> None:
        assert event.item_id in self._spoken, "a caption of nothing"
        assert event.item_id not in self.committed, "a caption after the turn"
        assert event.delta
        self.captions[event.item_id] = self.captions.get(event.item_id, "") + event.delta

    @_see.register
    def _(self, event: InputCommitted) -> None:
        assert event.item_id not in self.committed
        self._known(event.previous_item_id)
        self.committed.append(event.item_id)

    @_see.register(TranscriptCompleted)
    @_see.register(TranscriptFailed)
    def _(self, event: TranscriptCompleted | TranscriptFailed) -> None:
        assert event.item_id in self.committed, "a transcript of nothing"
        assert event.item_id in self.items
        self.transcripts[event.item_id] += 1
        assert self.transcripts[event.item_id] == 1, "two transcripts of one turn"

    @_see.register
    def _(self, event: ItemAdded) -> None:
        assert event.item.id not in self.items or event.item.id in self.deleted, "an item twice"
        self._known(event.previous_item_id)
        self.items[event.item.id] = event.item.role
        self.deleted.discard(event.item.id)

    @_see.register
    def _(self, event: ItemDone) -> None:
        assert event.item.id in self.items

    @_see.register
    def _(self, event: ItemDeleted) -> None:
        assert event.item_id in self.items
        assert event.item_id not in self.deleted, "an item deleted twice"
        self.deleted.add(event.item_id)

    @_see.register
    def _(self, event: ItemTruncated) -> None:
        assert self.items[event.item_id] == ItemRole.ASSISTANT

    @_see.register
    def _(self, event: ResponseCreated) -> None:
        assert event.response.id not in self.answers, "a response created twice"
        assert event.response.status is ResponseStatus.IN_PROGRESS
        self.answers[event.response.id] = Answer()

    @_see.register
    def _(self, event: OutputItemAdded) -> None:
        answer = self._answer_in_progress(event.response_id)
        assert answer.item_id is None, "two items in one answer"
        self._known(event.previous_item_id)
        answer.item_id = event.item.id
        if not event.out_of_band:
            self.items[event.item.id] = event.item.role

    @_see.register(ContentPartAdded)
    @_see.register(ContentPartDone)
    @_see.register(AudioDone)
    def _(self, event: ContentPartAdded | ContentPartDone | AudioDone) -> None:
        assert self._answer_in_progress(event.response_id).item_id == event.item_id

    @_see.register
    def _(self, event: TextDelta) -> None:
        answer = self._answer_in_progress(event.response_id)
        assert answer.item_id == event.item_id
        answer.text += event.delta
        self._texts[event.item_id] = answer.text

    @_see.register
    def _(self, event: TextDone) -> None:
        answer = self._answer_in_progress(event.response_id)
        assert answer.text == event.text, "the whole is not the sum of its parts"

    @_see.register
    def _(self, event: OutputItemDone) -> None:
        assert self._answer_in_progress(event.response_id).item_id == event.item.id

    @_see.register
    def _(self, event: SpeechAnnounced) -> None:
        answer = self._answer_in_progress(event.response_id)
        assert not answer.sounded, "two generations of one answer"
        assert event.generation > self._newest, "the generation did not grow"
        answer.sounded = True
        self._newest = event.generation
        self.sounds[event.generation] = Sound(event.item_id)

    @_see.register
    def _(self, event: AudioDelta) -> None:
        assert self._answer_in_progress(event.response_id).sounded, "sound that was not announced"
        assert event.generation >= self._floor, "stale audio left the call"
        assert event.generation == self._newest
        sound = self.sounds[event.generation]
        assert event.start_sample == sound.received, "a gap in the sound"
        sound.received += len(event.samples)
        sound.ends_at = max(sound.ends_at, anyio.current_time()) + len(event.samples) / OUTPUT_RATE_HZ

    @_see.register
    def _(self, event: PlayoutFlush) -> None:
        assert event.generation > self._floor, "a flush that flushes nothing"
        self._floor = event.generation
        self.flushes += 1
        for generation, sound in tuple(self.sounds.items()):
            if generation < event.generation:
                played = sound.played(anyio.current_time())
                sound.received, sound.ends_at = played, 0.0
                if self.reports:
                    self.call.report_playout(PlayoutReport(generation, played, ended=True))
                del self.sounds[generation]

    @_see.register
    def _(self, event: PlayoutHeard) -> None:
        text = self._texts.get(event.item_id, "")
        assert text.startswith(event.heard_text), f"heard {event.heard_text!r}, but the answer is {text!r}"
        self.heard_events.append(event)

    @_see.register
    def _(self, event: ResponseDone) -> None:
        answer = self._answer_in_progress(event.response.id)
        answer.done = True
        assert event.response.status is not ResponseStatus.IN_PROGRESS
        assert [item.id for item in event.response.items] == ([answer.item_id] if answer.item_id else [])

    @_see.register
    def _(self, event: TurnTimings) -> None:
        assert self.answers[event.response_id].done, "timings before the end"

    def _known(self, item_id: str | None) -> None:
        assert item_id is None or item_id in self.items, f"{item_id} is used before it was announced"
