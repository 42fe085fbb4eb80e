"""One request in a batch: its tokens become text, until it ends or its caller has gone. Lives in the model's thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from duolog.adapters.model_thread import StopFlag
from duolog.adapters.openai_stream import SpecialTokenGuard
from duolog.adapters.padded_batch import PaddedBatch
from duolog.adapters.token_choice import TokenChooser
from duolog.ports.llm import FinishReason, GenerationEnd, Sampling, TextDelta, TokenUsage


@dataclass(frozen=True, slots=True)
class RowRequest:
    prompt_ids: tuple[int, ...]
    sampling: Sampling
    end_ids: frozenset[int]
    """Tokens that end the answer."""
    max_tokens: int
    """What the sampling asks for and the context has room for; at least one."""


class BatchRow:
    """`closed` is set from the caller's thread; everything else happens in the model's."""

    def __init__(
        self,
        request: RowRequest,
        decode: Callable[[int], str],
        emit: Callable[[TextDelta | GenerationEnd], None],
    ) -> None:
        """`decode` turns one token after another into text; `emit` gives a value to the caller."""
        self.closed = StopFlag()
        self.prompt_ids = request.prompt_ids
        self.newest = 0
        """Token chosen last."""
        self._request = request
        self._decode = decode
        self._emit = emit
        self._chooser = TokenChooser(request.sampling, request.prompt_ids)
        self._stop = SpecialTokenGuard(request.sampling.stop) if request.sampling.stop else None
        self._generated = 0

    def goes_on(self, scores: Any) -> bool:
        """Choose the next token and give out its text. False: the row has ended, or nobody wants it any more."""
        if self.closed.is_set():
            return False
        self.newest = self._chooser.choose(scores)
        self._generated += 1
        if self.newest in self._request.end_ids:
            return self._end(FinishReason.STOP)
        self._say(self._decode(self.newest))
        if self._stop is not None and self._stop.ended:
            return self._end(FinishReason.STOP)
        if self._generated >= self._request.max_tokens:
            return self._end(FinishReason.LENGTH)
        return True

    def _say(self, text: str) -> None:
        """Without what may be the beginning of a stop string."""
        allowed = text if self._stop is None else self._stop.feed(text)
        if allowed:
            self._emit(TextDelta(allowed))

    def _end(self, reason: FinishReason) -> bool:
        if self._stop is not None and (rest := self._stop.finish()):
            self._emit(TextDelta(rest))
        usage = TokenUsage(len(self._request.prompt_ids), 0, self._generated)
        self._emit(GenerationEnd(reason, usage))
        return False


def run_batch(model: Any, pad_id: int, rows: Sequence[BatchRow], stop: StopFlag) -> None:
    """Answer all rows. Between two computations rows that have ended leave, and JobStopped is raised on `stop`."""
    staying = [row for row in rows if not row.closed.is_set()]
    if not staying:
        return
    with torch.inference_mode():
        batch = PaddedBatch(model, [row.prompt_ids for row in staying], pad_id)
        scores = batch.prefill()
        while staying and not batch.prefilled:
            stop.check()
            staying = _kept(batch, staying, [not row.closed.is_set() for row in staying])
            if staying:
                scores = batch.prefill()
        while staying:
            stop.check()
            staying = _kept(batch, staying, [row.goes_on(scores[number]) for number, row in enumerate(staying)])
            if staying:
                scores = batch.step([row.newest for row in staying])


def _kept(batch: PaddedBatch, rows: list[BatchRow], going: list[bool]) -> list[BatchRow]:
    """Take the rows that do not go on out of the batch; those that are left."""
    if any(going) and not all(going):
        batch.keep([number for number, goes in enumerate(going) if goes])
    return [row for row, goes in zip(rows, going, strict=True) if goes]
