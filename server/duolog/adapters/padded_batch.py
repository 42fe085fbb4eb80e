"""A batch of prompts in one tensor, padded on the left to the longest, and the tokens generated from them.

                  prompt, in chunks          generated
    row 0   ░░░░░░░░░░▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓ ▒ ▒ ▒        ░ padding: masked, and no position counts it
    row 1   ▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓ ▒ ▒ ▒

Rows that have left are taken out of the tensors: nothing is computed for them. Runs in the model's thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers import DynamicCache

CHUNK_TOKENS = 256
"""Columns of the prompts computed at once: as long as nobody can stop it, a quarter of a second on one core."""

Tensor = Any
"""torch is followed by no type checker here."""


class PaddedBatch:
    """Made of whole prompts; `prefill` until it is `prefilled`, then `step` with the token of each row.

    To be used under `torch.inference_mode`.
    """

    def __init__(self, model: Any, prompts: Sequence[Sequence[int]], pad_id: int) -> None:
        """`model`: a causal model of transformers. `prompts`: at least one, none of them empty."""
        self._model = model
        longest = max(map(len, prompts))
        padded = [[pad_id] * (longest - len(prompt)) + list(prompt) for prompt in prompts]
        real = [[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts]
        self._ids = torch.tensor(padded, device=model.device)
        self._mask = torch.tensor(real, device=model.device)
        self._cache = DynamicCache(config=model.config)
        self._prompt_tokens = longest
        self._computed = 0

    @property
    def prefilled(self) -> bool:
        return self._computed >= self._prompt_tokens

    def prefill(self) -> Tensor:
        """Compute the next chunk. Scores as of `step`, which mean something once `prefilled`."""
        end = min(self._computed + CHUNK_TOKENS, self._prompt_tokens)
        positions = (self._mask[:, :end].cumsum(-1) - 1).clamp(min=0)[:, self._computed :]
        return self._forward(self._ids[:, self._computed : end], self._mask[:, :end], positions)

    def step(self, tokens: Sequence[int]) -> Tensor:
        """Append one token to each row; float32 scores of the next on the CPU, shape (rows, vocabulary)."""
        column = torch.tensor(tokens, device=self._mask.device)[:, None]
        self._mask = torch.cat([self._mask, torch.ones_like(column)], dim=-1)
        return self._forward(column, self._mask, self._mask.sum(-1, keepdim=True) - 1)

    def keep(self, rows: Sequence[int]) -> None:
        """Go on with these rows only, numbered as they are now."""
        kept = torch.tensor(rows, device=self._mask.device)
        self._ids, self._mask = self._ids[kept], self._mask[kept]
        if self._computed:
            self._cache.batch_select_indices(kept)

    def _forward(self, ids: Tensor, mask: Tensor, positions: Tensor) -> Tensor:
        found = self._model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        )
        self._computed += ids.shape[1]
        return found.logits[:, -1].float().cpu()
