"""Padding changes no answer, and rows leave a batch while the others go on. With a small model of random weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.small_llama import small_llama

from duolog.adapters.batch_row import BatchRow, RowRequest, run_batch
from duolog.adapters.model_thread import JobStopped, StopFlag
from duolog.adapters.padded_batch import CHUNK_TOKENS, PaddedBatch
from duolog.ports.llm import FinishReason, GenerationEnd, Sampling, TextDelta, TokenUsage

pytestmark = pytest.mark.pure

GREEDY = Sampling(temperature=0.0, repetition_penalty=1.0, max_tokens=12)
SHORT, MIDDLE, LONG = (3, 4, 5), (2, 6, 7, 3, 5) * 6, (7, 3, 4, 6) * (CHUNK_TOKENS // 4 + 30)


@pytest.fixture(scope="module")
def model() -> Any:
    return small_llama()


class Answer:
    """A row and what it gave out; token ids stand for their text."""

    def __init__(self, prompt: tuple[int, ...], sampling: Sampling = GREEDY, end_ids: tuple[int, ...] = ()) -> None:
        self.values: list[TextDelta | GenerationEnd] = []
        self.leaves_after = 1_000
        """Values."""
        request = RowRequest(prompt, sampling, frozenset(end_ids), sampling.max_tokens)
        self.row = BatchRow(request, lambda token: f"{token} ", self.emit)

    def emit(self, value: TextDelta | GenerationEnd) -> None:
        self.values.append(value)
        if len(self.values) == self.leaves_after:
            self.row.closed.set()

    @property
    def text(self) -> str:
        return "".join(value.text for value in self.values if isinstance(value, TextDelta))

    @property
    def end(self) -> GenerationEnd:
        end = self.values[-1]
        assert isinstance(end, GenerationEnd)
        return end


def run(model: Any, *answers: Answer, stop: StopFlag | None = None) -> list[str]:
    run_batch(model, 0, [answer.row for answer in answers], stop or StopFlag())
    return [answer.text for answer in answers]


def alone(model: Any, prompt: tuple[int, ...]) -> str:
    return run(model, Answer(prompt))[0]


def test_scores_are_those_of_the_model_itself(model: Any) -> None:
    with torch.inference_mode():
        batch = PaddedBatch(model, [SHORT, LONG], 0)
        scores, chunks = batch.prefill(), 1
        while not batch.prefilled:
            scores, chunks = batch.prefill(), chunks + 1
        assert chunks == 2
        for row, prompt in enumerate((SHORT, LONG)):
            assert torch.allclose(scores[row], model(torch.tensor([prompt])).logits[0, -1], atol=1e-4)
        batch.keep([1])
        scores = batch.step([4])
        assert torch.allclose(scores[0], model(torch.tensor([(*LONG, 4)])).logits[0, -1], atol=1e-4)


def test_an_answer_in_a_batch_is_the_answer_alone(model: Any) -> None:
    prompts = (SHORT, MIDDLE, LONG)
    expected = [alone(model, prompt) for prompt in prompts]
    assert len(set(expected)) == 3
    assert run(model, *map(Answer, prompts)) == expected


def test_rows_end_one_by_one(model: Any) -> None:
    sizes = (2, 12, 5)
    answers = [
        Answer(prompt, Sampling(temperature=0.0, repetition_penalty=1.0, max_tokens=size))
        for prompt, size in zip((SHORT, MIDDLE, LONG), sizes, strict=True)
    ]
    texts = run(model, *answers)
    for answer, text, prompt, size in zip(answers, texts, (SHORT, MIDDLE, LONG), sizes, strict=True):
        assert text.split() == alone(model, prompt).split()[:size]
        assert answer.end == GenerationEnd(FinishReason.LENGTH, TokenUsage(len(prompt), 0, size))


def test_a_closed_row_leaves_and_the_others_do_not_notice(model: Any) -> None:
    leaver, stayer = Answer(SHORT), Answer(MIDDLE)
    leaver.leaves_after = 2
    run(model, leaver, stayer)
    assert len(leaver.values) == 2
    assert stayer.text == alone(model, MIDDLE)


def test_rows_closed_before_the_batch_begins_or_in_its_prefill_are_left_out(model: Any) -> None:
    early, late, stayer = Answer(MIDDLE), Answer(LONG), Answer(LONG[1:])
    early.row.closed.set()

    class ClosesLate(StopFlag):
        def check(self) -> None:
            late.row.closed.set()

    assert run(model, early, late, stayer, stop=ClosesLate()) == ["", "", alone(model, LONG[1:])]
    assert run(model, early) == [""]


def test_a_stopped_batch_ends(model: Any) -> None:
    stop = StopFlag()
    stop.set()
    with pytest.raises(JobStopped):
        run(model, Answer(SHORT), stop=stop)


def test_an_end_token_ends_an_answer_and_is_not_said(model: Any) -> None:
    words = alone(model, SHORT).split()
    last = next(word for word in words if word != words[0])
    answer = Answer(SHORT, end_ids=(int(last),))
    run(model, answer)
    said = words.index(last)
    assert answer.text.split() == words[:said]
    assert answer.end == GenerationEnd(FinishReason.STOP, TokenUsage(len(SHORT), 0, said + 1))


def test_a_stop_string_ends_an_answer_and_is_not_said(model: Any) -> None:
    words = alone(model, SHORT).split()
    stop = f"{words[3]} {words[4]}"
    before = alone(model, SHORT).split(stop)[0]
    answer = Answer(SHORT, Sampling(temperature=0.0, repetition_penalty=1.0, max_tokens=12, stop=(stop, "never")))
    run(model, answer)
    assert answer.text == before
    assert answer.end.reason is FinishReason.STOP


def test_what_only_begins_like_a_stop_string_is_said(model: Any) -> None:
    whole = alone(model, SHORT)
    stop = f"{whole[-3:]}and more"
    answer = Answer(SHORT, Sampling(temperature=0.0, repetition_penalty=1.0, max_tokens=12, stop=(stop,)))
    assert run(model, answer) == [whole]


def test_seeds_hold_whoever_else_is_in_the_batch(model: Any) -> None:
    sampling = Sampling(temperature=1.0, top_p=1.0, max_tokens=12, seed=7)
    other = Sampling(temperature=1.0, top_p=1.0, max_tokens=12, seed=8)
    expected = run(model, Answer(MIDDLE, sampling))[0]
    one, two, three = run(model, Answer(MIDDLE, sampling), Answer(LONG, sampling), Answer(MIDDLE, other))
    assert one == expected
    assert three != expected
    assert two != expected
