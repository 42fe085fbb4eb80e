"""One speech engine for all calls: what is spoken next, and what happens when somebody stops listening.

The order is `speech_order`'s. When a client runs dry is asked anew for each choice: it moves while a phrase waits.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from enum import StrEnum

import anyio
from anyio.streams.memory import MemoryObjectSendStream

from duolog.ports.errors import EngineError, EngineTimeout, EngineUnavailable
from duolog.ports.tts import SpeechChunk, SpeechRequest, SpeechSynthesizer, Voice
from duolog.serving.speech_cache import SpeechCache
from duolog.serving.speech_order import SpeechPace, Waiting, next_up
from duolog.telemetry import metrics

STALL_S = 10.0
"""An engine that gives nothing for so long has failed; a phrase takes a tenth of it on a slow machine."""
MAX_UNREAD_CHUNKS = 256
"""A minute of speech in the smallest pieces: a call that reads slower must not hold up the others."""


class JobState(StrEnum):
    """WAITING → RUNNING → ENDED, or WAITING → ENDED where the caller leaves first. ENDED is final."""

    WAITING = "waiting"
    RUNNING = "running"
    ENDED = "ended"


@dataclass(eq=False, slots=True)
class _Job:
    number: int
    session_id: str
    request: SpeechRequest
    runs_dry_at: Callable[[], float] | None
    chunks: MemoryObjectSendStream[SpeechChunk]
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    arrived_at: float = field(default_factory=anyio.current_time)
    overtaken: int = 0
    state: JobState = JobState.WAITING
    error: EngineError | None = None

    @property
    def is_continuation(self) -> bool:
        return self.runs_dry_at is not None

    def end(self, error: EngineError | None = None) -> None:
        """The only way to ENDED; a second end changes nothing. The reader then gets the rest, and the error."""
        if self.state is not JobState.ENDED:
            self.state = JobState.ENDED
            self.error = error
            self.chunks.close()
            self.scope.cancel()


class Synthesizer:
    """The scheduler over one engine. `run` must be running; everything happens in one event loop."""

    def __init__(
        self, engine: SpeechSynthesizer, *, cache: SpeechCache | None = None, stall_s: float = STALL_S
    ) -> None:
        self._engine = engine
        self._cache = cache
        self._stall_s = stall_s
        self._queue: list[_Job] = []
        self._pace = SpeechPace()
        self._running: _Job | None = None
        self._numbers = itertools.count()
        self._arrival = anyio.Event()
        self._closed = False

    @property
    def waiting(self) -> int:
        """Phrases that wait for the engine."""
        return sum(job.state is JobState.WAITING for job in self._queue)

    def oldest_first_phrase_s(self) -> float:
        """How long the answer that has waited longest for its first phrase waits; 0 where none does."""
        waiting = [job.arrived_at for job in self._queue if job.state is JobState.WAITING and not job.is_continuation]
        return anyio.current_time() - min(waiting) if waiting else 0.0

    def voices(self) -> tuple[Voice, ...]:
        return self._engine.voices()

    async def run(self) -> None:
        """Serve until cancelled. Everything unfinished then ends with EngineUnavailable."""
        try:
            while True:
                self._running = await self._next()
                await self._serve(self._running)
                self._running = None
        finally:
            self._shut()

    async def speak(
        self, session_id: str, request: SpeechRequest, *, runs_dry_at: Callable[[], float] | None = None
    ) -> AsyncGenerator[SpeechChunk, None]:
        """The phrase's sound.

        `runs_dry_at`: of a continuation, the loop time (`anyio.current_time`) at which, as far as is known now, its
        client will have played all that was made before; it is asked again while the phrase waits.
        None: a first phrase.

        A phrase that is remembered comes at once, and the engine is not asked. Closing or cancelling takes the phrase
        out of the queue, or stops the engine's work for it at once.
        Raises EngineError: the engine's own, EngineTimeout where it stalls, EngineUnavailable where `run` has ended.
        """
        key = self._cache.key(request, self.voices()) if self._cache is not None else None
        remembered = await self._cache.find(key) if self._cache is not None and key is not None else None
        for chunk in remembered or ():
            yield chunk
        if remembered is not None:
            return
        spoken = []
        async with aclosing(self._synthesize(session_id, request, runs_dry_at)) as chunks:
            async for chunk in chunks:
                if key is not None:
                    spoken.append(chunk)
                yield chunk
        if self._cache is not None and key is not None:
            self._cache.keep(key, spoken)

    async def _synthesize(
        self, session_id: str, request: SpeechRequest, runs_dry_at: Callable[[], float] | None
    ) -> AsyncGenerator[SpeechChunk, None]:
        if self._closed:
            raise _shut_down()
        send, receive = anyio.create_memory_object_stream[SpeechChunk](MAX_UNREAD_CHUNKS)
        job = _Job(next(self._numbers), session_id, request, runs_dry_at, send)
        self._queue.append(job)
        self._arrival.set()
        try:
            async for chunk in receive:
                yield chunk
            if job.error is not None:
                raise job.error
        finally:
            job.end()
            receive.close()

    async def _next(self) -> _Job:
        while True:
            waiting = {job.number: job for job in self._queue if job.state is JobState.WAITING}
            if waiting:
                chosen = next_up([self._seen_now(job) for job in waiting.values()])
                job = waiting.pop(chosen.number)
                self._queue = list(waiting.values())
                self._note_overtaken(chosen)
                job.state = JobState.RUNNING
                return job
            self._queue = []
            self._arrival = anyio.Event()
            await self._arrival.wait()

    def _seen_now(self, job: _Job) -> Waiting:
        slack_s = None if job.runs_dry_at is None else job.runs_dry_at() - anyio.current_time()
        return Waiting(job.number, self._pace.work_s(len(job.request.text)), slack_s, job.overtaken)

    def _note_overtaken(self, chosen: Waiting) -> None:
        for job in self._queue:
            if not job.is_continuation and chosen.slack_s is not None:
                job.overtaken += 1

    async def _serve(self, job: _Job) -> None:
        began_at = anyio.current_time()
        try:
            with job.scope:
                await self._speak_out(job)
        except EngineError as error:
            metrics.ENGINE_ERRORS.labels("tts", type(error).__name__).inc()
            job.end(error)
        else:
            if job.state is JobState.RUNNING:
                self._pace.learn(len(job.request.text), anyio.current_time() - began_at)
            job.end()
        kind = "continuation" if job.is_continuation else "first_phrase"
        metrics.ENGINE_SECONDS.labels("tts", kind).observe(anyio.current_time() - began_at)

    async def _speak_out(self, job: _Job) -> None:
        async with aclosing(self._engine.synthesize(job.request)) as chunks:
            while (chunk := await self._next_chunk(chunks)) is not None:
                if job.state is JobState.ENDED:
                    return
                try:
                    job.chunks.send_nowait(chunk)
                except anyio.WouldBlock:
                    raise EngineTimeout(
                        f"The call {job.session_id} left {MAX_UNREAD_CHUNKS} pieces of speech unread; it was dropped.",
                        engine="tts",
                    ) from None

    async def _next_chunk(self, chunks: AsyncGenerator[SpeechChunk, None]) -> SpeechChunk | None:
        with anyio.move_on_after(self._stall_s):
            return await anext(chunks, None)
        raise EngineTimeout(
            f"The speech engine gave nothing for {self._stall_s:g} s; look at its log and at the load of its cores.",
            engine="tts",
        )

    def _shut(self) -> None:
        self._closed = True
        unfinished = [self._running, *self._queue] if self._running else self._queue
        for job in unfinished:
            job.end(_shut_down())
        self._queue = []


def _shut_down() -> EngineUnavailable:
    return EngineUnavailable("Speech synthesis has been shut down; restart the server.", engine="tts")
