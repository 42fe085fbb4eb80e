"""One recogniser for all calls: what is transcribed next, what is transcribed together, and what is not at all.

Finals go before partials, in the order they came; with the one whose turn it is goes what may share its batch
(`recognizer_batch`). A call has at most one partial: a newer one replaces it, its final ends it, and a final of any
call takes the engine from a batch of partials.

    WAITING ──▶ RUNNING ──▶ ENDED (transcript, error, or neither: superseded)
       └────────────────────▲
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import anyio

from duolog.ports.asr import SpeechRecognizer, Transcript, TranscriptionRequest
from duolog.ports.errors import EngineError, EngineRejected, EngineTimeout, EngineUnavailable
from duolog.serving.partial_cadence import PartialCadence
from duolog.serving.recognizer_batch import BatchLimits, next_batch
from duolog.telemetry import metrics

ONE_AT_A_TIME = BatchLimits()
STALL_S = 10.0
"""Beyond the length of its audio, a batch that takes longer has failed; on a slow core it takes a fifth of it."""


class JobState(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    ENDED = "ended"


@dataclass(eq=False, slots=True)
class _Job:
    session_id: str
    request: TranscriptionRequest
    arrived_at: float = field(default_factory=anyio.current_time)
    state: JobState = JobState.WAITING
    transcript: Transcript | None = None
    error: EngineError | None = None
    ended: anyio.Event = field(default_factory=anyio.Event)

    def end(self, transcript: Transcript | None = None, error: EngineError | None = None) -> None:
        """The only way to ENDED; a second end changes nothing."""
        if self.state is not JobState.ENDED:
            self.state, self.transcript, self.error = JobState.ENDED, transcript, error
            self.ended.set()


@dataclass(slots=True)
class _Batch:
    jobs: list[_Job]
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)

    @property
    def partial(self) -> bool:
        """True where no final is in it."""
        return all(job.request.partial for job in self.jobs)


class Recognizer:
    """The scheduler over one engine. `run` must be running; everything happens in one event loop."""

    def __init__(
        self,
        engine: SpeechRecognizer,
        *,
        limits: BatchLimits = ONE_AT_A_TIME,
        partial_core_share: float = 0.4,
        stall_s: float = STALL_S,
    ) -> None:
        self._engine = engine
        self._limits = limits
        self._stall_s = stall_s
        self._cadence = PartialCadence(partial_core_share)
        self._queue: list[_Job] = []
        self._running: _Batch | None = None
        self._arrival = anyio.Event()
        self._closed = False

    @property
    def waiting(self) -> int:
        """Requests that wait for the engine."""
        return sum(job.state is JobState.WAITING for job in self._queue)

    def stretch_partials(self, factor: float) -> None:
        """From now on the captions of all calls are `factor` times as far apart as usual."""
        self._cadence.stretch = factor

    def oldest_final_s(self) -> float:
        """How long the final that has waited longest waits for the engine; 0 where none does."""
        waits = [job.arrived_at for job in self._queue if self._is_waiting_final(job)]
        return anyio.current_time() - min(waits) if waits else 0.0

    def partial_interval_s(self) -> float:
        """New audio a call must have before its next partial, as things stand."""
        return self._cadence.interval_s(anyio.current_time())

    def may_start_partial(self, session_id: str, new_audio_s: float) -> bool:
        """Ask while the user speaks; True where a partial of `new_audio_s` more audio is worth its time now."""
        allowed = self._cadence.may_start(session_id, new_audio_s, anyio.current_time())
        return allowed and not any(self._is_waiting_final(job) for job in self._queue)

    async def run(self) -> None:
        """Serve until cancelled. Everything unfinished then ends with EngineUnavailable."""
        try:
            while True:
                self._running = _Batch(await self._next())
                await self._serve(self._running)
                self._running = None
        finally:
            self._shut()

    async def transcribe(self, session_id: str, request: TranscriptionRequest) -> Transcript | None:
        """The transcript; None only for a partial that was superseded: by a newer one, or by a final.

        Cancellation takes the request out of the queue, or stops the engine where nobody else of its batch waits.
        Raises EngineError: the engine's own, EngineTimeout where it stalls, EngineUnavailable where `run` has ended.
        """
        if self._closed:
            raise _shut_down()
        self._supersede(session_id, request)
        job = _Job(session_id, request)
        self._queue.append(job)
        self._arrival.set()
        try:
            await job.ended.wait()
        finally:
            job.end()
            self._stop_if_unwanted()
        if job.error is not None:
            raise job.error
        return job.transcript

    def _supersede(self, session_id: str, request: TranscriptionRequest) -> None:
        """End the call's older partial, and for a final the partials that hold the engine alone."""
        running = self._running
        for job in (*self._queue, *(running.jobs if running is not None else ())):
            if job.request.partial and job.session_id == session_id:
                job.end()
        if running is not None and running.partial and not request.partial:
            for job in running.jobs:
                job.end()
        self._stop_if_unwanted()

    def _stop_if_unwanted(self) -> None:
        if self._running is not None and all(job.state is JobState.ENDED for job in self._running.jobs):
            self._running.scope.cancel()

    async def _next(self) -> list[_Job]:
        while True:
            self._queue = [job for job in self._queue if job.state is JobState.WAITING]
            places = next_batch([job.request for job in self._queue], self._limits)
            if batch := [self._queue[place] for place in places]:
                for job in batch:
                    job.state = JobState.RUNNING
                return batch
            self._arrival = anyio.Event()
            await self._arrival.wait()

    async def _serve(self, batch: _Batch) -> None:
        began_at = anyio.current_time()
        try:
            with batch.scope:
                await self._transcribe(batch.jobs)
        finally:
            now = anyio.current_time()
            if batch.partial:
                self._cadence.record(now - began_at, now)
            metrics.ENGINE_SECONDS.labels("asr", "partial" if batch.partial else "final").observe(now - began_at)
            metrics.RECOGNIZER_BATCH.observe(len(batch.jobs))

    async def _transcribe(self, jobs: list[_Job]) -> None:
        try:
            transcripts = await self._within_limit([job.request for job in jobs])
        except EngineRejected as error:
            if len(jobs) == 1:
                metrics.ENGINE_ERRORS.labels("asr", type(error).__name__).inc()
                jobs[0].end(error=error)
            for job in jobs if len(jobs) > 1 else ():  # one bad request must not fail the others
                await self._transcribe([job])
        except EngineError as error:
            metrics.ENGINE_ERRORS.labels("asr", type(error).__name__).inc()
            for job in jobs:
                job.end(error=error)
        else:
            for job, transcript in zip(jobs, transcripts, strict=True):
                job.end(transcript)

    async def _within_limit(self, requests: Sequence[TranscriptionRequest]) -> list[Transcript]:
        limit_s = self._stall_s + sum(request.audio_s for request in requests)
        with anyio.move_on_after(limit_s):
            return await self._engine.transcribe(requests)
        raise EngineTimeout(
            f"The speech recogniser gave nothing for {limit_s:.0f} s; look at its log and at the load of its cores.",
            engine="asr",
        )

    def _is_waiting_final(self, job: _Job) -> bool:
        return job.state is JobState.WAITING and not job.request.partial

    def _shut(self) -> None:
        self._closed = True
        for job in (*self._queue, *(self._running.jobs if self._running is not None else ())):
            job.end(error=_shut_down())
        self._queue = []


def _shut_down() -> EngineUnavailable:
    return EngineUnavailable("Speech recognition has been shut down; restart the server.", engine="asr")
