"""One chat model on several servers: a request goes to the replica it names, or to another while that one is away.

    request.replica ──▶ alive ──▶ streams
                    └─▶ away, or fails before its first value ──▶ the next one alive

A replica is alive once it has warmed up and until a probe of it fails. An answer that has begun is never begun again
elsewhere: the caller knows what was heard of it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing

import anyio
import structlog

from duolog.ports.errors import EngineError, EngineTimeout, EngineUnavailable
from duolog.ports.llm import ChatMessage, GenerationEnd, GenerationRequest, LanguageModel, PromptEnd, TextDelta

log = structlog.get_logger(__name__)

PROBE_EVERY_S = 2.0
PROBE_LIMIT_S = 5.0
"""A replica that answers no probe for so long is away. A step of 256 tokens on a loaded core takes a second."""
WARM_UP_LIMIT_S = 30.0

LivenessListener = Callable[[str, bool], None]
"""Called with a replica's id and whether it is alive now."""


class ReplicatedLanguageModel:
    """Re-entrant. `watch` must be running; it finds out who is alive."""

    def __init__(self, replicas: Mapping[str, LanguageModel]) -> None:
        """`replicas`: id → model, at least one; the ids are those of `GenerationRequest.replica`."""
        self._replicas = dict(replicas)
        self._alive: set[str] = set()
        self._errors: dict[str, EngineError] = {}
        """Of the last probe of those that are away."""
        self._probing = {name: anyio.Lock() for name in self._replicas}
        self._look_now = {name: anyio.Event() for name in self._replicas}
        self._listeners: list[LivenessListener] = []

    def listen(self, listener: LivenessListener) -> None:
        """Tell it who is alive, and of every change from now on."""
        self._listeners.append(listener)
        for name in self._replicas:
            listener(name, name in self._alive)

    @property
    def alive(self) -> frozenset[str]:
        return frozenset(self._alive)

    @property
    def context_tokens(self) -> int:
        """The shortest of the replicas that are alive."""
        return min(self._replicas[name].context_tokens for name in self._alive or self._replicas)

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[TextDelta | GenerationEnd, None]:
        failure: EngineError | None = None
        for name in self._order(request.replica):
            begun = False
            try:
                async with aclosing(self._replicas[name].generate(request)) as stream:
                    async for value in stream:
                        begun = True
                        yield value
                return
            except EngineUnavailable as error:
                self._look_now[name].set()
                failure = error
                if begun:
                    raise
                log.info("a request goes to another replica", replica=name, error=str(error))
            except EngineTimeout:
                self._look_now[name].set()
                raise
        if failure is not None:
            raise failure

    def prompt_ids(self, messages: tuple[ChatMessage, ...], end: PromptEnd) -> tuple[int, ...]:
        name = next((name for name in self._replicas if name in self._alive), next(iter(self._replicas)))
        return self._replicas[name].prompt_ids(messages, end)

    async def warm_up(self) -> None:
        """Ready with the first replica that is. Raises what the last probe of one of them raised where none is."""
        if self._alive:
            return
        async with anyio.create_task_group() as tasks:
            for name in self._replicas:
                tasks.start_soon(self._probe, name)
        if not self._alive:
            raise next(iter(self._errors.values()))

    async def aclose(self) -> None:
        for replica in self._replicas.values():
            await replica.aclose()

    async def watch(self) -> None:
        """Probe every replica again and again, and at once when a request failed there."""
        async with anyio.create_task_group() as tasks:
            for name in self._replicas:
                tasks.start_soon(self._watch, name)

    async def _watch(self, name: str) -> None:
        while True:
            self._look_now[name] = anyio.Event()
            await self._probe(name)
            with anyio.move_on_after(PROBE_EVERY_S):
                await self._look_now[name].wait()

    async def _probe(self, name: str) -> None:
        async with self._probing[name]:
            limit_s = PROBE_LIMIT_S if name in self._alive else WARM_UP_LIMIT_S
            error: EngineError | None = EngineTimeout(
                f"The language model at {name} was silent for {limit_s:g} s.", engine="llm"
            )
            with anyio.move_on_after(limit_s):
                error = await self._failure_of_warm_up(name)
            if error is None:
                self._errors.pop(name, None)
            else:
                self._errors[name] = error
            self._set_alive(name, alive=error is None)

    async def _failure_of_warm_up(self, name: str) -> EngineError | None:
        try:
            await self._replicas[name].warm_up()
        except EngineError as error:
            return error
        return None

    def _set_alive(self, name: str, *, alive: bool) -> None:
        if alive == (name in self._alive):
            return
        (self._alive.add if alive else self._alive.discard)(name)
        log.info("a replica of the language model is back" if alive else "a replica is away", replica=name)
        for listener in self._listeners:
            listener(name, alive)

    def _order(self, wanted: str) -> list[str]:
        """The replica asked for first, then the others that are alive; with none alive, the one asked for alone."""
        alive = [name for name in self._replicas if name in self._alive]
        if not alive:
            return [wanted if wanted in self._replicas else next(iter(self._replicas))]
        return sorted(alive, key=lambda name: name != wanted)
