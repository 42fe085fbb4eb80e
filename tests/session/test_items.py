"""What a client may do to the conversation, and what it is told."""

from __future__ import annotations

from contextlib import aclosing

import pytest

from duolog.ports.errors import RequestRefused
from duolog.session.events import (
    CallEvent,
    ItemAdded,
    ItemDeleted,
    ItemDone,
    ItemRetrieved,
    ItemTruncated,
    PlayoutHeard,
)
from duolog.session.items import Items
from duolog.session.outbox import Outbox
from duolog.session.playing import Playback, Playbacks
from duolog.turns.conversation import ContentPart, Item, ItemRole, ItemStatus, PartKind
from duolog.turns.playout import HeardWord

pytestmark = pytest.mark.session

RATE_HZ = 24_000


class Told:
    """Items, and everything the client is told of them."""

    def __init__(self) -> None:
        self.outbox = Outbox()
        self.playbacks = Playbacks(reports=True)
        self.items = Items(self.outbox, self.playbacks)

    async def events(self) -> list[CallEvent]:
        """Everything so far; nothing can be put afterwards."""
        self.outbox.close()
        async with aclosing(self.outbox.drain()) as events:
            return [event async for event in events]

    def spoken(self, *, complete: bool = True) -> Playback:
        """An answer of two words, a second each, of which both were sent."""
        self.items.conversation.add(
            Item("answer", ItemRole.ASSISTANT, (ContentPart(PartKind.OUTPUT_AUDIO, "One, two."),), ItemStatus.COMPLETED)
        )
        playback = self.playbacks.begin("answer", RATE_HZ)
        playback.ledger.add_text("One, two.")
        playback.ledger.add_words([HeardWord(RATE_HZ, 4), HeardWord(2 * RATE_HZ, 9)])
        playback.note_sent(2 * RATE_HZ)
        playback.ledger.complete = complete
        return playback


def typed(item_id: str, text: str = "Hi") -> Item:
    return Item(item_id, ItemRole.USER, (ContentPart(PartKind.INPUT_TEXT, text),))


async def test_created_items_are_told_with_their_place() -> None:
    told = Told()
    first, second, head = typed("one"), typed("two"), typed("zero")
    told.items.create(first)
    told.items.create(second, "one")
    told.items.create(head, "root")
    assert await told.events() == [
        ItemAdded(first, None),
        ItemDone(first, None),
        ItemAdded(second, "one"),
        ItemDone(second, "one"),
        ItemAdded(head, None),
        ItemDone(head, None),
    ]


async def test_whole_conversation_is_told_after_a_resume() -> None:
    told = Told()
    told.items.conversation.add(typed("one"))
    told.items.conversation.add(typed("two"))
    told.items.announce_all()
    assert [(type(event), event.previous_item_id) for event in await told.events() if isinstance(event, ItemAdded)] == [
        (ItemAdded, None),
        (ItemAdded, "one"),
    ]


@pytest.mark.parametrize(
    ("item_id", "after", "code", "param"),
    [
        ("one", None, "item_id_already_exists", "item.id"),
        ("two", "nobody", "item_not_found", "previous_item_id"),
    ],
)
async def test_wrong_create_is_refused(item_id: str, after: str | None, code: str, param: str) -> None:
    told = Told()
    told.items.conversation.add(typed("one"))
    with pytest.raises(RequestRefused) as refused:
        told.items.create(typed(item_id), after)
    assert (refused.value.code, refused.value.param) == (code, param)
    assert await told.events() == []


async def test_retrieve_and_delete() -> None:
    told = Told()
    told.items.conversation.add(typed("one"))
    told.items.retrieve("one")
    told.items.delete("one")
    assert await told.events() == [ItemRetrieved(typed("one")), ItemDeleted("one")]
    for ask in (told.items.retrieve, told.items.delete):
        with pytest.raises(RequestRefused, match="no item with the id `one`"):
            ask("one")


async def test_truncate_cuts_to_the_words_that_were_heard() -> None:
    told = Told()
    told.spoken()
    told.items.truncate("answer", 0, 1_500)
    item = told.items.conversation.get("answer")
    assert (item.text, item.interrupted, item.status) == ("One,", True, ItemStatus.INCOMPLETE)
    heard, truncated = await told.events()
    assert isinstance(heard, PlayoutHeard)
    assert heard.heard_text == "One,"
    assert truncated == ItemTruncated("answer", 0, 1_500)


async def test_truncate_beyond_the_end_changes_nothing() -> None:
    told = Told()
    told.spoken()
    told.items.truncate("answer", 0, 60_000)
    assert told.items.conversation.get("answer").status is ItemStatus.COMPLETED
    assert await told.events() == [ItemTruncated("answer", 0, 60_000)]


@pytest.mark.parametrize(
    ("item_id", "part", "param"), [("nobody", 0, "item_id"), ("typed", 0, "item_id"), ("answer", 1, "content_index")]
)
async def test_wrong_truncate_is_refused(item_id: str, part: int, param: str) -> None:
    told = Told()
    told.spoken()
    told.items.conversation.add(typed("typed"))
    with pytest.raises(RequestRefused) as refused:
        told.items.truncate(item_id, part, 100)
    assert refused.value.param == param


async def test_phrase_that_never_sounded_was_not_heard() -> None:
    """All that was sent is played, but the answer was broken off before the voice had spoken its last phrase."""
    told = Told()
    playback = told.spoken(complete=False)
    playback.ledger.add_text(" And more.")
    playback.ledger.report(2 * RATE_HZ)
    told.items.cut(playback)
    assert told.items.conversation.get("answer").text == "One, two."
    assert told.items.conversation.get("answer").interrupted


async def test_client_that_heard_all_corrects_an_estimate() -> None:
    """Cut by the clock at the interruption; then the client reports that it had played everything."""
    told = Told()
    playback = told.spoken()
    playback.ledger.report(RATE_HZ)
    told.items.cut(playback)
    assert told.items.conversation.get("answer").text == "One,"
    playback.ledger.report(2 * RATE_HZ)
    told.items.cut(playback)
    item = told.items.conversation.get("answer")
    assert (item.text, item.interrupted, item.status) == ("One, two.", False, ItemStatus.COMPLETED)


async def test_cut_of_a_deleted_answer_says_nothing() -> None:
    told = Told()
    playback = told.spoken()
    told.items.conversation.delete("answer")
    told.items.cut(playback)
    assert playback.cut
    assert await told.events() == []
