"""What is believed of lengths, noise and a seed's effect on all alike before a search begins.

The model of `analysis.estimate.posterior` weighs the values of a grid. Without anything else known each value of l, ρ
and u weighs the same as any other of its kind (`FLAT`), so a search has to find out by itself how noisy federations
are, and from a single seed it never learns what a seed does to all alike. Earlier searches of the same space knew more.
Each of K of them was about another quantity of the same kind, so with p_k(g) the weight that search k gives the value g
by its own federations alone, n values in the grid, and `PSEUDO` for a search that knows nothing,

    w(g) = (PSEUDO / n + Σ_k p_k(g)) / (PSEUDO + K)

which is the posterior mean of the weights under a Dirichlet distribution, where every search is one unsure observation
(Gelman et al., Bayesian Data Analysis, ch. 3 and 22). No value ever weighs nothing: a search whose federations say
something else than those before it is believed. l, ρ and u are taken as independent before anything was seen.

A metric that is a share of samples, such as an accuracy, has a scale of its own. There it is known better what a seed
does to all alike than how that compares with what it does to one configuration: a partition, an initialisation and some
hundred validation samples move all accuracies by 2 to 8 points, however much the method's configurations differ. So
the grid of such a metric has standard deviations (`ALIKE`) in the place of u.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from search_spaces.metrics import SHARES

#: Lengths, as multiples of the root of the number of parameters; u; ρ. By analysis of variance of the last values u is
#: 0.2 on `fedavg`, 1.6 on `mixed` and 5.7 on `dfrd_alpha_lambda`, the recorded tables by which defaults are chosen. The
#: largest is above these: from one seed u is a guess, and too narrow an interval misleads more than too wide a one.
#: With 8 in its place, 90 % intervals after early stopping held 73 times of 100 on these tables in place of 81.
LENGTHS = (0.0, 0.1, 0.2, 0.4, 0.8)
SHARED = (0.0, 1.0, 16.0)
NOISES = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
#: Standard deviations of what a seed does to all alike, of shares. On the recorded tables by which defaults are chosen
#: it is 0.027 (`fedavg`), 0.054 (`mnist`) and 0.080 (`mixed`) near the best configurations, 0.074 over all cells of
#: `dfrd_alpha_lambda`.
ALIKE = (0.025, 0.05, 0.1)
#: What nobody knows weighs as much as so many earlier searches. With 1 and four of these, 90 % intervals held 78 times
#: of 100 in replays on `mixed`, with 4 88 times (docs/defaults.md).
PSEUDO = 4.0
#: Digits of a weight that are kept: the file is read by people.
DIGITS = 4


@dataclass(frozen=True)
class Prior:
    """Weights by value, which sum to 1: of l, of ρ and of u, or, where `absolute`, of the standard deviation of what a
    seed does to all alike, in the metric's unit."""

    lengths: Mapping[float, float]
    noises: Mapping[float, float]
    shared: Mapping[float, float]
    absolute: bool = False


def _even(values: Sequence[float]) -> dict[float, float]:
    return dict.fromkeys(values, 1 / len(values))


#: Nothing is known, of any metric and of a share.
FLAT = Prior(_even(LENGTHS), _even(NOISES), _even(SHARED))
FLAT_OF_SHARES = Prior(FLAT.lengths, FLAT.noises, _even(ALIKE), absolute=True)


def flat(metric: str) -> Prior:
    """What is believed where nothing is known, of a metric by its name."""
    return FLAT_OF_SHARES if metric in SHARES else FLAT


def learnt(searches: Sequence[Prior], nobody: Prior = FLAT) -> Prior:
    """The weights after these earlier searches, each as its own federations have them (`Posterior.grid`). nobody: what
    is believed of their metric without them (`flat`)."""
    known = (nobody, *searches)
    lengths, noises = (_mean([getattr(one, kind) for one in known]) for kind in ("lengths", "noises"))
    return Prior(lengths, noises, _mean([one.shared for one in known]), nobody.absolute)


def _mean(weights: Sequence[Mapping[float, float]]) -> dict[float, float]:
    """Of mappings, the first with the weight `PSEUDO`. A value that one of them lacks has no weight there."""
    nobody, *searches = weights
    total = PSEUDO + len(searches)
    values = dict.fromkeys(value for one in weights for value in one)
    sums = {v: PSEUDO * nobody.get(v, 0.0) + sum(one.get(v, 0.0) for one in searches) for v in values}
    return {value: round(found / total, DIGITS) for value, found in sums.items()}
