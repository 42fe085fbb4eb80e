"""vLLM's news of its prefix cache, over ZeroMQ. It carries callers' token ids in clear: never on a public interface.

    PUB:    [topic, number 8 bytes big-endian, msgpack [time, [event…], rank]]
    replay: DEALER sends ["", first number], gets ["", topic, number, msgpack]…, the last with number -1

A gap in the numbers is filled from the replay socket, or told as EventsLost. A number that goes back is a restart.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Any

import anyio
import msgspec
import structlog
import zmq
import zmq.asyncio

from duolog.ports.replicas import AllBlocksCleared, BlocksRemoved, BlocksStored, EventsLost, KvEvent

log = structlog.get_logger(__name__)

_LOW_64_BITS = (1 << 64) - 1
_LAST_NUMBER = (1 << 64) - 1
_REPLAY_TIMEOUT_S = 2.0
_QUEUED_MESSAGES = 100_000


@dataclass(frozen=True, slots=True)
class KvEventsOptions:
    endpoint: str
    """`ipc://…` or `tcp://host:port`, as in vLLM's `--kv-events-config`."""
    replay_endpoint: str | None = None


class _Event(msgspec.Struct, tag=True):
    pass


class _Stored(_Event, tag="BlockStored"):
    block_hashes: list[int | bytes]
    medium: str | None = None
    group_idx: int | None = None


class _Removed(_Event, tag="BlockRemoved"):
    block_hashes: list[int | bytes]
    medium: str | None = None
    group_idx: int | None = None


class _Cleared(_Event, tag="AllBlocksCleared"):
    pass


class _Batch(msgspec.Struct, array_like=True):
    ts: float
    events: list[_Stored | _Removed | _Cleared]


_DECODER = msgspec.msgpack.Decoder(_Batch)


def parse_batch(payload: bytes) -> tuple[float, list[KvEvent]]:
    """When it was sent, and its news. Raises msgspec.MsgspecError where it is not one."""
    batch = _DECODER.decode(payload)
    found: list[KvEvent] = []
    for event in batch.events:
        if isinstance(event, _Cleared):
            found.append(AllBlocksCleared())
        elif event.medium in (None, "GPU") and not event.group_idx:  # the device's own cache; on a CPU, too
            kind = BlocksStored if isinstance(event, _Stored) else BlocksRemoved
            found.append(kind(tuple(_name(one) for one in event.block_hashes)))
    return batch.ts, found


def _name(block: int | bytes) -> int:
    return block & _LOW_64_BITS if isinstance(block, int) else int.from_bytes(block, "big") & _LOW_64_BITS


class ZmqKvEvents:
    """One subscriber of one vLLM. asyncio only."""

    def __init__(self, options: KvEventsOptions) -> None:
        self._options = options
        self._expected = 0
        """Number of the next batch."""
        self._newest_at = 0.0
        """When the newest batch was sent, by the clock of the sender."""

    async def read(self) -> AsyncGenerator[KvEvent, None]:
        context = zmq.asyncio.Context()
        try:
            with context.socket(zmq.SUB) as news:
                news.set_hwm(_QUEUED_MESSAGES)
                news.setsockopt(zmq.LINGER, 0)
                news.subscribe(b"")
                news.connect(self._options.endpoint)
                for number, payload in await self._replay(context, 0):
                    for event in self._take(number, payload):
                        yield event
                while True:
                    frames = await news.recv_multipart()
                    for event in await self._follow(context, int.from_bytes(frames[-2], "big"), frames[-1]):
                        yield event
        finally:
            context.destroy(linger=0)

    async def _follow(self, context: zmq.asyncio.Context, number: int, payload: bytes) -> list[KvEvent]:
        """What a batch says, after what the missed ones said."""
        begins_anew = number < self._expected
        if number == self._expected or (begins_anew and self._is_repeated(payload)):
            return [] if begins_anew else self._take(number, payload)
        start = 0 if begins_anew else self._expected
        missed = await self._replay(context, start)
        complete = bool(missed) and missed[0][0] == start and missed[-1][0] >= number
        log.info("news of a cache was missed", replayed=complete, first=start, last=number)
        batches = missed if complete else [(number, payload)]
        told = [event for one in batches for event in self._take(*one)]
        return [EventsLost(), *told] if begins_anew or not complete else told

    def _take(self, number: int, payload: bytes) -> list[KvEvent]:
        self._expected = number + 1
        try:
            self._newest_at, events = parse_batch(payload)
        except msgspec.MsgspecError as error:
            log.warning("news of a cache cannot be read", error=str(error))
            return [EventsLost()]
        return events

    def _is_repeated(self, payload: bytes) -> bool:
        """It came while it was replayed, too; a replica that begins anew sends what is newer than all before."""
        try:
            return parse_batch(payload)[0] <= self._newest_at
        except msgspec.MsgspecError:
            return False

    async def _replay(self, context: zmq.asyncio.Context, start: int) -> list[tuple[int, bytes]]:
        """Batches from `start` on, as far as they are kept; empty where nobody answers."""
        if self._options.replay_endpoint is None:
            return []
        found: list[tuple[int, bytes]] = []
        with context.socket(zmq.DEALER) as replay, anyio.move_on_after(_REPLAY_TIMEOUT_S):
            replay.setsockopt(zmq.LINGER, 0)
            replay.connect(self._options.replay_endpoint)
            await replay.send_multipart([b"", start.to_bytes(8, "big")])
            while True:
                frames: Sequence[Any] = await replay.recv_multipart()
                number = int.from_bytes(frames[-2], "big")
                if number == _LAST_NUMBER:
                    break
                found.append((number, frames[-1]))
        return found
