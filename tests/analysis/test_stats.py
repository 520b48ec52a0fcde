"""Statistics against SciPy, and at their edges."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats as scipy_stats

from analysis.stats import holm, paired, paired_power, seeds_needed, summarise, welch


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
    assert found.std == pytest.approx(np.std(np.subtract(y, x), ddof=1))
    assert found.seeds_needed == seeds_needed(found.difference, found.std)
    assert found.t_p == pytest.approx(scipy_stats.ttest_rel(y, x).pvalue)
    assert found.wilcoxon_p == pytest.approx(scipy_stats.wilcoxon(np.subtract(y, x)).pvalue)
    assert found.wilcoxon_p >= found.smallest_wilcoxon == 0.125


@pytest.mark.parametrize(("shift", "t_p", "wilcoxon_p"), [(0.0, 1.0, 1.0), (0.25, math.nan, 0.25)])
def test_differences_without_spread(shift: float, t_p: float, wilcoxon_p: float) -> None:
    a = {0: 0.5, 1: 0.75, 2: 0.25}
    found = paired(a, {k: v + shift for k, v in a.items()})
    assert found.difference == shift and found.wilcoxon_p == wilcoxon_p
    assert found.t_p == t_p or (math.isnan(found.t_p) and math.isnan(t_p))


def test_one_image_more_for_every_seed_is_a_difference_without_spread() -> None:
    right = {0: 37, 1: 1, 2: 357}
    a, b = ({k: (n + more) / 360 for k, n in right.items()} for more in (0, 1))
    assert len({b[k] - a[k] for k in right}) > 1, "the floats differ"
    found = paired(a, b)
    assert found.difference == pytest.approx(1 / 360) and found.std == 0 and found.low == found.high == found.difference
    assert math.isnan(found.t_p) and found.wilcoxon_p == 0.25 and found.seeds_needed is None
    apart = paired(a, {k: v + (1e-12 if k == 2 else 0) for k, v in b.items()})
    assert 0 < apart.std < 1e-12 and apart.t_p < 1e-6, "what is more than rounding stays"


def test_no_test_below_two_pairs() -> None:
    found = paired({0: 1.0}, {0: 2.0, 1: 3.0})
    assert found.n == 1 and found.difference == 1.0 and math.isnan(found.t_p) and math.isnan(found.wilcoxon_p)
    assert math.isnan(found.std) and found.seeds_needed is None
    assert paired({0: 1.0}, {1: 1.0}).n == 0


def test_welch_from_summaries() -> None:
    a, b = [1.0, 2.0, 3.0], [2.5, 3.5, 4.0, 5.0]
    expected = scipy_stats.ttest_ind(a, b, equal_var=False).pvalue
    x, y = summarise(a), summarise(b)
    assert welch(x.mean, x.std, x.n, y.mean, y.std, y.n) == pytest.approx(expected)
    assert math.isnan(welch(1.0, math.nan, 1, 2.0, 0.1, 3))


def power_by_integration(effect: float, n: int, level: float = 0.05) -> float:
    """The power of a paired t test without the noncentral t distribution: over the sample's standard deviation s (the
    true one is 1), whose square times n - 1 is chi-squared, the share of means beyond s times the critical value."""
    width = (8 if n == 2 else 1 + 8 / math.sqrt(n - 1)) / 200_000
    s = width * (np.arange(200_000) + 0.5)
    density = 2 * (n - 1) * s * scipy_stats.chi2.pdf((n - 1) * s**2, n - 1)
    beyond, shift = scipy_stats.t.ppf(1 - level / 2, n - 1) * s, effect * math.sqrt(n)
    outside = scipy_stats.norm.sf(beyond - shift) + scipy_stats.norm.cdf(-beyond - shift)
    return float(width * np.sum(density * outside))


@pytest.mark.parametrize(
    ("effect", "n"), [(0.2, 2), (9.9, 2), (20.0, 2), (1.23, 3), (-3.0, 3), (1.0, 10), (0.5, 34), (0.1, 5), (0.05, 400)]
)
def test_the_power_of_a_paired_test_is_that_of_integrating_over_the_sample(effect: float, n: int) -> None:
    assert paired_power(effect, n) == pytest.approx(power_by_integration(abs(effect), n), abs=1e-8)


@pytest.mark.parametrize(("effect", "n"), [(0.2, 199), (0.5, 34), (0.8, 15), (1.0, 10)])
def test_seeds_needed_are_those_of_textbook_effects(effect: float, n: int) -> None:
    """Cohen's small, medium and large effects at 0.05 two-sided and power 0.8: the sample sizes that G*Power gives."""
    assert seeds_needed(effect, 1.0) == seeds_needed(-0.02 * effect, 0.02) == n


@pytest.mark.parametrize("effect", [0.13, 0.3, 0.72, 1.6, 2.4, 4.0, 9.9, 60.0])
def test_seeds_needed_are_the_fewest_that_reach_the_power(effect: float) -> None:
    n = seeds_needed(effect, 1.0)
    assert n is not None and power_by_integration(effect, n) >= 0.8
    assert n == 2 or power_by_integration(effect, n - 1) < 0.8
    stricter = seeds_needed(effect, 1.0, level=0.01, power=0.9)
    assert stricter is not None and stricter >= n


@pytest.mark.parametrize(("difference", "std"), [(0.0, 1.0), (1.0, 0.0), (math.nan, 1.0), (1.0, math.nan), (1.0, -1.0)])
def test_without_a_difference_or_a_spread_no_number_of_seeds_is_said(difference: float, std: float) -> None:
    assert seeds_needed(difference, std) is None


def test_differences_that_cancel_up_to_rounding_need_no_number_of_seeds() -> None:
    images = {0: 306, 1: 304, 2: 308}
    found = paired({k: n / 360 for k, n in images.items()}, {0: 310 / 360, 1: 304 / 360, 2: 304 / 360})
    assert 0 < abs(found.difference) < 1e-15 and found.std > 0.005
    assert found.seeds_needed is None


def test_holm_multiplies_by_the_tests_that_are_left_and_never_falls() -> None:
    # By hand: 0.01·5, 0.02·4, 0.03·3, then 0.04·2 = 0.08 and 0.05·1, both raised to the 0.09 before them.
    assert holm([0.03, 0.01, 0.05, 0.02, 0.04]) == pytest.approx([0.09, 0.05, 0.09, 0.08, 0.09])
    assert holm([0.7, 0.4, 0.001]) == pytest.approx([0.8, 0.8, 0.003]) and holm([0.9, 0.8]) == [1.0, 1.0]
    kept = holm([math.nan, 0.02, 0.03])
    assert math.isnan(kept[0]) and kept[1:] == pytest.approx([0.04, 0.04]) and holm([]) == []
