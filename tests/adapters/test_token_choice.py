"""How the next token is chosen: by each row's own sampling and seed."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from duolog.adapters.token_choice import NUCLEUS_FIRST, TokenChooser, likely, nucleus
from duolog.ports.llm import Sampling

pytestmark = pytest.mark.pure

GREEDY = Sampling(temperature=0.0, repetition_penalty=1.0)


def scores(*values: float) -> torch.Tensor:
    return torch.tensor(values)


def test_without_temperature_the_likeliest() -> None:
    chooser = TokenChooser(GREEDY, (0,))
    assert [chooser.choose(scores(0.1, 3.0, 2.9)) for _ in range(5)] == [1] * 5


def test_what_was_said_or_asked_is_penalised() -> None:
    chooser = TokenChooser(Sampling(temperature=0.0, repetition_penalty=1.5), (1,))
    assert chooser.choose(scores(2.5, 3.0, -1.0)) == 0, "token 1 is in the prompt"
    assert chooser.choose(scores(2.5, 2.0, 1.8)) == 2, "token 0 has been said"
    negative = TokenChooser(Sampling(temperature=0.0, repetition_penalty=1.5), (1,))
    assert negative.choose(scores(-2.2, -2.0)) == 0


def test_the_nucleus_is_the_fewest_that_reach_the_share() -> None:
    kept, tokens = nucleus(scores(0.1, 0.5, 0.05, 0.35), 0.8)
    assert tokens.tolist() == [1, 3]
    assert kept.tolist() == pytest.approx([0.5, 0.35])
    assert nucleus(scores(0.6, 0.4), 0.1)[1].tolist() == [0], "at least one"


def test_what_is_far_less_likely_than_the_likeliest_is_never_chosen() -> None:
    kept, tokens = likely(scores(0.5, 0.04, 0.05, 0.41), 0.1)
    assert tokens.tolist() == [0, 2, 3]
    assert kept.tolist() == pytest.approx([0.5, 0.05, 0.41])
    chooser = TokenChooser(Sampling(temperature=1.0, min_p=0.2, repetition_penalty=1.0, seed=1), (0,))
    drawn = {chooser.choose(scores(2.0, 0.0, 1.5)) for _ in range(200)}
    assert drawn == {0, 2}, "token 1 has a probability of 0.08, a seventh of the likeliest"


def test_the_nucleus_is_measured_among_the_likely() -> None:
    sampling = Sampling(temperature=1.0, min_p=0.3, top_p=0.6, repetition_penalty=1.0, seed=1)
    chooser = TokenChooser(sampling, (0,))
    drawn = {chooser.choose(scores(2.0, 0.0, 0.0, 0.0, 1.5)) for _ in range(100)}
    assert drawn == {0}, "of the likely two it alone has 0.62; of all five it has 0.49"


def test_a_nucleus_wider_than_the_first_look() -> None:
    size = 4 * NUCLEUS_FIRST
    assert len(nucleus(torch.full((size,), 1 / size), 0.5)[1]) == pytest.approx(size / 2, abs=2)


@given(st.integers(0, 2**31), st.floats(0.1, 2.0))
def test_a_seed_gives_the_same_tokens(seed: int, temperature: float) -> None:
    sampling = Sampling(temperature=temperature, top_p=0.95, seed=seed)
    one, other = TokenChooser(sampling, (0,)), TokenChooser(sampling, (0,))
    spread = torch.linspace(0, 2, 50)
    assert [one.choose(spread.clone()) for _ in range(8)] == [other.choose(spread.clone()) for _ in range(8)]


def test_without_a_seed_no_two_answers_are_alike() -> None:
    sampling = Sampling(temperature=1.0, top_p=1.0, repetition_penalty=1.0)
    answers = {tuple(chooser.choose(torch.zeros(1_000)) for _ in range(8)) for chooser in _choosers(sampling, 3)}
    assert len(answers) == 3


def _choosers(sampling: Sampling, count: int) -> list[TokenChooser]:
    return [TokenChooser(sampling, (0,)) for _ in range(count)]
