"""Whether our runs agree with a number that a paper printed as mean ± standard deviation over its seeds.

With the paper's m ± s of n seeds, and ours m' ± s' of n', in the paper's unit (accuracies in per cent):

    one seed       t = (m' - m) / (s √(1 + 1/n)), n - 1 degrees of freedom                          (1)
    several seeds  t = (m' - m) / √(s²/n + s'²/n'), Welch's degrees of freedom                      (2)

(1) asks whether our value lies where one more run of the paper would: the paper's spread is what a single run is
expected to have. (2) is Welch's t test of both means. Both are two-sided, at `LEVEL`.

    disagrees       the test is significant
    agrees          of several seeds (2) is not significant, and neither is (1) of our mean; one seed lies where a run
                    of the paper would, and within `LARGE` points of its mean
    cannot be told  the rest: one seed that lies where a run of the paper would only because these spread so much, or
                    seeds of ours that spread so much that (2) sees nothing although (1) does of our mean

A test at 0.05 also calls one of twenty numbers different that are not.

Source of (1): Crawford and Howell, Comparing an individual's test score against norms derived from small samples, 1998.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from analysis.stats import Summary, one_more, welch

AGREES, DISAGREES, UNKNOWN = "agrees", "disagrees", "cannot be told"
#: Two-sided level at which a difference counts.
LEVEL = 0.05
#: A disagreement of more than so many points (of a per cent), or spreads, is to be explained.
LARGE = 3.0


@dataclass(frozen=True)
class Judged:
    """Our number beside a published one."""

    #: One of the three words above.
    verdict: str
    #: By which test, or why none.
    reason: str
    #: Ours minus the paper's, in the paper's unit; nan where one is missing, here and below.
    difference: float = math.nan
    #: The same without its sign, as a multiple of each side's standard deviation.
    paper_spreads: float = math.nan
    our_spreads: float = math.nan
    p: float = math.nan
    #: Of a disagreement: whether it is of more than `LARGE` points, or of `LARGE` times the larger spread.
    large: bool = False


def judge(ours: Summary, mean: float, std: float, seeds: int, *, points: bool) -> Judged:
    """`ours`, of at least one seed, beside the paper's `mean` ± `std` over `seeds`, all in one unit; `points`: which is
    the per cent, so that `LARGE` points count beside spreads."""
    apart = abs(ours.mean - mean)
    times = [apart / spread if spread > 0 else math.nan for spread in (std, ours.std)]
    untold = Judged(UNKNOWN, "the paper prints no spread", ours.mean - mean, times[0], times[1])
    if seeds < 2 or not math.isfinite(std):
        return untold
    single = one_more(ours.mean, mean, std, seeds)
    p = single if ours.n == 1 else welch(ours.mean, ours.std, ours.n, mean, std, seeds)
    if math.isnan(p):  # no side has a spread
        p = float(apart == 0)
    test = f"{'t test of one run' if ours.n == 1 else 'Welch’s t test'}, {_shown(p)}"
    if p < LEVEL:
        widest = std if ours.n == 1 else max(std, ours.std)
        large = apart > LARGE * widest or (points and apart > LARGE)
        return replace(untold, verdict=DISAGREES, reason=test, p=p, large=large)
    if ours.n == 1 and points and apart > LARGE:
        return replace(untold, reason=f"one seed, and the paper’s spread too much to tell ({test})", p=p)
    if single < LEVEL:
        return replace(untold, reason=f"our seeds spread too much to tell the means apart ({test})", p=p)
    return replace(untold, verdict=AGREES, reason=test, p=p)


def _shown(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}"
