"""From outcomes to figures, and from figures to what people read."""

from __future__ import annotations

import pytest
from tests.loadtest.written_outcomes import answered, call, figures_of, missed, quiet, refused

from duolog.loadtest.call_plan import TurnKind
from duolog.loadtest.outcomes import Miss, TurnEnding, TurnOutcome

pytestmark = pytest.mark.pure


def test_answered_missed_and_the_rate() -> None:
    figures = figures_of(
        [call(0, answered(0, 500.0), answered(1, 700.0), missed(2)), call(1, missed(0, Miss.NOT_HEARD))]
    )
    assert (figures.turns, figures.answered, figures.calls) == (4, 2, 2)
    assert figures.missed == {"an answer began and was not heard in time": 1, "no answer came": 1}
    assert figures.turns_per_s == 0.02
    assert figures.error_rate == 0.5
    assert figures.latency_ms.p50 == pytest.approx(700, rel=0.002)
    assert figures.latency_ms.p99 is None


def test_only_what_is_due_in_the_window_counts() -> None:
    calls = [call(0, answered(0, 500.0, end_s=99.9), answered(1, 900.0, end_s=100.0)), call(1, arrived_s=100.0)]
    figures = figures_of(calls)
    assert (figures.turns, figures.calls, figures.latency_ms.worst) == (1, 1, 500.0)


def test_silence_and_noise_are_apart() -> None:
    turns = (quiet(0, TurnEnding.QUIET), quiet(1, TurnEnding.PHANTOM), quiet(2, TurnEnding.CUT_OFF))
    figures = figures_of([call(0, *turns)])
    assert (figures.quiet, figures.phantoms, figures.cut_off, figures.turns) == (1, 1, 1, 0)
    assert figures.error_rate == 0


def test_refusals_are_counted_by_reason_and_are_no_errors() -> None:
    figures = figures_of(
        [call(0, answered(0, 500.0)), refused(1, "session_limit_reached"), refused(2, "overload", 30.0)]
    )
    assert figures.refused == {"overload": 1, "session_limit_reached": 1}
    assert figures.refused_share == pytest.approx(2 / 3)
    assert figures.told_ms.worst == 30.0
    assert figures.error_rate == 0


def test_interruptions_and_kinds() -> None:
    barge = TurnOutcome(
        0,
        1,
        TurnKind.BARGE_IN,
        20.0,
        25.0,
        TurnEnding.ANSWERED,
        latency_ms=600.0,
        interrupted=True,
        barge_in_stop_ms=240.0,
    )
    late = TurnOutcome(0, 2, TurnKind.BARGE_IN, 30.0, 35.0, TurnEnding.MISSED, miss=Miss.NO_ANSWER, interrupted=True)
    into_silence = TurnOutcome(0, 3, TurnKind.BARGE_IN, 40.0, 45.0, TurnEnding.ANSWERED, latency_ms=600.0)
    figures = figures_of([call(0, answered(0, 500.0), barge, late, into_silence)])
    assert (figures.barge_ins.during_an_answer, figures.barge_ins.stopped) == (2, 1)
    assert figures.barge_ins.stop_ms.p50 == pytest.approx(240, rel=0.002)
    assert {kind: found.count for kind, found in figures.latency_by_kind_ms.items()} == {"talk": 1, "barge_in": 3}
    assert list(figures.stages_ms) == ["endpoint", "heard"]


def test_nothing_at_all() -> None:
    figures = figures_of([])
    assert (figures.turns_per_s, figures.error_rate, figures.refused_share) == (0, 0, 0)
