"""Which part of a spread over seeds is the partition's, and which that of initialisation and order.

With `partition_seed` a run keeps one partition and varies the rest; by default each seed has a partition of its own. A
value y of partition p and seed s is taken as y = μ + P_p + S_s + E_ps, all three normal: what the partition does to it,
what the first weights and the order of clients and batches do, which are the seed's, and what both do together. The
spread within a partition is that of S + E, over partitions and seeds that of P + S + E.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.labels import Labels, decimals
from analysis.runs import Run

#: The parameter; below zero a partition follows the seed.
KEY = "partition_seed"
#: Values of each share in (0, 1) that are weighed against each other.
STEPS = 40
#: How likely a share lies in the interval that is told of it.
LEVEL = 0.9


@dataclass(frozen=True)
class PartitionShare:
    """What of the variance of a metric is the partition's, over so many `partitions` and `seeds`."""

    partitions: int
    seeds: int
    #: Standard deviations: over seeds within a partition, and over partitions and seeds.
    within: float
    whole: float
    #: The partition's share of the whole variance, between 0 and 1: the median, and its interval (`LEVEL`).
    share: float
    low: float
    high: float


def partition_of(config: Mapping[str, Any], seed: int) -> int:
    """The seed by which the samples of one seed were dealt."""
    fixed = config.get(KEY, -1)
    return seed if not isinstance(fixed, int) or fixed < 0 else fixed


def partition_share(values: Mapping[tuple[int, int], float]) -> PartitionShare | None:
    """The share of the variance that is the partition's, from values by (partition, seed). None where they cannot tell:
    where no two have the same partition, no two differ in partition and seed, or all are equal.

    Standard deviations are the roots of half the mean squared differences of pairs with the same partition, and of
    pairs that share neither. The share is weighed by the restricted likelihood of the model above (mean and scale
    integrated out under the flat and the 1/σ² prior), all shares of P in the variance and of S in the rest being
    equally likely before."""
    places = [place for place, value in values.items() if math.isfinite(value)]
    pairs = list(itertools.combinations(places, 2))
    inside = [values[a] - values[b] for a, b in pairs if a[0] == b[0]]
    apart = [values[a] - values[b] for a, b in pairs if a[0] != b[0] and a[1] != b[1]]
    if not inside or not apart or len({values[place] for place in places}) == 1:
        return None
    shares, weights = _weighed(places, np.array([values[place] for place in places]))
    low, median, high = np.interp(
        [(1 - LEVEL) / 2, 0.5, (1 + LEVEL) / 2], np.concatenate([[0.0], np.cumsum(weights)]), shares
    )
    within, whole = (math.sqrt(sum(d * d for d in each) / 2 / len(each)) for each in (inside, apart))
    partitions, seeds = (len(set(column)) for column in zip(*places, strict=True))
    return PartitionShare(partitions, seeds, within, whole, float(median), float(low), float(high))


def _weighed(places: Sequence[tuple[int, int]], y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The edges of the cells of the partition's share, and the weight of each cell; the weights add up to 1."""
    partition, seed = np.array(places).T
    same_partition = (partition[:, None] == partition).astype(float)
    same_seed = (seed[:, None] == seed).astype(float)
    middles = (np.arange(STEPS) + 0.5) / STEPS
    of_partition, of_seed = (axis[:, :, None, None] for axis in np.meshgrid(middles, middles, indexing="ij"))
    rest = of_seed * same_seed + (1 - of_seed) * np.eye(len(y))
    covariance = of_partition * same_partition + (1 - of_partition) * rest
    # R⁻¹ applied to the values and to ones gives the generalised least squares of the mean.
    solved = np.linalg.solve(covariance, np.stack([y - y.mean(), np.ones_like(y)], axis=1))
    information = solved[..., :, 1].sum(axis=-1)
    mean = solved[..., :, 0].sum(axis=-1) / information
    squares = np.einsum("i,...i", y - y.mean(), solved[..., :, 0]) - information * mean**2
    fit = np.linalg.slogdet(covariance)[1] + np.log(information) + (len(y) - 1) * np.log(squares)
    weights = np.exp(-0.5 * (fit - fit.min())).sum(axis=1)
    return np.linspace(0, 1, STEPS + 1), weights / weights.sum()


def sentences(found: Sequence[tuple[Run, str, Mapping[int, float]]]) -> list[str]:
    """What runs of one method and the same settings but for the partition say together; found: a run, a metric and its
    values by seed."""
    groups: dict[tuple[str, str, str], dict[tuple[int, int], float]] = {}
    for run, metric, values in found:
        config = {} if run.best is None else run.config(run.best)
        settings = repr(sorted((key, repr(value)) for key, value in config.items() if key != KEY))
        known = {(partition_of(config, seed), seed): value for seed, value in values.items()}
        groups.setdefault((run.method, metric, settings), {}).update(known)
    several = len({(method, settings) for method, _, settings in groups}) > 1
    said = []
    for (method, metric, _), of_group in groups.items():
        if (share := partition_share(of_group)) is not None:
            said.append(_told(share, metric, method if several else ""))
    return said


def _told(found: PartitionShare, metric: str, method: str) -> str:
    labels = Labels()
    within, whole = (f"{labels.scale(metric) * std:.{decimals(metric)}f}" for std in (found.within, found.whole))
    share, low, high, level = (f"{100 * part:.0f}" for part in (found.share, found.low, found.high, LEVEL))
    return (
        f"{labels.metric(metric, unit=False)}{f' of {method}' if method else ''}, {found.partitions} partitions and "
        f"{found.seeds} seeds: the standard deviation is {within} within a partition and {whole} over partitions; "
        f"{share} % of the variance is the partition's ({level} % interval {low} to {high} %), the rest that of "
        "initialisation and order."
    )


def one_partition(config: Mapping[str, Any], seeds: int) -> str | None:
    """A sentence where all seeds of a run share one partition."""
    fixed = config.get(KEY, -1)
    if not isinstance(fixed, int) or fixed < 0 or seeds < 2:
        return None
    return (
        f"All seeds share the partition of {KEY} {fixed}, so their spread is that of initialisation and order; "
        "`fedtune compare` with runs on other partitions says what the partition adds."
    )
