"""Token ids of prompts, and what two of them have in common. Pure."""

from __future__ import annotations

from bisect import bisect_left

TokenIds = tuple[int, ...]


def common_prefix(one: TokenIds, other: TokenIds) -> int:
    """Tokens that both begin with."""
    shorter = min(len(one), len(other))
    if one[:shorter] == other[:shorter]:  # nearly always
        return shorter
    return bisect_left(range(shorter), True, key=lambda end: one[: end + 1] != other[: end + 1])
