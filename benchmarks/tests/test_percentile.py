"""What stands in for a function of scikit-learn in a replay of Syne Tune is that function, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.utils.stats import _weighted_percentile

from benchmarks.replay.arms.percentile import weighted_percentile

#: The quantiles of Syne Tune's regression, in per cent, and some on and beside the steps of the distribution.
RANKS = (0.0, 1e-9, 17.0, 33.0, 50.0, 67.0, 83.0, 20.0, 40.0, 60.0, 80.0, 25.0, 75.0, 100.0)


@pytest.mark.parametrize("count", [*range(1, 41), 100, 199])
def test_it_is_scikit_learns_bit_for_bit(count: int) -> None:
    rng = np.random.default_rng(count)
    for values in (rng.normal(size=count), rng.integers(0, 3, count).astype(float)):
        for rank in RANKS:
            expected = _weighted_percentile(values, np.ones(count), rank)
            assert weighted_percentile(values, np.ones(count), rank) == expected, rank


def test_unequal_weights_are_not_taken_for_equal_ones() -> None:
    with pytest.raises(ValueError, match="weight 1"):
        weighted_percentile(np.arange(3.0), np.array([1.0, 2.0, 1.0]))
    with pytest.raises(ValueError, match="finite"):
        weighted_percentile(np.array([1.0, np.nan]), np.ones(2))
