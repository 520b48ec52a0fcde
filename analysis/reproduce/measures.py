"""What a sentence reads of a cell beside its value in the round that the paper reports: how fast and how smoothly a
curve runs, and how uneven a partition is.

A curve is the metric of one seed by round. Papers say "learns faster", "fluctuates less", "is more uneven" and give no
number for it; what is computed here for these words is ours, and stands on the page beside every verdict.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

#: Pairs of a round and a value, by round.
Curve = Sequence[tuple[int, float]]
#: Of a claim that says `reaches`.
REACHES = "reaches"
#: Of a claim about a partition.
UNEVENNESS = "unevenness"


@dataclass(frozen=True)
class Measure:
    """One number of a cell and seed."""

    #: What stands after the metric's title.
    title: str
    #: How it is computed, in one sentence.
    how: str
    #: Whether less of it is better; None: as the metric itself says.
    lower: bool | None = None
    #: Whether it has the metric's unit; else it is a count or a share.
    in_units: bool = True
    #: Of a curve; None where something else is read.
    of: Callable[[Curve], float] | None = None


def overall(curve: Curve) -> float:
    """The mean over all rounds: the area under the curve by its length."""
    return float(np.mean([value for _, value in curve])) if curve else math.nan


def early(curve: Curve) -> float:
    """The mean over the first third of the rounds, at least one."""
    return overall(curve[: max(1, round(len(curve) / 3))])


def fluctuation(curve: Curve) -> float:
    """The mean absolute change from one round to the next in the second half of the rounds, where the rise at the
    beginning is over; nan where that has fewer than two rounds."""
    late = [value for _, value in curve[len(curve) // 2 :]]
    return float(np.abs(np.diff(late)).mean()) if len(late) > 1 else math.nan


def first_round(curve: Curve, target: float, *, falling: bool) -> float:
    """The first round at the target or better; one more than the last round where there is none."""
    if not curve or math.isnan(target):
        return math.nan
    reached = (round_ for round_, value in curve if (value <= target if falling else value >= target))
    return float(next(reached, curve[-1][0] + 1))


def unevenness(counts: np.ndarray) -> float:
    """The mean over clients of the total variation distance between a client's shares of classes and those of all
    data: 0 where all are alike, near 1 where every client holds one class of many. `counts` is (clients, classes)."""
    held = counts[counts.sum(axis=1) > 0].astype(float)
    shares = held / held.sum(axis=1, keepdims=True)
    return float(0.5 * np.abs(shares - held.sum(axis=0) / held.sum()).sum(axis=1).mean())


MEASURES = {
    "mean": Measure("mean over all rounds", "How fast a method learns is its mean over all rounds.", of=overall),
    "early": Measure(
        "mean over the first third of the rounds",
        "How good it is in the early stages is its mean over the first third of the rounds.",
        of=early,
    ),
    "fluctuation": Measure(
        "change from round to round",
        "How much a curve fluctuates is the mean absolute change from one round to the next in the second half of the "
        "rounds.",
        lower=True,
        of=fluctuation,
    ),
    REACHES: Measure(
        "rounds to the reference's last value",
        "Rounds are counted, under each seed, until a row first reaches what the row of reference has in its last "
        "round; a row that never does counts with one round more than there are.",
        lower=True,
        in_units=False,
    ),
    UNEVENNESS: Measure(
        "unevenness of the partition",
        "How uneven a partition is is the mean over clients of the total variation distance between a client’s shares "
        "of classes and those of all data: 0 where all clients are alike, near 1 where each holds one class.",
        in_units=False,
        lower=False,
    ),
}
#: Those that a claim names with `read`.
READS = tuple(name for name in MEASURES if name != REACHES)
