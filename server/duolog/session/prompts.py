"""What the chat model is shown of one call: to answer a turn, or to prefill what is known of the next one."""

from __future__ import annotations

from duolog.ports.llm import ChatMessage, Role
from duolog.session.context import CallContext
from duolog.session.turn import Turn
from duolog.turns.conversation import ContentPart, Item, ItemRole, PartKind
from duolog.turns.history import History, Message

PROMPT_SHARE = 0.8
"""Of what the model's context leaves beside the answer, for the prompt: the estimate of its length is not exact."""
UTTERANCE_ROOM_TOKENS = 160
"""Kept free for what the user says next, so that the history is trimmed while the bot speaks."""


def opening(instructions: str) -> tuple[ChatMessage, ...]:
    """How a call with these instructions begins, before anybody has said anything: as `Prompts.open` gives it."""
    return (*_chat(History(0).messages(instructions, [])), ChatMessage(Role.USER, ""))


class Prompts:
    """The prompts of one call: each begins as the one before, except where the history was cut or trimmed."""

    def __init__(self, context: CallContext) -> None:
        self._context = context
        budget = context.engines.context_tokens - context.config.sampling.max_tokens
        self._history = History(max(256, int(budget * PROMPT_SHARE)))

    def answering(self, turn: Turn) -> tuple[ChatMessage, ...]:
        """To generate the answer to a turn."""
        instructions = turn.options.instructions or self._context.config.instructions
        return _chat(self._history.messages(instructions, self._items_of(turn)))

    def open(self, said: str) -> tuple[ChatMessage, ...]:
        """The history and a last message of the user that goes on: `said` so far, empty before they speak."""
        items = list(self._context.items.conversation)
        if said:
            items.append(_heard("", said))
        room = 0 if said else UTTERANCE_ROOM_TOKENS
        messages = _chat(self._history.messages(self._context.config.instructions, items, room))
        return messages if messages and messages[-1].role is Role.USER else (*messages, ChatMessage(Role.USER, ""))

    def _items_of(self, turn: Turn) -> list[Item]:
        items = list(self._context.items.conversation)
        if turn.options.input_items is not None:
            known = {item.id: item for item in items}
            asked = [known.get(one) if isinstance(one, str) else one for one in turn.options.input_items]
            return [item for item in asked if item is not None]
        utterance, transcript = turn.utterance, turn.transcript
        if utterance is None or transcript is None or any(item.id == utterance.item_id for item in items):
            return items
        return [*items, _heard(utterance.item_id, transcript.text)]


def _heard(item_id: str, text: str) -> Item:
    return Item(item_id, ItemRole.USER, (ContentPart(PartKind.INPUT_AUDIO, text),))


def _chat(messages: tuple[Message, ...]) -> tuple[ChatMessage, ...]:
    return tuple(ChatMessage(Role(message.role.value), message.content) for message in messages)
