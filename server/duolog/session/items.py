"""What a client may do to the conversation: add, delete, fetch, cut. Refusals change nothing."""

from __future__ import annotations

from dataclasses import replace

from duolog.ports.errors import RequestRefused
from duolog.session.events import (
    ItemAdded,
    ItemDeleted,
    ItemDone,
    ItemRetrieved,
    ItemTruncated,
    PlayoutHeard,
)
from duolog.session.outbox import Outbox
from duolog.session.playing import Playback, Playbacks
from duolog.turns.conversation import Conversation, DuplicateItem, Item, ItemRole, ItemStatus, UnknownItem


class Items:
    """The conversation of one call, with the events that tell of its changes."""

    def __init__(self, outbox: Outbox, playbacks: Playbacks) -> None:
        self.conversation = Conversation()
        self._outbox = outbox
        self._playbacks = playbacks

    def announce_all(self) -> None:
        """Tell the client of every item there is, as after a resume."""
        for item in self.conversation:
            previous = self.conversation.previous_id(item.id)
            self._outbox.put(ItemAdded(item, previous))
            self._outbox.put(ItemDone(item, previous))

    def create(self, item: Item, after: str | None = None) -> str | None:
        """The id of the item before it. Raises RequestRefused for a known id or an unknown `after`."""
        try:
            previous = self.conversation.add(item, after)
        except DuplicateItem as error:
            raise RequestRefused(
                f"The conversation already has an item with the id `{item.id}`; choose another id or leave it out.",
                code="item_id_already_exists",
                param="item.id",
            ) from error
        except UnknownItem as error:
            raise _not_found(error.item_id, "previous_item_id") from error
        self._outbox.put(ItemAdded(item, previous))
        self._outbox.put(ItemDone(item, previous))
        return previous

    def delete(self, item_id: str) -> None:
        """Raises RequestRefused for an unknown id."""
        try:
            self.conversation.delete(item_id)
        except UnknownItem as error:
            raise _not_found(item_id, "item_id") from error
        self._outbox.put(ItemDeleted(item_id))

    def retrieve(self, item_id: str) -> None:
        """Raises RequestRefused for an unknown id."""
        try:
            item = self.conversation.get(item_id)
        except UnknownItem as error:
            raise _not_found(item_id, "item_id") from error
        self._outbox.put(ItemRetrieved(item))

    def truncate(self, item_id: str, content_index: int, audio_end_ms: int) -> None:
        """Cut a spoken answer to what was heard until `audio_end_ms`; beyond its end is a clip.

        Raises RequestRefused for an unknown id or an item that is no answer.
        """
        try:
            item = self.conversation.get(item_id)
        except UnknownItem as error:
            raise _not_found(item_id, "item_id") from error
        if item.role is not ItemRole.ASSISTANT or content_index != 0:
            raise RequestRefused(
                f"Only an assistant item's spoken part 0 can be truncated, not `{item_id}` part {content_index}.",
                code="invalid_value",
                param="item_id" if item.role is not ItemRole.ASSISTANT else "content_index",
            )
        playback = self._playbacks.of_item(item_id)
        if playback is not None:
            self.cut(playback, playback.ledger.rate_hz * audio_end_ms // 1000)
        self._outbox.put(ItemTruncated(item_id, content_index, audio_end_ms))

    def cut(self, playback: Playback, played_samples: int | None = None) -> None:
        """Cut an answer's text to what was heard; by default to what its ledger says was played."""
        playback.cut = True
        ledger = playback.ledger
        if ledger.item_id not in self.conversation:
            return
        heard = ledger.heard_text(played_samples)
        item = self.conversation.get(ledger.item_id)
        whole = heard == ledger.text and ledger.complete
        if whole and not item.interrupted:
            return
        text = heard if whole else heard.rstrip()
        status = ItemStatus.COMPLETED if whole else ItemStatus.INCOMPLETE
        self.conversation.replace(replace(item, interrupted=not whole, status=status))
        self.conversation.set_text(item.id, text)
        self._outbox.put(PlayoutHeard(item.id, text, ledger.played_ms, ledger.approximate))


def _not_found(item_id: str, param: str) -> RequestRefused:
    return RequestRefused(f"The conversation has no item with the id `{item_id}`.", code="item_not_found", param=param)
