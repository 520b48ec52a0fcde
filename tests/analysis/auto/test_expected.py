"""The expected best of k trials, against the mean over every draw."""

from __future__ import annotations

import itertools
import math
import statistics

import pytest

from analysis.auto import expected_best

VALUES = [0.2, 0.9, 0.5, 0.5]


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_it_is_the_mean_over_all_draws_with_replacement(k: int) -> None:
    draws = list(itertools.product(VALUES, repeat=k))
    assert expected_best(VALUES, k) == pytest.approx(statistics.fmean(map(max, draws)))
    assert expected_best(VALUES, k, sign=-1.0) == pytest.approx(statistics.fmean(map(min, draws)))


def test_nothing_has_no_best() -> None:
    assert math.isnan(expected_best([], 3))
