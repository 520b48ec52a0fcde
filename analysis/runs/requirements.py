"""Whether a configuration keeps what is required of it, and how likely its mean over all seeds does."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from analysis.estimate import configuration, standing
from analysis.estimate.prior import flat
from search_spaces.metrics import waits
from search_spaces.requirements import Requirement

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial


@dataclass(frozen=True)
class Kept:
    """One requirement of one configuration."""

    requirement: str
    #: The metric's value after the last round, the mean over its seeds; nan where it was not measured.
    value: float
    holds: bool
    #: The probability that the mean over all seeds keeps it, under the model of `analysis.estimate` for that metric;
    #: None where there are fewer than two completed trials with a value, and for a censored one.
    probability: float | None

    def sentence(self) -> str:
        """For the terminal and the report."""
        name = re.split("[<>]=", self.requirement)[0]
        how = "keeps" if self.holds else "misses"
        told = f"is {self.value:.4g}, which {how} it"
        if math.isnan(self.value):
            told = f"is none, as the target was not reached, which {how} it" if waits(name) else "was not measured"
        sure = "" if self.probability is None else f"; its mean over all seeds does so with {100 * self._sure:.0f} %"
        return f"Required {self.requirement}: {name} {told}{sure}."

    @property
    def _sure(self) -> float:
        """The probability of what the sentence says."""
        assert self.probability is not None
        return self.probability if self.holds else 1 - self.probability


def kept(
    requirement: Requirement,
    trials: Sequence[FrozenTrial],
    values: Mapping[int, float],
    best: FrozenTrial,
    own: float,
) -> Kept:
    """What is known of the requirement. values: the metric's last value by completed trial; best, own: the trial of the
    configuration in question and the mean of its values."""
    holds = requirement.missed(own) == 0
    return Kept(str(requirement), own, holds, _probability(requirement, trials, values, best))


def _probability(
    requirement: Requirement, trials: Sequence[FrozenTrial], values: Mapping[int, float], best: FrozenTrial
) -> float | None:
    if waits(requirement.metric):
        return None  # what was not reached is no number, so there is no mean
    measured = []
    for trial in trials:
        if trial.state.name == "COMPLETE" and math.isfinite(values.get(trial.number, math.nan)):
            one = copy.copy(trial)
            one.values, one.intermediate_values = [values[trial.number]], {}  # those are of the objective
            measured.append(one)
    sign = 1.0 if requirement.least else -1.0
    found = standing(measured, sign, prior=flat(requirement.metric))
    if found is None:
        return None
    key = configuration(best)
    by_number = {trial.number: configuration(trial) for trial in measured}
    place = next((i for i, number in enumerate(found.numbers) if by_number[number] == key), None)
    return None if place is None else found.belief.above(place, sign * requirement.bound)
