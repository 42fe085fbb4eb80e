"""Many calls' requests on a fixed schedule, whatever the server does: finals, partials and long prefills of history.

The same seed gives the same schedule, and the same vocabulary the same prompts: with a shuffled one they are others of
the same lengths. `play` sends it through a batcher and says when each final had its first token.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass

import anyio

from duolog.ports.errors import EngineError, Overloaded
from duolog.ports.llm import FinishReason, GenerationEnd, GenerationRequest, Sampling, TextDelta, TokenUsage
from duolog.serving.batcher import Admitted, Batcher, BatcherRequest
from duolog.serving.policies import RequestClass

FIRST_TOKEN_BUDGET_S = 0.5
ANY_WORDS = range(30_000)
NOTHING_USED = TokenUsage()


@dataclass(frozen=True, slots=True)
class Arrival:
    at_s: float
    session_id: str
    klass: RequestClass
    prompt_ids: tuple[int, ...]
    max_tokens: int = 1

    def request(self, number: int, now: float) -> BatcherRequest:
        final = self.klass is RequestClass.FINAL
        generation = GenerationRequest(
            f"load-{number}",
            (),
            Sampling(temperature=0.0, repetition_penalty=1.0, max_tokens=self.max_tokens),
            session_id=self.session_id,
            prompt_ids=self.prompt_ids,
            prefill=not final,
        )
        return BatcherRequest(generation, self.klass, now + (FIRST_TOKEN_BUDGET_S if final else 1.0))


@dataclass(frozen=True, slots=True)
class LoadShape:
    calls: int = 10
    turns: int = 4
    history_tokens: tuple[int, int] = (500, 1_500)
    """Of a call that joins: computed as one prefill, at once."""
    utterance_tokens: tuple[int, int] = (20, 70)
    answer_tokens: tuple[int, int] = (20, 50)
    join_s: float = 20.0
    """Within which the calls begin."""
    prefills: int = 0
    """Of long histories, by calls that say nothing yet."""
    prefill_tokens: tuple[int, int] = (1_000, 1_500)
    prefill_s: float = 40.0
    """Within which they come."""
    speaking_s: tuple[float, float] = (2.0, 4.0)
    listening_s: tuple[float, float] = (3.0, 6.0)
    partial_every_s: float = 0.7


@dataclass(frozen=True, slots=True)
class AnswerShape:
    """Questions of many calls, each with its history, none of which is cached."""

    count: int = 24
    prompt_tokens: tuple[int, int] = (60, 240)
    answer_tokens: tuple[int, int] = (20, 50)
    every_s: float = 0.05
    """On the average."""


def mixed_load(shape: LoadShape, seed: int = 1, words: Sequence[int] = ANY_WORDS) -> list[Arrival]:
    """All arrivals in the order of time. `words`: token ids that prompts are made of."""
    dice = random.Random(seed)
    arrivals = [
        arrival
        for call in range(shape.calls)
        for arrival in _call(f"call-{call}", shape, random.Random(dice.random()), words)
    ]
    for number in range(shape.prefills):
        ids = _ids(dice, shape.prefill_tokens, words)
        arrivals.append(Arrival(dice.uniform(0, shape.prefill_s), f"new-{number}", RequestClass.NEXT_TURN, ids))
    return sorted(arrivals, key=lambda arrival: arrival.at_s)


def answer_load(shape: AnswerShape, seed: int = 1, words: Sequence[int] = ANY_WORDS) -> list[Arrival]:
    """Finals alone, in the order of time."""
    dice = random.Random(seed)
    arrivals, at_s = [], 0.0
    for number in range(shape.count):
        ids = _ids(dice, shape.prompt_tokens, words)
        arrivals.append(Arrival(at_s, f"call-{number}", RequestClass.FINAL, ids, dice.randint(*shape.answer_tokens)))
        at_s += dice.expovariate(1 / shape.every_s)
    return arrivals


def _call(session_id: str, shape: LoadShape, dice: random.Random, words: Sequence[int]) -> list[Arrival]:
    at_s = dice.uniform(0, shape.join_s)
    history = _ids(dice, shape.history_tokens, words)
    arrivals = [Arrival(at_s, session_id, RequestClass.NEXT_TURN, history)]
    for _ in range(shape.turns):
        began_s, at_s = at_s, at_s + dice.uniform(*shape.speaking_s)
        said = _ids(dice, shape.utterance_tokens, words)
        partial_s = began_s + shape.partial_every_s
        while partial_s < at_s:
            heard = int(len(said) * (partial_s - began_s) / (at_s - began_s))
            arrivals.append(Arrival(partial_s, session_id, RequestClass.PARTIAL, history + said[:heard]))
            partial_s += shape.partial_every_s
        answer = _ids(dice, shape.answer_tokens, words)
        arrivals.append(Arrival(at_s, session_id, RequestClass.FINAL, history + said, len(answer)))
        at_s += dice.uniform(*shape.listening_s)
        history = history + said + answer
        arrivals.append(Arrival(at_s, session_id, RequestClass.NEXT_TURN, history))
    return arrivals


def _ids(dice: random.Random, between: tuple[int, int], words: Sequence[int]) -> tuple[int, ...]:
    return tuple(words[dice.randrange(len(words))] for _ in range(dice.randint(*between)))


@dataclass(frozen=True, slots=True)
class Outcome:
    arrival: Arrival
    waited_s: float | None
    """In the batcher; None: it never entered."""
    first_token_s: float | None
    ended_s: float
    finished: bool
    usage: TokenUsage = NOTHING_USED
    """Of one that finished."""


async def play(batcher: Batcher, arrivals: list[Arrival]) -> list[Outcome]:
    """Send everything at its time; outcomes in the order of the arrivals."""
    began_at = anyio.current_time()
    outcomes: dict[int, Outcome] = {}

    async def one(number: int, arrival: Arrival) -> None:
        await anyio.sleep_until(began_at + arrival.at_s)
        outcomes[number] = await _send(batcher, number, arrival)

    async with anyio.create_task_group() as tasks:
        for number, arrival in enumerate(arrivals):
            tasks.start_soon(one, number, arrival)
    return [outcomes[number] for number in range(len(arrivals))]


async def _send(batcher: Batcher, number: int, arrival: Arrival) -> Outcome:
    sent_at = anyio.current_time()
    waited_s = first_token_s = None
    finished, usage = False, TokenUsage()
    try:
        async with aclosing(batcher.generate(arrival.request(number, sent_at))) as stream:
            async for part in stream:
                if isinstance(part, Admitted):
                    waited_s = part.waited_s
                elif isinstance(part, TextDelta) and first_token_s is None:
                    first_token_s = anyio.current_time() - sent_at
                elif isinstance(part, GenerationEnd):
                    finished, usage = part.reason is not FinishReason.ABORTED, part.usage
    except (EngineError, Overloaded):
        finished = False
    return Outcome(arrival, waited_s, first_token_s, anyio.current_time() - sent_at, finished, usage)


def finals(outcomes: list[Outcome]) -> list[Outcome]:
    return [outcome for outcome in outcomes if outcome.arrival.klass is RequestClass.FINAL]


def first_token_quantile_s(outcomes: list[Outcome], share: float) -> float:
    """Of all finals; one that had no token counts as endless."""
    times = sorted(float("inf") if one.first_token_s is None else one.first_token_s for one in finals(outcomes))
    return times[min(len(times) - 1, int(share * len(times)))]
