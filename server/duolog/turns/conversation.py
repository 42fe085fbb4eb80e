"""The conversation: an ordered list of items, as clients see it and as the model's history is built from it.

Pure. Item ids are chosen outside. Every change returns nothing and keeps the invariants: ids are unique, order is
insertion order unless an item was placed after another.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from enum import StrEnum


class ItemRole(StrEnum):
    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"


class ItemStatus(StrEnum):
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    INCOMPLETE = "incomplete"
    """Cut short: cancelled or interrupted."""


class PartKind(StrEnum):
    INPUT_TEXT = "input_text"
    INPUT_AUDIO = "input_audio"
    OUTPUT_TEXT = "output_text"
    OUTPUT_AUDIO = "output_audio"


@dataclass(frozen=True, slots=True)
class ContentPart:
    kind: PartKind
    text: str | None
    """The text, or the transcript of audio; None while a transcript is not there yet."""


@dataclass(frozen=True, slots=True)
class Item:
    """One message of the conversation."""

    id: str
    role: ItemRole
    parts: tuple[ContentPart, ...]
    status: ItemStatus = ItemStatus.COMPLETED
    interrupted: bool = False
    """True where the user cut the answer short: `text` then holds what was heard."""

    @property
    def text(self) -> str:
        """All parts' text, joined."""
        return " ".join(part.text for part in self.parts if part.text)


def encode_item(item: Item) -> str:
    """The item as JSON, for a store."""
    return json.dumps(asdict(item), ensure_ascii=False)


def decode_item(encoded: str) -> Item:
    """The item from its JSON. Raises ValueError, KeyError, TypeError where it is none."""
    fields = json.loads(encoded)
    parts = tuple(ContentPart(PartKind(part["kind"]), part["text"]) for part in fields["parts"])
    return Item(
        id=fields["id"],
        role=ItemRole(fields["role"]),
        parts=parts,
        status=ItemStatus(fields["status"]),
        interrupted=bool(fields["interrupted"]),
    )


class UnknownItem(KeyError):
    """No item has this id."""

    def __init__(self, item_id: str) -> None:
        super().__init__(item_id)
        self.item_id = item_id


class DuplicateItem(ValueError):
    """An item with this id is there already."""

    def __init__(self, item_id: str) -> None:
        super().__init__(item_id)
        self.item_id = item_id


class Conversation:
    """Items in order."""

    ROOT = "root"
    """As `previous_item_id`: before every other item."""

    def __init__(self) -> None:
        self._items: list[Item] = []

    def __iter__(self) -> Iterator[Item]:
        return iter(tuple(self._items))

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, item_id: str) -> bool:
        return any(item.id == item_id for item in self._items)

    def get(self, item_id: str) -> Item:
        """Raises UnknownItem."""
        return self._items[self._index(item_id)]

    def add(self, item: Item, after: str | None = None) -> str | None:
        """Append the item, or place it after `after` (`ROOT`: at the head). Returns the id before it, None at the head.

        Raises DuplicateItem, UnknownItem.
        """
        if item.id in self:
            raise DuplicateItem(item.id)
        if after is None:
            position = len(self._items)
        elif after == self.ROOT:
            position = 0
        else:
            position = self._index(after) + 1
        self._items.insert(position, item)
        return self._items[position - 1].id if position else None

    def replace(self, item: Item) -> None:
        """Put a new version of an item in its place. Raises UnknownItem."""
        self._items[self._index(item.id)] = item

    def set_text(self, item_id: str, text: str, part: int = 0) -> Item:
        """Set the text or transcript of one part. Raises UnknownItem, IndexError."""
        item = self.get(item_id)
        parts = list(item.parts)
        parts[part] = replace(parts[part], text=text)
        changed = replace(item, parts=tuple(parts))
        self.replace(changed)
        return changed

    def delete(self, item_id: str) -> None:
        """Raises UnknownItem."""
        del self._items[self._index(item_id)]

    def previous_id(self, item_id: str) -> str | None:
        """The id of the item before this one, None at the head. Raises UnknownItem."""
        position = self._index(item_id)
        return self._items[position - 1].id if position else None

    def _index(self, item_id: str) -> int:
        for position, item in enumerate(self._items):
            if item.id == item_id:
                return position
        raise UnknownItem(item_id)
