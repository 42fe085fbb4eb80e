"""The prefill plan: whole blocks only, chunks of growing prefix, nothing twice."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duolog.serving.policies import RequestClass
from duolog.serving.prefill import BLOCK_TOKENS, CHUNK_TOKENS, UNSETTLED_TOKENS, PrefillPlan
from duolog.serving.token_ids import common_prefix

pytestmark = pytest.mark.pure

B = BLOCK_TOKENS


def ids(length: int, kind: int = 0) -> tuple[int, ...]:
    return tuple(range(kind * 100_000, kind * 100_000 + length))


def carry_out(plan: PrefillPlan) -> list[int]:
    """Compute every piece; returns their lengths."""
    lengths = []
    while (piece := plan.next()) is not None:
        lengths.append(len(piece.ids))
        plan.computed(piece.ids)
    return lengths


def test_nothing_is_wanted_at_first() -> None:
    assert PrefillPlan().next() is None


def test_a_cold_history_goes_in_chunks_of_growing_prefix() -> None:
    plan = PrefillPlan()
    plan.want(ids(1_500), history=True)
    assert carry_out(plan) == [*range(CHUNK_TOKENS, 1_409, CHUNK_TOKENS), 1_472]


def test_a_short_history_has_no_whole_block() -> None:
    plan = PrefillPlan()
    plan.want(ids(B + UNSETTLED_TOKENS - 1), history=True)
    assert plan.next() is None


def test_what_was_taken_back_is_forgotten_also_where_a_piece_ended_meanwhile() -> None:
    plan = PrefillPlan()
    plan.want(ids(1_000), history=True)
    piece = plan.next()
    assert piece is not None
    plan.computed(ids(1_000))
    plan.computed(piece.ids)
    plan.not_computed(ids(1_000))
    assert carry_out(plan) == [*range(2 * CHUNK_TOKENS, 993, CHUNK_TOKENS), 992]


def test_a_caption_that_adds_no_whole_block_is_dropped() -> None:
    plan = PrefillPlan()
    plan.want(ids(10 * B + UNSETTLED_TOKENS), history=True)
    carry_out(plan)
    for grown in range(B):
        plan.want(ids(10 * B + grown + UNSETTLED_TOKENS), history=False)
        assert plan.next() is None
    plan.want(ids(11 * B + UNSETTLED_TOKENS), history=False)
    piece = plan.next()
    assert piece is not None
    assert (len(piece.ids), piece.klass) == (11 * B, RequestClass.PARTIAL)


def test_history_goes_before_the_caption_also_when_the_caption_came_first() -> None:
    plan = PrefillPlan()
    plan.want(ids(CHUNK_TOKENS), history=True)
    plan.want(ids(CHUNK_TOKENS + 3 * B), history=False)
    klasses = []
    while (piece := plan.next()) is not None:
        klasses.append(piece.klass)
        plan.computed(piece.ids)
    assert klasses == [RequestClass.NEXT_TURN, RequestClass.PARTIAL]


def test_after_a_cut_only_what_follows_the_cut_is_computed() -> None:
    plan = PrefillPlan()
    plan.want(ids(20 * B), history=True)
    carry_out(plan)
    cut = (*ids(12 * B + 5), *ids(2 * B, kind=1))
    plan.want(cut, history=True)
    assert carry_out(plan) == [14 * B]


def test_an_answer_out_of_band_does_not_make_the_history_forgotten() -> None:
    plan = PrefillPlan()
    plan.want(ids(20 * B + UNSETTLED_TOKENS), history=True)
    carry_out(plan)
    plan.computed(ids(50 * B, kind=1))
    plan.want(ids(20 * B + 9), history=True)
    assert plan.next() is None


def test_what_was_lost_is_computed_again() -> None:
    plan = PrefillPlan()
    plan.want(ids(4 * B), history=True)
    carry_out(plan)
    plan.forget()
    assert carry_out(plan) == [3 * B]


def test_a_final_drops_what_is_wanted() -> None:
    plan = PrefillPlan()
    plan.want(ids(4 * B), history=True)
    plan.drop()
    assert plan.next() is None


def test_useful_is_what_gives_the_final_a_block_that_is_not_there() -> None:
    plan = PrefillPlan()
    plan.want(ids(4 * B + UNSETTLED_TOKENS), history=True)
    carry_out(plan)
    final = (*ids(6 * B + 5), *ids(9, kind=2))
    assert plan.is_useful(ids(5 * B), final)
    assert not plan.is_useful(ids(4 * B), final)
    assert not plan.is_useful((*ids(4 * B + 20), *ids(B, kind=3)), final)


@given(st.lists(st.integers(0, 2)), st.lists(st.integers(0, 2)))
def test_common_prefix(one: list[int], other: list[int]) -> None:
    shared = common_prefix(tuple(one), tuple(other))
    assert one[:shared] == other[:shared]
    assert shared in {len(one), len(other)} or one[shared] != other[shared]


@given(st.lists(st.tuples(st.integers(0, 900), st.integers(0, 2), st.booleans()), max_size=12))
def test_every_piece_is_whole_blocks_of_what_is_wanted_and_no_more_than_a_chunk(
    wishes: list[tuple[int, int, bool]],
) -> None:
    plan = PrefillPlan()
    cached: set[tuple[int, ...]] = {()}
    for length, kind, history in wishes:
        wanted = (*ids(70), *ids(length, kind))
        plan.want(wanted, history=history)
        while (piece := plan.next()) is not None:
            assert len(piece.ids) % B == 0
            assert wanted[: len(piece.ids)] == piece.ids
            assert len(piece.ids) <= len(wanted) - UNSETTLED_TOKENS
            known = max(common_prefix(piece.ids, chain) for chain in cached)
            assert len(piece.ids) - known // B * B <= CHUNK_TOKENS
            cached.add(piece.ids)
            plan.computed(piece.ids)
