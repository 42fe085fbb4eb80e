"""Whole conversations: how much of each prompt was in the cache already, and whether the answers were begun ahead."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from duolog.loadtest.campaign import LEAD_S, PAUSE_S, Utterance
from duolog.loadtest.failures import CallFailed
from duolog.loadtest.wire_client import CallOptions, place_call
from duolog.loadtest.wire_text import number_field, text_field

BLOCKS = 10
"""Prompts of at least so many blocks count: below, half a block is a large share."""
BLOCK_TOKENS = 32
LONG_PROMPT = (
    "You are Ava, a friendly voice assistant. Answer in one or two short sentences. "
    "The caller lives in a small town by the sea, works in a library and likes to walk in the evening. "
    "They have a dog called Juno who is afraid of thunder, a sister in another country whom they call on Sundays, "
    "and a garden with tomatoes, beans and far too many courgettes. They are learning to play the accordion, "
    "read detective novels from the nineteen thirties, and drink their tea without milk. Never mention all of it at "
    "once; use what fits. If they ask for facts that you cannot know, such as today's weather, say in one sentence "
    "that you cannot look it up. If they sound tired, be brief. If they tell a joke, laugh with them. "
    "Never use lists, headings or emoji, since every word you write is spoken aloud. Spell nothing out unless you are "
    "asked to. Speak of yourself as Ava. Numbers are easier to hear when they are round. "
)
"""A persona's prompt as people write them: some ten blocks."""


@dataclass(frozen=True, slots=True)
class TurnSeen:
    turn: int
    """From 1."""
    prompt_tokens: int
    cached_tokens: int
    speculation: str


async def converse(url: str, conversations: Sequence[Sequence[Utterance]]) -> list[TurnSeen]:
    """Each conversation is a call of its own."""
    seen: list[TurnSeen] = []
    options = CallOptions(url, "bench-semantic", session={"instructions": LONG_PROMPT})
    for utterances in conversations:
        try:
            async with place_call(options) as call:
                await call.pause(LEAD_S)
                for number, utterance in enumerate(utterances, 1):
                    turn = await call.say(utterance.samples, utterance.name)
                    timings = turn.answer.timings if turn.answer is not None else None
                    if timings is not None:
                        prompt, cached = number_field(timings, "prompt_tokens"), number_field(timings, "cached_tokens")
                        said = text_field(timings, "speculation") or "none"
                        seen.append(TurnSeen(number, int(prompt or 0), int(cached or 0), said))
                    await call.pause(PAUSE_S)
        except CallFailed as failure:
            print(f"  left out: {failure}")
    return seen


def summary(seen: Sequence[TurnSeen]) -> dict[str, object]:
    """Cached share by turn, over prompts that are long enough, and what became of the speculation."""
    long = [turn for turn in seen if turn.prompt_tokens >= BLOCKS * BLOCK_TOKENS]
    by_turn = {}
    for number in sorted({turn.turn for turn in long}):
        turns = [turn for turn in long if turn.turn == number]
        by_turn[str(number)] = round(sum(t.cached_tokens for t in turns) / sum(t.prompt_tokens for t in turns), 3)
    later = [turn for turn in long if turn.turn > 1]
    return {
        "turns": len(seen),
        "cached_share_by_turn": by_turn,
        "cached_share_from_turn_2": _share(later),
        "speculation": dict(Counter(turn.speculation for turn in seen)),
    }


def _share(turns: Sequence[TurnSeen]) -> float | None:
    prompts = sum(turn.prompt_tokens for turn in turns)
    return round(sum(turn.cached_tokens for turn in turns) / prompts, 3) if prompts else None
