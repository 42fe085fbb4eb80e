"""Opens calls and counts them: the cap, resuming a stored session, the persona's defaults."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio
import structlog

from duolog.personas import Endpointing, Persona
from duolog.ports.errors import EngineError, Overloaded
from duolog.ports.store import SessionStore, StoredSession
from duolog.session.call import Call
from duolog.session.config import SemanticVad, ServerVad, SessionConfig, TurnDetection
from duolog.session.context import CallContext, new_id
from duolog.session.engines import CallOptions, Engines
from duolog.session.items import Items
from duolog.session.outbox import Outbox
from duolog.session.playing import Playbacks
from duolog.telemetry import metrics
from duolog.turns.conversation import decode_item

log = structlog.get_logger(__name__)

LOAD_TIMEOUT_S = 2.0
"""A store that has not answered by then is counted as gone; the call begins without its history."""
RETRY_AFTER_S = 10.0


@dataclass(frozen=True, slots=True)
class CallRequest:
    """How a client wants its call."""

    persona: str | None = None
    resume: str | None = None
    """Id of a session to take up again."""
    greet: bool = False
    reports_playout: bool = False
    """The client speaks the extensions and will say what it has played."""
    input_rate_hz: int = 24_000
    output_rate_hz: int = 24_000


class Switchboard:
    """All calls of a process."""

    def __init__(
        self,
        engines: Engines,
        personas: Callable[[str | None], Persona],
        store: SessionStore,
        options: CallOptions,
        max_calls: int,
    ) -> None:
        self._engines = engines
        self._personas = personas
        self._store = store
        self._options = options
        self._max_calls = max_calls
        self._calls: dict[str, Call] = {}
        self.active = 0

    @asynccontextmanager
    async def open_call(self, request: CallRequest) -> AsyncGenerator[Call, None]:
        """A running call until the block ends. Raises Overloaded at the cap, and where the server is too busy for it.

        A call that resumes a session takes over from the one that still holds it: its client may have been cut off
        long before the server notices.
        """
        if self.active >= self._max_calls and request.resume not in self._calls:
            metrics.CALLS_REFUSED.labels("full").inc()
            raise Overloaded(
                _all_taken(self._max_calls),
                retry_after_s=RETRY_AFTER_S,
            )
        self.active += 1
        metrics.CALLS_ACTIVE.set(self.active)
        try:
            stored = await self._load(request.resume)
            persona = self._persona_of(request, stored)
            if stored is None:
                self._refuse_under_load(persona)
            call = self._new_call(request, stored, persona)
            metrics.CALLS.labels(call.config.persona).inc()
            if stored is not None:
                metrics.CALLS_RESUMED.inc()
            ready = anyio.Event()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(lambda: call.run(ready=ready, greet=request.greet))
                await ready.wait()
                self._calls[call.session_id] = call
                try:
                    yield call
                finally:
                    if self._calls.get(call.session_id) is call:
                        del self._calls[call.session_id]
                    tasks.cancel_scope.cancel()
        finally:
            self.active -= 1
            metrics.CALLS_ACTIVE.set(self.active)

    async def _load(self, session_id: str | None) -> StoredSession | None:
        if session_id is None:
            return None
        if (held := self._calls.pop(session_id, None)) is not None:
            await held.hang_up()
        if (unsaved := self._engines.writer.unsaved(session_id)) is not None:
            return unsaved
        try:
            with anyio.move_on_after(LOAD_TIMEOUT_S):
                return await self._store.load(session_id)
        except EngineError as error:
            log.warning("session could not be loaded; the call begins without its history", error=str(error))
        return None

    def _persona_of(self, request: CallRequest, stored: StoredSession | None) -> Persona:
        return self._personas(stored.persona if stored is not None and request.persona is None else request.persona)

    def _refuse_under_load(self, persona: Persona) -> None:
        """Only what begins is refused: a call that was cut off goes on."""
        limits = self._engines.limits
        if limits.takes(persona.priority):
            return
        metrics.CALLS_REFUSED.labels("overload").inc()
        log.info("call refused", persona=persona.id, priority=persona.priority.value, level=limits.level.name.lower())
        raise Overloaded(
            f"The server is too busy for a new call of {persona.name}.", retry_after_s=limits.retry_after_s
        )

    def _new_call(self, request: CallRequest, stored: StoredSession | None, persona: Persona) -> Call:
        outbox, playbacks = Outbox(), Playbacks(reports=request.reports_playout)
        items = Items(outbox, playbacks)
        for encoded in stored.items if stored is not None else ():
            try:
                items.conversation.add(decode_item(encoded))
            except (ValueError, KeyError, TypeError):
                log.warning("a stored item could not be read and was left out")
        context = CallContext(
            session_id=stored.session_id if stored is not None else new_id("sess"),
            persona=persona,
            config=default_config(persona, request, self._options),
            engines=self._engines,
            options=self._options,
            outbox=outbox,
            items=items,
            playbacks=playbacks,
        )
        return Call(context, resumed=stored is not None)


def _all_taken(lines: int) -> str:
    return "The one line of this server is taken." if lines == 1 else f"All {lines} lines of this server are taken."


def default_config(persona: Persona, request: CallRequest, options: CallOptions) -> SessionConfig:
    """The session a client gets before it updates anything: its persona's."""
    return SessionConfig(
        persona=persona.id,
        instructions=persona.instructions,
        voice=persona.voice,
        language=options.language or persona.spoken_language,
        sampling=persona.sampling,
        turn_detection=_turn_detection(persona, options),
        speed=persona.speed,
        input_rate_hz=request.input_rate_hz,
        output_rate_hz=request.output_rate_hz,
        greeting=persona.greeting,
    )


def _turn_detection(persona: Persona, options: CallOptions) -> TurnDetection:
    patience = persona.turn_taking
    if patience.endpointing is Endpointing.SEMANTIC:
        return SemanticVad(interrupt_response=patience.interruptible)
    return ServerVad(
        threshold=options.vad_threshold,
        prefix_padding_ms=options.prefix_padding_ms,
        silence_duration_ms=patience.silence_ms,
        interrupt_response=patience.interruptible,
    )
