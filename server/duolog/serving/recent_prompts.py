"""What of a prompt the engine very likely has, going by what it was sent last. For replicas whose cache is not watched.

Pure. It cannot know what was evicted: KV pins do, and then nobody asks here.
"""

from __future__ import annotations

from collections import OrderedDict

from duolog.serving.prefill import BLOCK_TOKENS
from duolog.serving.token_ids import TokenIds, common_prefix

REMEMBERED = 512
"""Prompts; the one used longest ago is forgotten first."""

_Key = tuple[str, object]


class RecentPrompts:
    """For each replica the newest prompt of each session, and of each first block: sessions share a system prompt."""

    def __init__(self, remembered: int = REMEMBERED) -> None:
        self._remembered = remembered
        self._prompts: OrderedDict[_Key, TokenIds] = OrderedDict()

    def computed(self, replica: str, session_id: str, ids: TokenIds) -> None:
        """The replica has computed this prompt."""
        for key in _keys(replica, session_id, ids):
            self._prompts[key] = ids
            self._prompts.move_to_end(key)
        while len(self._prompts) > self._remembered:
            self._prompts.popitem(last=False)

    def cached_tokens(self, replica: str, session_id: str, ids: TokenIds) -> int:
        """Tokens of whole blocks at the beginning of `ids`; the engine always computes the last token anew."""
        known = max(
            (common_prefix(self._prompts.get(key, ()), ids) for key in _keys(replica, session_id, ids)), default=0
        )
        return min(known, max(0, len(ids) - 1)) // BLOCK_TOKENS * BLOCK_TOKENS


def _keys(replica: str, session_id: str, ids: TokenIds) -> list[_Key]:
    if len(ids) < BLOCK_TOKENS:
        return []
    return [(replica, session_id), (replica, ids[:BLOCK_TOKENS])]
