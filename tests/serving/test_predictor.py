"""What the batcher learns of an engine: costs, whatever it believed before, and in spite of outliers."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duolog.ports.llm import TokenUsage
from duolog.serving.policies import FlightRequest, QueuedRequest, RequestClass
from duolog.serving.predictor import DecodeWork, PrefillWork, ServiceTimePredictor, shared_tokens
from duolog.serving.prefill_work import prefill_work, remaining_tokens
from duolog.serving.recent_prompts import RecentPrompts
from duolog.serving.regression import OnlineRegression
from duolog.serving.service_times import ServiceTimes

pytestmark = pytest.mark.pure


def teach(predictor: ServiceTimePredictor, token_s: float, outliers: int = 0, count: int = 200) -> None:
    """`count` requests of an engine that takes 20 ms and `token_s` for each uncached token, some much slower."""
    dice = random.Random(7)
    for number in range(count):
        work = PrefillWork(dice.randint(1, 900), dice.randint(0, 900), 0.0, dice.randint(0, 5))
        actual_s = 0.02 + work.uncached_tokens * token_s
        if outliers and number % outliers == 0:
            actual_s *= 20
        predictor.saw_first_token("", work, predictor.first_token_s("", work), actual_s)


@pytest.mark.parametrize("token_s", [0.000_02, 0.000_3, 0.001, 0.02])
def test_it_learns_engines_from_a_gpu_to_a_slow_core(token_s: float) -> None:
    predictor = ServiceTimePredictor()
    teach(predictor, token_s)
    for tokens in (50, 400, 900):
        expected = 0.02 + tokens * token_s
        assert predictor.first_token_s("", PrefillWork(tokens, 300)) == pytest.approx(expected, rel=0.15)
    assert predictor.error_ratio("") < 0.1


def test_outliers_do_not_carry_it_away() -> None:
    predictor = ServiceTimePredictor()
    teach(predictor, 0.001, outliers=15)
    assert predictor.first_token_s("", PrefillWork(400)) == pytest.approx(0.42, rel=0.4)


def test_an_engine_that_changes_is_learnt_anew() -> None:
    predictor = ServiceTimePredictor()
    teach(predictor, 0.001)
    teach(predictor, 0.004, count=300)
    assert predictor.first_token_s("", PrefillWork(400)) == pytest.approx(1.62, rel=0.15)


def test_before_anything_was_seen_it_is_as_slow_as_a_core() -> None:
    assert ServiceTimePredictor().first_token_s("", PrefillWork(1_000)) == pytest.approx(1.03)


def test_replicas_are_learnt_apart() -> None:
    predictor = ServiceTimePredictor()
    start = predictor.first_token_s("b", PrefillWork(500))
    teach(predictor, 0.01)
    assert predictor.first_token_s("b", PrefillWork(500)) == start


def test_the_pace_of_tokens_depends_on_who_else_decodes() -> None:
    predictor = ServiceTimePredictor()
    for others in list(range(8)) * 20:
        predictor.saw_decoding("", DecodeWork(others), 0.02 + 0.01 * others)
    assert predictor.token_s("", DecodeWork(0)) == pytest.approx(0.02, rel=0.2)
    assert predictor.token_s("", DecodeWork(12)) == pytest.approx(0.14, rel=0.2)


@given(st.lists(st.tuples(st.floats(0, 1e4), st.floats(0, 50), st.floats(1e-4, 60)), max_size=60))
def test_whatever_it_sees_its_predictions_stay_finite_and_no_cost_is_negative(
    seen: list[tuple[float, float, float]],
) -> None:
    regression = OnlineRegression((0.03, 0.001, 0.005), (0.03, 0.001, 0.01), 0.001)
    for tokens, decoding, actual_s in seen:
        regression.learn((1.0, tokens, decoding), actual_s)
    assert min(regression.weights) >= 0.0
    assert 0.001 <= regression.predict((1.0, 1_000.0, 3.0)) < 1e6


def test_others_prompts_take_no_more_than_their_turns() -> None:
    assert shared_tokens(60, [1_500, 40], 128) == 168
    assert shared_tokens(1_000, [1_500, 40], 128) == 1_040


def queued(ticket: int, tokens: int = 1_000, klass: RequestClass = RequestClass.FINAL) -> QueuedRequest:
    return QueuedRequest(ticket, f"call-{ticket}", klass, 0.0, 0.0, tokens, 10)


def test_work_counts_what_is_left_of_others_and_who_decodes() -> None:
    predictor = ServiceTimePredictor()
    running = FlightRequest(queued(1), 0.0, prefilling=True)
    decoding = FlightRequest(queued(2), 0.0, prefilling=False)
    assert remaining_tokens(predictor, running, 0.25) == pytest.approx(750)
    assert remaining_tokens(predictor, running, 9.0) == 0.0
    assert prefill_work(predictor, queued(3, 800), [running, decoding], 0.25) == PrefillWork(800, 0, 750.0, 1)


def test_an_answer_teaches_its_prompt_and_its_pace() -> None:
    times = ServiceTimes(ServiceTimePredictor())
    for ticket in range(80):
        began = ticket * 10.0
        times.entered(queued(ticket), [], began)
        times.first_token(ticket, began + 0.5)
        times.ended(ticket, TokenUsage(1_000, 500, 21), 0.0, began + 0.5 + 20 * 0.2)
    assert times.predictor.first_token_s("", PrefillWork(500, 500)) == pytest.approx(0.5, rel=0.1)
    assert times.predictor.token_s("", DecodeWork(0)) == pytest.approx(0.2, rel=0.1)


@pytest.mark.parametrize(
    ("usage", "held_s"), [(None, 0.0), (TokenUsage(1_000, 0, 3), 0.0), (TokenUsage(9, 0, 21), 3.0)]
)
def test_nothing_is_learnt_of_the_pace_from_an_end_that_says_nothing(usage: TokenUsage | None, held_s: float) -> None:
    times = ServiceTimes(ServiceTimePredictor())
    before = times.predictor.token_s("", DecodeWork(0))
    times.entered(queued(1), [], 0.0)
    times.first_token(1, 1.0)
    times.ended(1, usage, held_s, 21.0)
    times.ended(1, usage, held_s, 22.0)
    assert times.predictor.token_s("", DecodeWork(0)) == before


def test_recent_prompts_are_whole_blocks_of_the_session_or_of_anybody() -> None:
    recent = RecentPrompts()
    prompt = tuple(range(200))
    recent.computed("", "anna", prompt)
    assert recent.cached_tokens("", "anna", (*prompt, 1, 2)) == 192
    assert recent.cached_tokens("", "anna", prompt[:64]) == 32, "the last token is always computed"
    assert recent.cached_tokens("", "ben", (*prompt[:100], 7)) == 96
    assert recent.cached_tokens("other", "anna", prompt) == 0
    assert recent.cached_tokens("", "anna", ()) == 0


def test_of_recent_prompts_the_one_used_longest_ago_is_forgotten() -> None:
    recent = RecentPrompts(remembered=4)
    prompts = {name: tuple(range(start, start + 64)) for name, start in (("anna", 0), ("ben", 1_000), ("cleo", 2_000))}
    for name, ids in prompts.items():
        recent.computed("", name, ids)
    found = [name for name, ids in prompts.items() if recent.cached_tokens("", name, ids)]
    assert found == ["ben", "cleo"]
