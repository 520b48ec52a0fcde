"""Statistics against SciPy, and at their edges."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats as scipy_stats

from analysis.stats import bootstrap, paired, summarise, welch


def test_mean_sample_deviation_and_t_interval() -> None:
    values = [0.81, 0.84, 0.80, 0.86]
    found = summarise(values)
    low, high = scipy_stats.t.interval(0.95, 3, loc=np.mean(values), scale=scipy_stats.sem(values))
    assert (
        found.n == 4
        and found.mean == pytest.approx(np.mean(values))
        and found.std == pytest.approx(np.std(values, ddof=1))
    )
    assert found.low == pytest.approx(low) and found.high == pytest.approx(high)
    assert found.shown(100) == "82.75 ± 2.75"


def test_what_is_not_finite_does_not_count_and_one_value_has_no_spread() -> None:
    found = summarise([0.5, math.nan, math.inf])
    assert found.n == 1 and math.isnan(found.std) and found.shown(100) == "50.00"
    assert summarise([]).shown() == "–"


def test_paired_tests_use_common_seeds_only() -> None:
    a = {0: 0.50, 1: 0.55, 2: 0.60, 3: 0.52, 7: 0.1}
    b = {0: 0.55, 1: 0.58, 2: 0.68, 3: 0.53, 8: 0.9}
    found = paired(a, b)
    x, y = [a[k] for k in range(4)], [b[k] for k in range(4)]
    assert found.n == 4 and found.difference == pytest.approx(np.mean(y) - np.mean(x))
    assert found.t_p == pytest.approx(scipy_stats.ttest_rel(y, x).pvalue)
    assert found.wilcoxon_p == pytest.approx(scipy_stats.wilcoxon(np.subtract(y, x)).pvalue)
    assert found.wilcoxon_p >= found.smallest_wilcoxon == 0.125


@pytest.mark.parametrize(("shift", "t_p", "wilcoxon_p"), [(0.0, 1.0, 1.0), (0.25, math.nan, 0.25)])
def test_differences_without_spread(shift: float, t_p: float, wilcoxon_p: float) -> None:
    a = {0: 0.5, 1: 0.75, 2: 0.25}
    found = paired(a, {k: v + shift for k, v in a.items()})
    assert found.difference == shift and found.wilcoxon_p == wilcoxon_p
    assert found.t_p == t_p or (math.isnan(found.t_p) and math.isnan(t_p))


def test_no_test_below_two_pairs() -> None:
    found = paired({0: 1.0}, {0: 2.0, 1: 3.0})
    assert found.n == 1 and found.difference == 1.0 and math.isnan(found.t_p) and math.isnan(found.wilcoxon_p)
    assert paired({0: 1.0}, {1: 1.0}).n == 0


def test_bootstrap_is_deterministic_and_brackets_the_mean() -> None:
    values = [0.1, 0.4, 0.35, 0.2, 0.3]
    assert bootstrap(values) == bootstrap(values)
    low, high = bootstrap(values)
    assert 0.1 <= low < float(np.mean(values)) < high <= 0.4


def test_welch_from_summaries() -> None:
    a, b = [1.0, 2.0, 3.0], [2.5, 3.5, 4.0, 5.0]
    expected = scipy_stats.ttest_ind(a, b, equal_var=False).pvalue
    x, y = summarise(a), summarise(b)
    assert welch(x.mean, x.std, x.n, y.mean, y.std, y.n) == pytest.approx(expected)
    assert math.isnan(welch(1.0, math.nan, 1, 2.0, 0.1, 3))
