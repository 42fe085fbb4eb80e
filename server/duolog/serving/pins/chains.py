"""The names of a prompt's blocks in vLLM's prefix cache, computed here. Pure.

    H = SHA-256 of canonical CBOR;  parent = H("vllm-none-hash")
    for each whole block: parent = H((parent, token ids, None));  its name = the low 64 bits of parent

As vLLM with `--prefix-caching-hash-algo sha256_cbor`, in every process. Adapters of weights (LoRA), images and cache
salts would change the third element; none is used here.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256

import cbor2

from duolog.serving.token_ids import TokenIds

_LOW_64_BITS = (1 << 64) - 1


def _digest(value: object) -> bytes:
    return sha256(cbor2.dumps(value, canonical=True)).digest()


_FIRST_PARENT = _digest("vllm-none-hash")


@dataclass(frozen=True, slots=True)
class Chain:
    """A prompt and the names of its whole blocks."""

    block_tokens: int
    ids: TokenIds = ()
    hashes: tuple[int, ...] = ()
    digests: tuple[bytes, ...] = ()

    def of(self, ids: TokenIds) -> Chain:
        """The chain of another prompt; blocks that both begin with are not computed again."""
        if ids is self.ids or ids == self.ids:
            return self
        size, whole = self.block_tokens, len(ids) // self.block_tokens
        shared = 0
        while (
            shared < min(whole, len(self.hashes))
            and ids[shared * size : (shared + 1) * size] == self.ids[shared * size : (shared + 1) * size]
        ):
            shared += 1
        digests = list(self.digests[:shared])
        for block in range(shared, whole):
            parent = digests[-1] if digests else _FIRST_PARENT
            digests.append(_digest((parent, ids[block * size : (block + 1) * size], None)))
        hashes = self.hashes[:shared] + tuple(block_name(digest) for digest in digests[shared:])
        return Chain(size, ids, hashes, tuple(digests))

    @property
    def touch_ids(self) -> TokenIds:
        """The shortest prompt that makes the engine use all blocks of this one: a hit leaves one token to compute."""
        whole = max(0, len(self.ids) - 1) // self.block_tokens * self.block_tokens
        return self.ids[: whole + 1] if whole else ()

    def pieces(self, resident_tokens: int, chunk_tokens: int) -> list[TokenIds]:
        """What makes the engine compute all blocks: the whole, in chunks of growing prefix where much of it is gone."""
        whole = self.touch_ids
        ends = range(resident_tokens + chunk_tokens, len(whole), chunk_tokens)
        return [*(whole[:end] for end in ends), whole] if whole else []


def block_name(digest: bytes) -> int:
    """As KV events name the block."""
    return int.from_bytes(digest, "big") & _LOW_64_BITS
