"""Items in order, and their JSON."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duolog.turns.conversation import (
    ContentPart,
    Conversation,
    DuplicateItem,
    Item,
    ItemRole,
    ItemStatus,
    PartKind,
    UnknownItem,
    decode_item,
    encode_item,
)

pytestmark = pytest.mark.pure


def item(item_id: str, text: str | None = "hi") -> Item:
    return Item(item_id, ItemRole.USER, (ContentPart(PartKind.INPUT_TEXT, text),))


def ids(conversation: Conversation) -> list[str]:
    return [entry.id for entry in conversation]


def test_items_are_placed_where_they_were_asked_for() -> None:
    conversation = Conversation()
    assert conversation.add(item("b")) is None
    assert conversation.add(item("d")) == "b"
    assert conversation.add(item("c"), after="b") == "b"
    assert conversation.add(item("a"), after=Conversation.ROOT) is None
    assert ids(conversation) == ["a", "b", "c", "d"]
    assert conversation.previous_id("c") == "b"


def test_an_id_is_used_once() -> None:
    conversation = Conversation()
    conversation.add(item("a"))
    with pytest.raises(DuplicateItem):
        conversation.add(item("a"))


@pytest.mark.parametrize("act", ["get", "delete", "previous_id"])
def test_unknown_items_are_refused(act: str) -> None:
    with pytest.raises(UnknownItem):
        getattr(Conversation(), act)("nobody")


def test_placing_after_an_unknown_item_changes_nothing() -> None:
    conversation = Conversation()
    with pytest.raises(UnknownItem):
        conversation.add(item("a"), after="nobody")
    assert len(conversation) == 0


def test_set_text_changes_one_part() -> None:
    conversation = Conversation()
    conversation.add(item("a", None))
    assert conversation.set_text("a", "hello").text == "hello"
    assert conversation.get("a").text == "hello"


@given(
    st.text(min_size=1),
    st.sampled_from(ItemRole),
    st.lists(st.tuples(st.sampled_from(PartKind), st.none() | st.text())),
    st.sampled_from(ItemStatus),
    st.booleans(),
)
def test_an_item_survives_its_json(
    item_id: str, role: ItemRole, parts: list[tuple[PartKind, str | None]], status: ItemStatus, interrupted: bool
) -> None:
    one = Item(item_id, role, tuple(ContentPart(kind, text) for kind, text in parts), status, interrupted)
    assert decode_item(encode_item(one)) == one


@pytest.mark.parametrize("broken", ["", "{}", "[]", '{"id": "a", "role": "pope", "parts": [], "status": "completed"}'])
def test_broken_json_is_refused(broken: str) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        decode_item(broken)
