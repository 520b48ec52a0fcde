"""`--grace auto`: the grace period (rounds before a trial may be stopped) from the search's own trials.

A rung is worth something where values there rank trials as their last values do. So the first trials all run to their
end, and the first round whose rank correlation with the last round is surely high becomes the grace. In detail:

    the trials    Different configurations that ran to their end, in the order of their numbers; of several trials of
                  one configuration the first. As long as nothing is chosen no trial is stopped, so these are all trials
                  but the failed ones, and no choice among them makes the correlation look smaller or larger than it is.
                  (Results of earlier runs count as well. Where those were stopped early, only good ones are among them,
                  whose ranks are harder to tell, and the choice is later rather than earlier.)
    the rounds    1, 2, 3, 4, 6, 8, 12, 16, …, each a third or a half later than the one before, up to two thirds of the
                  planned rounds: a rung after that saves next to nothing (`early_stopping.rungs`).
    the rule      Spearman's ρ between the values after a round and the last ones, of n trials, and its interval from
                  Fisher's z with the variance (1 + ρ²/2) / (n - 3) (Bonett and Wright 2000, Psychometrika 65). The
                  first round whose interval lies above `LEAST` is the grace.

The first `FIRST` trials decide if they can. If no round is good enough, the next trial that runs to its end is added,
and so on; once chosen, the grace stays. What trial n is told follows from the trials that it may look at
(`Experiment.seen`), as every decision here: it is the same whatever ran side by side, and after a restart it is found
again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from analysis.stopping import Correlation, Grace
from fedtune.trials.early_stopping import History, value_at
from fedtune.trials.samplers import STARTUP

#: What users type.
AUTO: Literal["auto"] = "auto"
#: So many trials run to their end in any case. Most samplers draw these at random, so that they lie all over the space;
#: later ones lie closer to each other, where ranks are mostly noise.
FIRST = STARTUP
#: The correlation that a rung must surely have. Among normally distributed values, a configuration two standard
#: deviations above the mean is in the best third at a rung with a probability of 0.74 at ρ = 0.5, of 0.91 at 0.7.
LEAST = 0.5
#: Of the two-sided interval: its lower end is above the true correlation one time in twenty.
LEVEL = 0.9
#: Decimals that are recorded, and that decide.
DIGITS = 6


class AutoGrace:
    """The choice of one search."""

    def __init__(self, rounds: int) -> None:
        """rounds: of a whole trial."""
        self._rounds = rounds
        #: By how many trials had run to their end, from `FIRST` on and no further than the choice.
        self._after: list[Grace] = []

    def after(self, finished: Sequence[History]) -> Grace | None:
        """What is known after these trials, different configurations that ran to their end, in order; None before
        there are `FIRST`. A later call may give more of them or fewer, but not other ones."""
        if len(finished) < FIRST:
            return None
        while len(self._after) <= len(finished) - FIRST and not (self._after and self._after[-1].round):
            self._after.append(chosen(finished[: FIRST + len(self._after)], self._rounds))
        return self._after[min(len(finished) - FIRST, len(self._after) - 1)]


def chosen(finished: Sequence[History], rounds: int) -> Grace:
    """The choice by exactly these trials."""
    found = tuple(correlation(finished, round_, rounds) for round_ in candidates(rounds))
    good = (c.round for c in found if c.low is not None and c.low > LEAST)
    return Grace(next(good, None), len(finished), found)


def candidates(rounds: int) -> list[int]:
    """Rounds that may become the grace: 1, 2, 3, 4, 6, 8, 12, … up to two thirds of `rounds`."""
    doubling = (2**k for k in range(rounds.bit_length()))
    found = sorted({n for power in doubling for n in (power, 3 * power)})
    return [n for n in found if 3 * n <= 2 * rounds]


def correlation(finished: Sequence[History], round_: int, rounds: int) -> Correlation:
    """Spearman's ρ between values after `round_` and the last values, with its interval; rounded."""
    from scipy.stats import spearmanr

    ends = [(value_at(h.curve, round_), value_at(h.curve, rounds)) for h in finished]
    pairs = [(early[0], last[0]) for early, last in ends if early is not None and last is not None]
    values = np.array([pair for pair in pairs if all(map(math.isfinite, pair))]).reshape(-1, 2)
    if len(values) < FIRST or np.ptp(values[:, 0]) == 0 or np.ptp(values[:, 1]) == 0:
        return Correlation(round_, None, None, None)
    rho = float(spearmanr(values[:, 0], values[:, 1]).statistic)
    low, high = interval(rho, len(values))
    return Correlation(round_, round(rho, DIGITS), round(low, DIGITS), round(high, DIGITS))


def interval(rho: float, n: int, level: float = LEVEL) -> tuple[float, float]:
    """The interval of Spearman's ρ of n ≥ 4 pairs.

    Ranks that agree in full have no finite z. They count as half way to the next value that ρ can have, which is one
    swap of neighbours away: ρ = 1 - 12 / (n (n² - 1)). The interval holds ρ itself all the same."""
    from scipy.stats import norm

    most = 1 - 6 / (n * (n * n - 1))
    finite = min(max(rho, -most), most)
    half = float(norm.ppf((1 + level) / 2)) * math.sqrt((1 + finite * finite / 2) / (n - 3))
    z = math.atanh(finite)
    return min(rho, math.tanh(z - half)), max(rho, math.tanh(z + half))
