"""Quantiles with misses among them."""

from __future__ import annotations

import numpy as np
import pytest
from hdrh.histogram import HdrHistogram

from duolog.loadtest.histogram import HIGHEST_MS, LatencyHistogram, milliseconds

pytestmark = pytest.mark.pure


def test_quantiles_are_those_of_the_values() -> None:
    values = np.random.default_rng(1).lognormal(6.5, 0.6, 5_000)
    found = LatencyHistogram(values).quantiles()
    for share, value in ((0.5, found.p50), (0.95, found.p95), (0.99, found.p99), (0.999, found.p999)):
        assert value == pytest.approx(float(np.quantile(values, share, method="inverted_cdf")), rel=0.002)
    assert found.worst == round(float(values.max()), 1)
    assert (found.count, found.missed) == (5_000, 0)


def test_a_miss_waits_longer_than_anybody() -> None:
    histogram = LatencyHistogram([float(value) for value in range(1, 98)], missed=3)
    found = histogram.quantiles()
    assert found.count == 100
    assert found.p50 == pytest.approx(50, rel=0.002)
    assert found.p95 == pytest.approx(95, rel=0.002)
    assert found.p99 is None
    assert found.p999 is None
    assert found.worst == 97


def test_the_quantile_at_the_first_miss() -> None:
    histogram = LatencyHistogram([10.0] * 99, missed=1)
    assert histogram.quantile(0.99) == 10.0
    assert histogram.quantile(0.991) is None


def test_nothing_measured() -> None:
    found = LatencyHistogram().quantiles()
    assert (found.count, found.p50, found.worst) == (0, None, None)
    assert LatencyHistogram(missed=4).quantiles().p50 is None
    assert LatencyHistogram().curve(0.99) == []


def test_what_no_histogram_holds_is_bounded() -> None:
    found = LatencyHistogram([-5.0, 1e9]).quantiles()
    assert found.p50 == pytest.approx(0.0, abs=0.1)
    assert found.worst == HIGHEST_MS


def test_the_curve_climbs_to_where_it_should_end() -> None:
    curve = LatencyHistogram([float(value) for value in range(1, 1_001)]).curve(0.99)
    shares, values = [share for share, _ in curve], [value for _, value in curve]
    assert shares[0] == 0.5
    assert shares[-1] == 0.99
    assert shares == sorted(shares)
    assert values == sorted(values)


def test_others_can_read_it() -> None:
    read = HdrHistogram.decode(LatencyHistogram([100.0, 200.0]).encoded())
    assert read.get_total_count() == 2
    assert read.get_max_value() == pytest.approx(200_000, rel=0.001)


def test_what_is_shown_for_no_value() -> None:
    assert [milliseconds(1_234.4, 3), milliseconds(None, 3), milliseconds(None, 0)] == ["1,234", "miss", "–"]
