"""Every configuration under every condition: which trial is which, and what a sampler is shown of it.

Where a space varies conditions of the experiment, what the sampler proposes is run under each of them before the next
configuration begins: of C conditions, trial n is configuration n // C under condition n mod C. A grid needs no such
rule, as its cells hold their conditions (`search_spaces.space.Space.grid_points`), in the same order.

A sampler looks for configurations, never for conditions. So it is shown each configuration once, when it has ended
under all conditions, and by no mean of the metric, in which the condition with the largest differences would decide.
What counts is the configuration's place under each condition: the share of the others it is better than, of those that
ran as far the one with the better value, a failed one worse than all. Its value is the mean of these places over the
conditions, each counting as much as every other. With several metrics there is one such value for each, and as in
every search a configuration that was stopped is not shown.
"""

from __future__ import annotations

import copy
import statistics
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from search_spaces.parameter import Value

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

    from fedtune.record.experiment import Experiment


@dataclass(frozen=True)
class Crossed:
    """The conditions that what a sampler proposes is crossed with."""

    conditions: tuple[Mapping[str, Value], ...]
    #: Trials of one proposal: as many as conditions, or 1 for a grid.
    size: int

    @property
    def several(self) -> bool:
        """Whether there is more than one condition."""
        return len(self.conditions) > 1

    def place(self, number: int) -> int:
        """Which configuration trial `number` is."""
        return number // self.size

    def first(self, number: int) -> int:
        """The first trial of the same configuration."""
        return number - number % self.size

    def condition(self, number: int) -> dict[str, Value]:
        """What trial `number` is run under."""
        return dict(self.conditions[number % self.size])


def merged(
    known: Sequence[FrozenTrial], crossed: Crossed, experiment: Experiment, varied: Collection[str]
) -> Iterator[FrozenTrial]:
    """The configurations of which a trial under every condition is among the `known` ones, which have ended, as a
    sampler is to see them (see the module's text)."""
    from optuna.trial import create_trial

    blocks: dict[int, list[FrozenTrial]] = {}
    for trial in known:
        blocks.setdefault(crossed.first(trial.number), []).append(trial)
    whole = [block for block in blocks.values() if len(block) == crossed.size]
    several = len(experiment.metric) > 1
    places = [
        [_places([_standing(trial, sign, i) for trial in column]) for column in zip(*whole, strict=True)]
        for i, sign in enumerate(experiment.signs)
    ]
    for i, block in enumerate(whole):
        if several and any(trial.state.name == "PRUNED" for trial in block):
            continue
        first = without(block[0], varied)
        yield create_trial(
            values=[
                sign * statistics.fmean(column[i] for column in of_metric)
                for sign, of_metric in zip(experiment.signs, places, strict=True)
            ],
            params=first.params,
            distributions=first.distributions,
            system_attrs=first.system_attrs,
        )


def without(trial: FrozenTrial, keys: Collection[str]) -> FrozenTrial:
    """The trial without these parameters; itself where it has none of them."""
    if trial.params.keys().isdisjoint(keys):
        return trial
    found = copy.copy(trial)
    found.params = {key: value for key, value in trial.params.items() if key not in keys}
    found.distributions = {key: value for key, value in trial.distributions.items() if key not in keys}
    return found


def _standing(trial: FrozenTrial, sign: int, metric: int) -> tuple[float, float]:
    """What trials under one condition are ordered by: how far they ran, and their value there."""
    if trial.state.name == "COMPLETE":
        return float("inf"), sign * float(trial.values[metric])
    if trial.state.name == "PRUNED" and trial.intermediate_values:
        last = max(trial.intermediate_values)
        return float(last), sign * float(trial.intermediate_values[last])
    return float("-inf"), 0.0


def _places(standings: Sequence[tuple[float, float]]) -> list[float]:
    """Of each, the share of the others that it is better than, of equal ones half; ½ where there is no other."""
    others = len(standings) - 1
    if others < 1:
        return [0.5] * len(standings)
    return [
        (sum(other < own for other in standings) + (sum(other == own for other in standings) - 1) / 2) / others
        for own in standings
    ]
