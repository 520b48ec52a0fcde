"""Which methods go on to further fresh seeds, and how many there is time for."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from fedtune.decisions import fresh_seeds

#: By method, values on three seeds. The seed moves all alike.
VALUES = {
    "a": {0: 0.80, 1: 0.70, 2: 0.76},
    "b": {0: 0.79, 1: 0.71, 2: 0.74},
    "c": {0: 0.66, 1: 0.55, 2: 0.63},
    "d": {0: 0.77, 1: 0.68, 2: 0.735},
}


def test_those_are_told_apart_that_a_t_test_with_one_noise_tells() -> None:
    """s² is the residual variance of the two-way layout, here from least squares on dummy variables."""
    y = np.array([[VALUES[m][s] for s in range(3)] for m in VALUES])
    design = [[1.0, *(m == k for k in (1, 2, 3)), *(s == k for k in (1, 2))] for m in range(4) for s in range(3)]
    residual = np.linalg.lstsq(np.array(design, dtype=float), y.ravel(), rcond=None)[1]
    error = math.sqrt(2 * float(residual[0]) / 6 / 3)
    p = [stats.t.sf((y[0].mean() - row.mean()) / error, 6) for row in y]
    assert [one > 0.05 for one in p] == [True, True, False, False], "the case has both"
    assert fresh_seeds.rivals(VALUES, 1.0) == ["a", "b"]
    turned = {m: {s: -v for s, v in of.items()} for m, of in VALUES.items()}
    assert fresh_seeds.rivals(turned, -1.0) == ["a", "b"]


def test_one_seed_tells_nothing_and_a_failed_one_tells() -> None:
    first = {m: {0: of[0]} for m, of in VALUES.items()}
    assert fresh_seeds.rivals(first, 1.0) == ["a", "b", "d", "c"]
    assert "b" not in fresh_seeds.rivals({**VALUES, "b": {0: 0.79, 1: math.nan, 2: 0.74}}, 1.0)
    assert fresh_seeds.rivals({"a": VALUES["a"], "b": VALUES["a"]}, 1.0) == ["a", "b"], "no noise and no difference"
    assert fresh_seeds.rivals({}, 1.0) == []


def test_seeds_grow_by_half_up_to_the_most() -> None:
    found = [2]
    while found[-1] < 10:
        found.append(fresh_seeds.next_count(found[-1], 10))
    assert found == [2, 3, 4, 6, 9, 10] and fresh_seeds.next_count(1, 10) == 2


@pytest.mark.parametrize(
    ("left", "fits"),
    [(14, (2, 3)), (13.9, (1, 3)), (8, (1, 3)), (7.9, (1, 2)), (5, (1, 2)), (4.9, (1, 1)), (0, (1, 1))],
)
def test_where_time_runs_out_seeds_are_dropped_before_methods(left: float, fits: tuple[int, int]) -> None:
    """Trials of 5, 4 and 4 seconds on two slots: 5 beside 4 + 4 end after 8 seconds; of two rounds, each beginning
    on the slot that is free first, 5 + 5 + 4 stand on one slot and 4 + 4 + 4 on the other."""
    prices = [5.0, 4.0, 4.0]
    assert fresh_seeds.together(prices, 2) == 8 and fresh_seeds.together(prices * 2, 2) == 14
    assert fresh_seeds.first_count(prices, 2, left, 2) == fits
