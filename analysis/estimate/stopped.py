"""What federations that were stopped early would have ended with: a guess, and how unsure it is.

One that was stopped after round r with the value v counts as if it had ended with

    y = v + g_r + δ_r + ε,    δ_r ~ N(0, s_r² (1 + 1/k)),   ε ~ N(0, s_r²)

where g_r and s_r² are mean and variance of what the k trials that ran to their end gained from round r on.

δ_r is common to all that were stopped after round r. For the k trials are no random ones: they went on because their
values were high at round r, by luck too, so the others would have gained more on average, or less where slow learners
stay behind. Without δ_r many stopped trials together are sure of their level, and where that is too low they pull
down all that is believed of the winner; with it they say how they differ among themselves. That the group's gain may
differ from g_r by as much as one trial's does is a choice (`docs/search-quality.md` measures what comes of it).
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
    0 for what was measured."""
    value = np.array([m.value for m in found])
    covariance = np.zeros((len(found), len(found)))
    whole = list({m.trial.number: m.trial for m in found if m.complete}.values())
    vague = max(float(np.var([m.value for m in found if m.complete])), float(np.var(value)))
    last = np.array([0 if m.complete else max(m.trial.intermediate_values) for m in found])
    for round_ in sorted({*last} - {0}):
        stopped = np.flatnonzero(last == round_)
        gains = _gains(whole, int(round_), sign)
        one, common = vague, vague
        if len(gains) >= 2:
            value[stopped] += gains.mean()
            one = float(gains.var(ddof=1))
            common = one * (1 + 1 / len(gains))
        covariance[np.ix_(stopped, stopped)] = common
        covariance[stopped, stopped] += one
    return value, covariance


def _gains(whole: Sequence[FrozenTrial], round_: int, sign: float) -> Floats:
    """What trials that ran to their end gained after a round; those that had not reached their target by then are left
    out."""
    return np.array(
        [
            sign * (trial.values[0] - trial.intermediate_values[round_])
            for trial in whole
            if trial.values and not is_unreached(trial.intermediate_values.get(round_, UNREACHED))
        ]
    )
