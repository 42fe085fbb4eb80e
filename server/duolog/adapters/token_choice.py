"""Chooses the next token of one answer from the model's scores, by the sampling of its request and with its own dice.

vLLM's order: repetition penalty, temperature, least probability, nucleus. Knows no batch: each row
has a chooser of its own, so that a seed gives the same answer whoever else is in the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from duolog.ports.llm import Sampling

NUCLEUS_FIRST = 256
"""The likeliest tokens, which nearly always hold the nucleus: to sort the whole vocabulary takes 3 ms."""

Tensor = Any
"""torch is followed by no type checker here."""


class TokenChooser:
    """Of one answer, in the order of its tokens."""

    def __init__(self, sampling: Sampling, prompt_ids: Sequence[int]) -> None:
        self._sampling = sampling
        self._seen = torch.tensor(sorted(set(prompt_ids)), dtype=torch.long)
        self._dice = torch.Generator()
        if sampling.seed is None:
            self._dice.seed()
        else:
            self._dice.manual_seed(sampling.seed)

    def choose(self, scores: Tensor) -> int:
        """The next token. `scores`: float32 logits on the CPU, shape (vocabulary,); they are changed."""
        if self._sampling.repetition_penalty != 1.0:
            self._penalise(scores)
        token = int(scores.argmax()) if self._sampling.temperature <= 0 else self._draw(scores)
        if self._sampling.repetition_penalty != 1.0 and token not in self._seen:
            self._seen = torch.cat([self._seen, torch.tensor([token])])
        return token

    def _penalise(self, scores: Tensor) -> None:
        seen = scores[self._seen]
        penalty = self._sampling.repetition_penalty
        scores[self._seen] = torch.where(seen > 0, seen / penalty, seen * penalty)

    def _draw(self, scores: Tensor) -> int:
        probabilities = torch.softmax(scores / self._sampling.temperature, dim=-1)
        if self._sampling.min_p > 0:
            shares, tokens = likely(probabilities, self._sampling.min_p)
        else:
            shares, tokens = probabilities, torch.arange(len(probabilities))
        if self._sampling.top_p < 1:
            shares, among = nucleus(shares / shares.sum(), self._sampling.top_p)
            tokens = tokens[among]
        return int(tokens[torch.multinomial(shares, 1, generator=self._dice)])


def likely(probabilities: Tensor, min_p: float) -> tuple[Tensor, Tensor]:
    """The tokens not less likely than `min_p` times the likeliest: their probabilities, and their ids."""
    tokens = (probabilities >= min_p * probabilities.max()).nonzero().flatten()
    return probabilities[tokens], tokens


def nucleus(probabilities: Tensor, top_p: float) -> tuple[Tensor, Tensor]:
    """The fewest likeliest tokens that together reach `top_p`, at least one: their probabilities, and their ids."""
    top, tokens = probabilities.topk(min(NUCLEUS_FIRST, len(probabilities)))
    if float(top.sum()) < top_p:
        top, tokens = probabilities.sort(descending=True)
    kept = top.cumsum(0) - top < top_p
    return top[kept], tokens[kept]
