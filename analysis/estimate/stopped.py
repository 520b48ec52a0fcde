"""What federations that were stopped early would have ended with: a guess, and how unsure it is.

One that was stopped after round r with the value v counts as if it had ended with

    y = v + g_r + δ_r + ε,    δ_r ~ N(0, s_r² (1 + 1/k)),   ε ~ N(0, s_r²)

where g_r and s_r² are mean and variance of what the k trials that ran to their end gained from round r on. With fewer
than `LEAST` of these the variance of all last values stands for both variances.

δ_r is common to all that were stopped after round r. The k trials are not a random sample: they went on because their
values were high at round r, partly by luck, so the others may gain more on average, or less where slow learners stay
behind. Without δ_r many stopped trials together are sure of their level, and where that is too low they pull down all
that is believed of the winner; with it they say how they differ among themselves. Most of what is gained from round r
on is gained from round q on, too, so δ_r and δ_q are correlated as the gains of the k trials are. That a group's gain
may differ from g_r by as much as one trial's does is a choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from analysis.estimate.posterior import Floats
from search_spaces.metrics import UNREACHED, is_unreached

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

#: Two gains may be nearly equal by chance, which would make a guess as good as a measurement.
LEAST = 3


@dataclass(frozen=True)
class Measured:
    """One federation: its configuration, its seed, the value of its last round (signed, so that larger is better), and
    the trial it belongs to. Of a trial over several seeds that was stopped early, all of them, and their mean."""

    configuration: tuple[tuple[str, object], ...]
    seeds: tuple[int, ...]
    value: float
    trial: FrozenTrial
    complete: bool


def ends_of(found: Sequence[Measured], sign: float) -> tuple[Floats, Floats]:
    """The last values of all federations (n,), those of stopped ones guessed, and the covariance (n, n) of the guesses:
    0 for what was measured, as if the gains had been those of other trials."""
    value = np.array([m.value for m in found])
    last = np.array([0 if m.complete else max(m.trial.intermediate_values) for m in found])
    rounds = sorted({*last.tolist()} - {0})
    gains = _gains([m.trial for m in found if m.complete], rounds, sign)
    vague = max(float(np.var(value[last == 0])), float(np.var(value)))
    alone, together = np.zeros(len(found)), np.zeros(len(found))  # standard deviations of ε and δ
    for round_, column in zip(rounds, gains.T, strict=True):
        known, here = column[~np.isnan(column)], last == round_
        value[here] += known.mean() if known.size else 0.0
        enough = known.size >= LEAST
        alone[here] = known.std(ddof=1) if enough else vague**0.5
        together[here] = alone[here] * (1 + 1 / known.size) ** 0.5 if enough else vague**0.5
    if not rounds:
        return value, np.diag(alone)
    place = np.searchsorted(rounds, last)  # any, for what ran to its end and has no δ
    covariance: Floats = np.outer(together, together) * _alike(gains)[np.ix_(place, place)] + np.diag(alone**2)
    return value, covariance


def _gains(whole: Sequence[FrozenTrial], rounds: Sequence[int], sign: float) -> Floats:
    """(k, rounds): what every trial that ran to its end gained after these rounds; NaN where it had not reached its
    target by then, or was not measured."""

    def gain(trial: FrozenTrial, round_: int) -> float:
        before = trial.intermediate_values.get(round_, UNREACHED)
        return np.nan if not trial.values or is_unreached(before) else sign * (trial.values[0] - before)

    trials = {trial.number: trial for trial in whole}.values()
    return np.array([[gain(trial, round_) for round_ in rounds] for trial in trials]).reshape(len(trials), len(rounds))


def _alike(gains: Floats) -> Floats:
    """(rounds, rounds): correlations of gains, of the trials that have all of them; 1 where these are too few."""
    complete = gains[~np.isnan(gains).any(axis=1)]
    if len(complete) < LEAST:
        return np.ones((gains.shape[1], gains.shape[1]))
    apart = complete - complete.mean(axis=0)
    scale = np.sqrt((apart**2).sum(axis=0))
    unit = apart / np.where(scale > 0, scale, 1.0)
    found: Floats = unit.T @ unit
    return found
