"""Which piece of a call's prompt to prefill next. Pure: token ids in, token ids out.

    known   ▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓░░░░          what the engine has computed of this call, as far as we asked for it
    wanted  ▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▒▒▒▒▒▒▒▒▒▒…   history and the caption so far
    next    ────────────────────────────▶│    whole blocks only, at most a chunk more than is known

A long piece goes in chunks of growing prefix: the engine cannot be stopped inside a step, but between two chunks.
"""

from __future__ import annotations

from dataclasses import dataclass

from duolog.serving.policies import RequestClass
from duolog.serving.token_ids import TokenIds, common_prefix

BLOCK_TOKENS = 32
"""The engine's cache holds whole blocks: vLLM's 32 on a CPU; its 16 on a GPU divide it."""
CHUNK_TOKENS = 128
"""New tokens of one request. vLLM on one core computes 1,000 to 1,700 a second: a final waits a tenth of one."""
UNSETTLED_TOKENS = 3
"""At the end of an open prompt: may become other tokens with the next word."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One request: compute these ids."""

    ids: TokenIds
    klass: RequestClass


class PrefillPlan:
    """What of one call's prompt is known to be computed, and what is wanted."""

    def __init__(self, block_tokens: int = BLOCK_TOKENS, chunk_tokens: int = CHUNK_TOKENS) -> None:
        self._block = block_tokens
        self._chunk = chunk_tokens
        self._newest: TokenIds = ()
        """What the engine computed last, and of all before it what was closest to the history."""
        self._closest: TokenIds = ()
        self._history: TokenIds = ()
        self._wanted: TokenIds = ()

    def want(self, ids: TokenIds, *, history: bool) -> None:
        """The open prompt as it is now; the newest replaces the older. `history`: nothing of a new turn is in it."""
        self._wanted = ids
        if history:
            self._history = ids

    def drop(self) -> None:
        """Nothing is wanted until the next `want`."""
        self._wanted = ()

    def next(self) -> Piece | None:
        """The next piece; None where no whole block would be new."""
        target = self._whole_blocks(max(0, len(self._wanted) - UNSETTLED_TOKENS))
        known = self._known_of(self._wanted)
        if target <= known:
            return None
        ids = self._wanted[: min(target, known + self._chunk)]
        in_history = known < self._whole_blocks(common_prefix(self._history, self._wanted))
        return Piece(ids, RequestClass.NEXT_TURN if in_history else RequestClass.PARTIAL)

    def computed(self, ids: TokenIds) -> None:
        """The engine has these ids in its cache."""
        chains = (self._newest, self._closest)
        self._closest = max(chains, key=lambda chain: (common_prefix(chain, self._history), len(chain)))
        self._newest = ids

    def not_computed(self, ids: TokenIds) -> None:
        """Take back that the engine has these ids."""
        if self._newest == ids:
            self._newest = ()
        if self._closest == ids:
            self._closest = ()

    def forget(self) -> None:
        """The engine may have lost everything."""
        self._newest = self._closest = ()

    def is_useful(self, ids: TokenIds, final: TokenIds) -> bool:
        """True where computing `ids` gives a block that the final prompt needs and that is not there yet."""
        return self._whole_blocks(common_prefix(ids, final)) > self._known_of(final)

    def _known_of(self, ids: TokenIds) -> int:
        """Tokens of the whole blocks that the engine has of these."""
        return self._whole_blocks(max(common_prefix(self._newest, ids), common_prefix(self._closest, ids)))

    def _whole_blocks(self, tokens: int) -> int:
        return tokens // self._block * self._block
