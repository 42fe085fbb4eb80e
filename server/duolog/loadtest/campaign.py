"""Several callers at once, each holding one conversation after another. Knows no wire: a Caller places the calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import anyio
import numpy as np
from numpy.typing import NDArray

from duolog.loadtest.failures import CallFailed
from duolog.loadtest.measured_turn import MIN_FIRST_PHRASE_WORDS, MeasuredTurn, measured
from duolog.loadtest.wire_client import CallOptions, place_call

LEAD_S = 0.6
"""Silence before the first words of a call: the line is up, the caller draws breath."""
PAUSE_S = 0.6
"""Silence between an answer's end and the caller's next words."""
STAGGER_S = 0.9
"""Callers begin one after the other, as people do."""


@dataclass(frozen=True, slots=True)
class Utterance:
    name: str
    samples: NDArray[np.int16]
    """16 kHz mono."""


class Caller(Protocol):
    """Somebody who can hold a conversation with one system."""

    async def converse(self, utterances: Sequence[Utterance]) -> list[MeasuredTurn]:
        """One call: say each utterance, hear each answer out. A failure ends the call and is a measured turn."""
        ...


@dataclass(frozen=True, slots=True)
class DuologCaller:
    """Calls a Duolog server over the real socket."""

    options: CallOptions
    min_words: int = MIN_FIRST_PHRASE_WORDS
    """In an answer's first phrase, for its turn to count."""
    lead_s: float = LEAD_S

    async def converse(self, utterances: Sequence[Utterance]) -> list[MeasuredTurn]:
        turns: list[MeasuredTurn] = []
        try:
            async with place_call(self.options) as call:
                await call.pause(self.lead_s)
                for utterance in utterances:
                    turn = await call.say(utterance.samples, utterance.name)
                    turns.append(measured(turn, call.timeline(turn), self.min_words))
                    await call.pause(PAUSE_S)
        except CallFailed as failure:
            turns.append(MeasuredTurn(utterances[min(len(turns), len(utterances) - 1)].name, failure=str(failure)))
        return turns


async def run_callers(
    caller: Caller, utterances: Sequence[Utterance], *, calls: int, turns_per_call: int
) -> list[MeasuredTurn]:
    """`calls` callers at once. Each says every utterance once, in another order, in calls of `turns_per_call` turns."""
    turns: list[MeasuredTurn] = []

    async def one(index: int) -> None:
        await anyio.sleep(index * STAGGER_S)
        for conversation in conversations(utterances, shift=index, turns_per_call=turns_per_call):
            turns.extend(await caller.converse(conversation))

    async with anyio.create_task_group() as tasks:
        for index in range(calls):
            tasks.start_soon(one, index)
    return turns


def conversations(utterances: Sequence[Utterance], *, shift: int, turns_per_call: int) -> list[Sequence[Utterance]]:
    """The utterances rotated by `shift` and cut into calls."""
    turned = [*utterances[shift % len(utterances) :], *utterances[: shift % len(utterances)]]
    return [turned[start : start + turns_per_call] for start in range(0, len(turned), turns_per_call)]


Progress = Callable[[str], None]
"""Told one line about each finished part of a campaign."""
