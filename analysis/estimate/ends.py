"""What federations ended with, or would have: the values that the model behind an estimate is given.

**One that ran to its end.** Its last value y is one round's. The rounds of the second half of its curve, of mean t, say
more: the gain d = y - t has a part γ of the federation's own (it still learns, or has stopped learning) and the last
round's noise ω. Over the k federations that ran to their end d has mean g and variance s² = s_γ² + s_ω², and s_ω² is
known from how far the rounds lie from a line through them, so d is shrunk by the part of s² that is no noise:

    v = t + g + w (d - g) + a + b,    w = s_γ² / s² = 1 - s_ω² / s²,  at least 0
    s_ω² = τ² (1 - 1/h),   τ² = Σ squared residuals / Σ (h - 2)   over curves of h rounds
    a ~ N(0, (1 - w)² s² / k),  one for all: what g is wrong by
    b ~ N(0, w (1 - w) s²),  one for a configuration: what is wrong of its γ after d was seen

w = 1 where only the last value can be believed: the gains differ by far more than rounds do; w = 0 where they differ
as rounds do, and v is the mean of the tail plus the mean gain. So v is an estimate of the value after the last round,
as y is. What noise a last value has beyond v's is s_ω² (1 - w²), `last_round`, and one whose curve is not known keeps
it. With fewer than `LEAST` curves, or of so few rounds, v = y.

**One that was stopped** after round r with the value v counts as if it had ended with

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

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from analysis.estimate.posterior import Floats
from search_spaces.metrics import UNREACHED, is_unreached

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

#: Two gains may be nearly equal by chance, which would make a guess as good as a measurement; two rounds always lie on
#: a line.
LEAST = 3


@dataclass(frozen=True)
class Measured:
    """One federation: its configuration, its seed, the value of its last round (signed, so that larger is better), and
    the trial it belongs to. Of a trial over several seeds that was stopped early, all of them, and their mean.
    `curve`: its values by round, signed as well, as far as they are known."""

    configuration: tuple[object, ...]
    seeds: tuple[int, ...]
    value: float
    trial: FrozenTrial
    complete: bool
    curve: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Ends:
    """`value` (n,): what stands for every federation's last value; `covariance` (n, n) of what is wrong of them beyond
    the noise of a seed; `last_round`: the variance of a last value beyond that noise."""

    value: Floats
    covariance: Floats
    last_round: float = 0.0


@dataclass(frozen=True)
class Tails:
    """`rounds`: by place those after the half of a curve, of those that ran to their end and have at least `LEAST`."""

    rounds: Mapping[int, Floats]

    @cached_property
    def noise(self) -> float:
        """τ², the variance of rounds about a line through each of these tails."""
        tails = self.rounds.values()
        return sum(map(_about_a_line, tails)) / sum(len(tail) - 2 for tail in tails)


def ends_of(found: Sequence[Measured], sign: float, tails: Tails) -> Ends:
    """Those that ran to their end by their curves' second half (`tails_of`), those of stopped ones guessed as if the
    gains had been those of other trials."""
    whole, guessed = _whole(found, tails), _guessed(found, sign)
    complete = np.array([m.complete for m in found])
    return Ends(np.where(complete, whole.value, guessed.value), whole.covariance + guessed.covariance, whole.last_round)


def _whole(found: Sequence[Measured], tails: Tails) -> Ends:
    """Of those that ran to their end; the last value and 0 of all others."""
    n, value = len(found), np.array([m.value for m in found])
    if len(tails.rounds) < LEAST:
        return Ends(value, np.zeros((n, n)))
    known = np.array(list(tails.rounds))
    gain = value[known] - [tail.mean() for tail in tails.rounds.values()]
    total = float(gain.var(ddof=1))
    about = float(np.mean([1 - 1 / len(tail) for tail in tails.rounds.values()]))
    noise = min(tails.noise * about, total)
    if noise == 0:
        return Ends(value, np.zeros((n, n)))
    weight = 1 - noise / total
    value[known] -= (1 - weight) * (gain - gain.mean())
    last_round = noise * (1 - weight**2)
    covariance = np.zeros((n, n))
    covariance[np.ix_(known, known)] = (1 - weight) ** 2 * total / len(known)
    alike: dict[object, list[int]] = {}
    for place in tails.rounds:
        alike.setdefault(found[place].configuration, []).append(place)
    for places in alike.values():
        covariance[np.ix_(places, places)] += weight * (1 - weight) * total
    for place, m in enumerate(found):
        if m.complete and place not in tails.rounds:
            covariance[place, place] = last_round
    return Ends(value, covariance, last_round)


def tails_of(found: Sequence[Measured]) -> Tails:
    whole = [(place, m) for place, m in enumerate(found) if m.complete]
    tails = {place: known_rounds(m, after=max(m.curve, default=0) / 2) for place, m in whole}
    return Tails({place: np.array(tail) for place, tail in tails.items() if len(tail) >= LEAST})


def known_rounds(m: Measured, after: float = 0) -> list[float]:
    """A curve's values in their order, as far as they were measured and the target was reached."""
    rounds = [m.curve[round_] for round_ in sorted(m.curve) if round_ > after]
    return [value for value in rounds if math.isfinite(value) and not is_unreached(value)]


def _about_a_line(tail: Floats) -> float:
    """The sum of squared distances from the line through it, by least squares."""
    place = np.arange(len(tail)) - (len(tail) - 1) / 2
    apart = tail - tail.mean()
    return float(((apart - place * (place @ apart) / (place @ place)) ** 2).sum())


def _guessed(found: Sequence[Measured], sign: float) -> Ends:
    """Of those that were stopped; the last value and 0 of all others."""
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
        return Ends(value, np.diag(alone))
    place = np.searchsorted(rounds, last)  # any, for what ran to its end and has no δ
    covariance: Floats = np.outer(together, together) * _alike(gains)[np.ix_(place, place)] + np.diag(alone**2)
    return Ends(value, covariance)


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
