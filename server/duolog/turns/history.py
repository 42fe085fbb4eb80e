"""From conversation to prompt: the messages a model is shown, with a prefix that stays the same from turn to turn.

Pure. The engine caches the prompt's prefix, so nothing in it may move: the instructions come first and never change
within a call, items are rendered once and the same way, and old items are dropped in big steps, not one each turn.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from duolog.turns.conversation import Item, ItemRole
from duolog.turns.wording import words_of

QUOTED_WORDS = 6
"""Of the last words heard, in the note that says where an answer was cut."""
KEEP_AFTER_TRIM = 0.5
"""Share of the budget that is left filled when old items are dropped."""


@dataclass(frozen=True, slots=True)
class Message:
    role: ItemRole
    content: str


def estimate_tokens(text: str) -> int:
    """A safe estimate without the model's tokenizer: 1 token a Chinese character, else 1 for each 3 characters, + 6."""
    wide = sum(1 for char in text if ord(char) >= 0x2E80)
    return wide + (len(text) - wide + 2) // 3 + 6


class History:
    """Renders prompts of one call. Remembers only where the window over the conversation begins."""

    def __init__(self, budget_tokens: int) -> None:
        self.budget_tokens = budget_tokens
        self._first_id: str | None = None
        """Set when items were dropped."""

    def messages(self, instructions: str, items: Iterable[Item], room_tokens: int = 0) -> tuple[Message, ...]:
        """Instructions, then the items from the window on; drops the oldest half when they outgrow the budget.

        `room_tokens` are to be left for what the user says next: asked for between turns, they make the prompt move
        there and not when somebody waits for an answer.
        """
        window = self._window([item for item in items if item.text])
        cost = estimate_tokens(instructions) + room_tokens
        sizes = [estimate_tokens(item.text) for item in window]
        if cost + sum(sizes) > self.budget_tokens:
            while len(window) > 1 and cost + sum(sizes) > self.budget_tokens * KEEP_AFTER_TRIM:
                window, sizes = window[1:], sizes[1:]
            window = _from_user_turn(window)
            self._first_id = window[0].id if window else None
        head = (Message(ItemRole.SYSTEM, instructions),) if instructions else ()
        return head + _merge(window)

    def _window(self, items: list[Item]) -> list[Item]:
        for position, item in enumerate(items):
            if item.id == self._first_id:
                return items[position:]
        return items


def _from_user_turn(window: list[Item]) -> list[Item]:
    for position, item in enumerate(window):
        if item.role is ItemRole.USER:
            return window[position:]
    return window


def _merge(window: list[Item]) -> tuple[Message, ...]:
    """One message for each run of items of one role: chat templates want roles to alternate."""
    merged: list[Message] = []
    for item in window:
        for message in _render(item):
            if merged and merged[-1].role is message.role:
                merged[-1] = Message(message.role, f"{merged[-1].content}\n{message.content}")
            else:
                merged.append(message)
    return tuple(merged)


def _render(item: Item) -> tuple[Message, ...]:
    message = Message(item.role, item.text)
    if item.role is ItemRole.ASSISTANT and item.interrupted:
        return message, Message(ItemRole.SYSTEM, interrupted_note(item.text))
    return (message,)


def interrupted_note(heard: str) -> str:
    """What the model is told of an answer of which only `heard` was heard. A system message: models do not copy it."""
    last = "".join(word.surface for word in words_of(heard)[-QUOTED_WORDS:]).strip()
    return (
        f'(The user interrupted the assistant right after "{last}" and heard nothing beyond it. '
        "Do not repeat or mention this note.)"
    )
