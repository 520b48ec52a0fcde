"""How good a search's winner is, and how honest what it says of it.

    regret        truth of the best configuration - truth of the winner, both on held-out seeds (test metric)
    searching     the part of it that lies in never having tried a better one: best - best tried
    choosing      the rest, which lies in the choice among those tried
    curse         the searcher's estimate - the mean over held-out seeds of what it estimates (validation metric)
    covered       whether the stated interval holds that mean
    width         how wide that interval is
    claim         whether the search says that its winner is better than the paper's values

A search that cannot name a winner yet has the regret of a blind choice. All in units of the metric.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.replay.searcher import LEVEL
from benchmarks.replay.simulator import Snapshot
from benchmarks.replay.table import Episode

#: How often an interval of 90 % is to hold what it is about.
HELD = (0.85, 0.95)


@dataclass(frozen=True)
class Judged:
    """One snapshot of one repetition. NaN or None: there was nothing to measure."""

    budget: int
    regret: float
    searching: float
    curse: float
    covered: bool | None
    seconds: float
    width: float = math.nan
    claim: bool | None = None


def judge(episode: Episode, snapshot: Snapshot) -> Judged:
    """What a snapshot's verdict is worth."""
    verdict = snapshot.verdict
    tried = episode.blind if snapshot.best_tried is None else snapshot.best_tried
    searching = episode.best - tried
    if verdict is None:
        return Judged(snapshot.budget, episode.best - episode.blind, searching, math.nan, None, snapshot.seconds)
    expected = episode.expected(verdict.values)
    covered, width = None, math.nan
    if verdict.low is not None and verdict.high is not None:
        covered, width = verdict.low <= expected <= verdict.high, verdict.high - verdict.low
    regret = episode.best - float(episode.truth_curve(verdict.values)[-1])
    curse = verdict.estimate - expected
    return Judged(snapshot.budget, regret, searching, curse, covered, snapshot.seconds, width, verdict.claim)


@dataclass(frozen=True)
class Interval:
    """A statistic over repetitions, and an interval that holds it with a probability of `LEVEL` over repetitions."""

    value: float
    low: float
    high: float
    n: int


def over(values: Sequence[float], statistic: Callable[..., np.ndarray], draws: int = 1000) -> Interval:
    """The statistic of the finite values with its percentile bootstrap interval. Deterministic."""
    finite = np.array([v for v in values if math.isfinite(v)])
    if finite.size == 0:
        return Interval(math.nan, math.nan, math.nan, 0)
    again = finite[np.random.default_rng(0).integers(0, finite.size, (draws, finite.size))]
    low, high = np.quantile(statistic(again, axis=1), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(statistic(finite)), float(low), float(high), finite.size)


def rms(values: np.ndarray, axis: int | None = None) -> np.ndarray:
    """The root of the mean square."""
    return np.asarray(np.sqrt(np.mean(np.square(values), axis=axis)))


def holding(errors: Sequence[float], shares: Sequence[float]) -> list[float] | None:
    """By share, how wide an interval around the estimate must be, the same in every repetition, to hold the truth in
    that share of them. None where no error is finite."""
    finite = [abs(error) for error in errors if math.isfinite(error)]
    return [round(2 * float(np.quantile(finite, of, method="inverted_cdf")), 6) for of in shares] if finite else None


def share(truths: Sequence[bool | None]) -> Interval:
    """How many of those that are not None hold, with the interval of Clopper and Pearson."""
    from scipy.stats import binomtest

    known = [bool(t) for t in truths if t is not None]
    if not known:
        return Interval(math.nan, math.nan, math.nan, 0)
    found = binomtest(sum(known), len(known))
    bounds = found.proportion_ci(LEVEL)
    return Interval(sum(known) / len(known), float(bounds.low), float(bounds.high), len(known))
