"""Statistics over seeds: mean and spread, intervals, paired tests, and how many seeds a test would need.

Paired, because seed k gives every configuration the same partition, initialisation, cohort and batches: differences
are taken per seed before anything is averaged.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np


@dataclass(frozen=True)
class Summary:
    """`n` finite values: their mean, sample standard deviation (n - 1; nan below two values) and a t interval."""

    n: int
    mean: float
    std: float
    low: float
    high: float

    def shown(self, scale: float = 1.0, digits: int = 2) -> str:
        """`87.31 ± 0.42`; only the mean where there is a single value, `–` where there is none."""
        if self.n == 0:
            return "–"
        mean = f"{scale * self.mean:.{digits}f}"
        return mean if self.n < 2 else f"{mean} ± {scale * self.std:.{digits}f}"


def summarise(values: Sequence[float], level: float = 0.95) -> Summary:
    """Mean, standard deviation and the t interval of the mean at `level`; only finite values count."""
    finite = np.asarray([v for v in values if v is not None and math.isfinite(v)], dtype=float)
    n = len(finite)
    if n == 0:
        return Summary(0, math.nan, math.nan, math.nan, math.nan)
    mean = float(finite.mean())
    if n == 1:
        return Summary(1, mean, math.nan, math.nan, math.nan)
    from scipy.special import stdtrit  # what `scipy.stats.t.ppf` calls, which takes half a second to import

    std = float(finite.std(ddof=1))
    half = float(stdtrit(n - 1, (1 + level) / 2)) * std / math.sqrt(n)
    return Summary(n, mean, std, mean - half, mean + half)


@dataclass(frozen=True)
class Paired:
    """The differences `b - a` over the `n` keys of both sides: their mean, sample standard deviation (nan below two)
    and t interval; p-values are two-sided, nan without a test."""

    n: int
    difference: float
    std: float
    low: float
    high: float
    t_p: float
    #: What was measured, by seed in order; nothing without a test.
    each: tuple[float, ...] = ()

    @cached_property
    def wilcoxon_p(self) -> float:
        """Of the signed-rank test, which most readers of a difference do not ask for and takes half a second to
        import."""
        if not self.each:
            return math.nan
        if self.std == 0:  # all the same, but for rounding
            return 1.0 if self.each[0] == 0 else self.smallest_wilcoxon
        from scipy.stats import wilcoxon

        return float(wilcoxon(np.asarray(self.each)).pvalue)

    @property
    def smallest_wilcoxon(self) -> float:
        """The smallest p a Wilcoxon test of `n` pairs can reach: below six pairs it is never under 0.05."""
        return 2.0 ** (1 - self.n) if self.n else math.nan

    @property
    def seeds_needed(self) -> int | None:
        """The seeds a paired t test needs to see a difference of this mean and spread, see `seeds_needed`."""
        return seeds_needed(self.difference, self.std)


def paired(a: Mapping[int, float], b: Mapping[int, float]) -> Paired:
    """Paired t test and Wilcoxon signed-rank test of `b` against `a` (both: value by seed) over their common seeds."""
    keys = sorted(k for k in a.keys() & b.keys() if math.isfinite(a[k]) and math.isfinite(b[k]))
    differences = np.asarray([b[k] - a[k] for k in keys], dtype=float)
    summary = summarise(differences.tolist())
    if summary.n < 2:
        return Paired(summary.n, summary.mean, math.nan, math.nan, math.nan, math.nan)
    if np.ptp(differences) <= _rounding([*(a[k] for k in keys), *(b[k] for k in keys)]):
        # No spread: the t statistic is 0/0 or infinite. Equal runs are p = 1; a constant shift has no finite t.
        p = 1.0 if differences[0] == 0 else math.nan
        return Paired(summary.n, summary.mean, 0.0, summary.mean, summary.mean, p, tuple(differences.tolist()))
    from scipy.special import stdtr  # what `scipy.stats.ttest_1samp` calls, which takes half a second to import

    t_p = float(2 * stdtr(summary.n - 1, -abs(summary.mean) / (summary.std / math.sqrt(summary.n))))
    return Paired(summary.n, summary.mean, summary.std, summary.low, summary.high, t_p, tuple(differences.tolist()))


def limit_p(found: Paired, limit: float) -> float:
    """The p-value of what the differences of `found` say of `limit`: where their mean lies within ± limit, that of the
    two one-sided t tests against its ends (equivalence: the larger of both); where it lies outside, that of the test
    against the end which it is beyond. nan where there is no spread to test by.

    Source: Schuirmann, A comparison of the two one-sided tests procedure and the power approach, 1987."""
    if not found.std > 0:
        return math.nan
    from scipy.special import stdtr

    return float(stdtr(found.n - 1, -abs(limit - abs(found.difference)) / (found.std / math.sqrt(found.n))))


def _rounding(values: Sequence[float]) -> float:
    """How far two differences of these values may lie apart by rounding alone: 38/360 - 37/360, one image more of 360,
    is not the same float as 2/360 - 1/360."""
    return 4 * float(np.finfo(float).eps) * max(abs(value) for value in values)


def holm(p_values: Sequence[float]) -> list[float]:
    """The p-values corrected for testing all of them at once, in their order; nan stays nan and counts as no test.

    The chance that any of the true null hypotheses falls below a level is at most that level, whatever the tests share.
    Source: Holm, A simple sequentially rejective multiple test procedure, 1979."""
    order = sorted((i for i, p in enumerate(p_values) if not math.isnan(p)), key=lambda i: p_values[i])
    corrected = [math.nan] * len(p_values)
    largest = 0.0
    for rank, i in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - rank) * p_values[i]))
        corrected[i] = largest
    return corrected


def paired_power(effect: float, n: int, level: float = 0.05) -> float:
    """The power of a two-sided paired t test of `n` pairs at `level` where the differences have the mean `effect`, in
    units of their standard deviation: of the noncentral t distribution, the share beyond the critical values."""
    from scipy.stats import nct, t

    critical, shift = float(t.ppf(1 - level / 2, n - 1)), abs(effect) * math.sqrt(n)
    # The share below -critical is that above critical for the opposite shift: SciPy's cdf is nan so far out.
    return float(nct.sf(critical, n - 1, shift) + nct.sf(critical, n - 1, -shift))


def seeds_needed(difference: float, std: float, level: float = 0.05, power: float = 0.8) -> int | None:
    """The fewest pairs, at least two, with which a two-sided paired t test at `level` sees a `difference` of this
    standard deviation in the share `power` of repetitions; None where one of the two is not finite, the difference is
    zero or nothing but rounding (below a billionth of the deviation), or the deviation is not above zero.

    It takes both for the true ones. Estimated from three seeds, the answer is a rough one."""
    from scipy.stats import norm

    if not (math.isfinite(difference) and math.isfinite(std)) or std <= 0 or abs(difference) <= 1e-9 * std:
        return None
    effect = abs(difference) / std
    # A normal test needs fewer pairs than a t test: the count to begin at. The t test needs two or three more.
    n = max(2, int((float(norm.ppf(1 - level / 2) + norm.ppf(power)) / effect) ** 2))
    while paired_power(effect, n, level) < power:
        n += 1
    return n


def welch(mean: float, std: float, n: int, other_mean: float, other_std: float, other_n: int) -> float:
    """The two-sided p of Welch's t test from summaries; nan where a spread or a count is missing."""
    if min(n, other_n) < 2 or not (math.isfinite(std) and math.isfinite(other_std)) or std + other_std == 0:
        return math.nan
    from scipy.stats import ttest_ind_from_stats

    return float(ttest_ind_from_stats(mean, std, n, other_mean, other_std, other_n, equal_var=False).pvalue)


def one_more(value: float, mean: float, std: float, n: int) -> float:
    """The two-sided p of a single value against `n` others of this mean and standard deviation: the t test of two
    samples, of which one is the value alone and takes the others' spread for its own; nan where there is no spread."""
    if n < 2 or not math.isfinite(std) or std == 0:
        return math.nan
    from scipy.stats import ttest_ind_from_stats

    return float(ttest_ind_from_stats(value, 0.0, 1, mean, std, n, equal_var=True).pvalue)
