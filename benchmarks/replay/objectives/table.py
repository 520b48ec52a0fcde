"""Recorded configurations by several metrics: the table's own, and those of its `also` that are validation metrics.

A proposal becomes the nearest recorded configuration. The truth of a configuration is the mean of every metric's twin
on test data over the held-out seeds, after the last round. A set of configurations is worth the volume of what their
truths dominate, over that of all recorded configurations: 1 is the true front. It is measured from the worst recorded
truth of every objective.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

import numpy as np

from analysis.curve_table import CurveTable
from analysis.runs import pareto
from benchmarks.replay.searcher import Floats
from benchmarks.replay.table import Recorded
from search_spaces.errors import UserError
from search_spaces.metrics import METRICS, twin
from search_spaces.parameter import Value

#: What the names of validation metrics begin with.
VALIDATION = "val_"


def metrics(table: CurveTable) -> tuple[str, ...]:
    """The objectives of a table: one where it has no other validation metric than its own. Raises `UserError` where the
    twin of one was not recorded."""
    others = tuple(name for name in table.also if name.startswith(VALIDATION))
    lacking = [name for name in others if twin(name) not in table.also]
    if lacking:
        raise UserError(
            f"The table {table.card['name']} has {lacking[0]} without {twin(lacking[0])}, by which it would be judged. "
            "Record both."
        )
    return (str(table.card["metric"]["validation"]), *others)


def by(table: CurveTable, metric: str) -> CurveTable:
    """The table as if it had been recorded for searches by this one of its objectives."""
    card = dict(table.card) | {"direction": METRICS[metric].direction}
    if metric not in table.also:
        return dataclasses.replace(table, card=card)
    return dataclasses.replace(table, card=card, validation=table.also[metric], test=table.also[twin(metric)])


class Objectives:
    """A table with several objectives, for replays."""

    def __init__(self, table: CurveTable) -> None:
        self.name, self.space, self.rounds = str(table.card["name"]), table.space, table.rounds
        self.metrics = metrics(table)
        self.configurations = table.configurations
        self.single = [Recorded(by(table, metric)) for metric in self.metrics]

    def episode(self, repetition: int) -> ObjectivesEpisode:
        return ObjectivesEpisode(self, repetition)

    def describe(self) -> str:
        return f"By {', '.join(f'`{metric}`' for metric in self.metrics)}. {self.single[0].describe()}"


class ObjectivesEpisode:
    """One repetition. The seeds are dealt alike for every objective, and as for a search by the first one alone."""

    def __init__(self, world: Objectives, repetition: int) -> None:
        self._world = world
        self._single = [recorded.episode(repetition) for recorded in world.single]
        self.seeds = self._single[0].seeds
        truth = np.array([self.truth_curve(values)[-1] for values in world.configurations])
        #: Every configuration's truth, scaled so that the worst of each objective is 0 and the best 1.
        self.box = pareto.scaled(truth, truth)
        self._known: dict[frozenset[int], float] = {}
        self._whole = pareto.dominated(self.box[pareto.front(self.box)])[-1]
        #: What one configuration that is chosen by chance is worth, in the mean.
        self.blind = float(self.box.prod(axis=1).mean()) / self._whole

    def curve(self, values: Mapping[str, Value], seed: int) -> Floats:
        """(rounds, objectives), each turned so that larger is better."""
        return np.stack([episode.curve(values, seed) for episode in self._single], axis=-1)

    def seconds(self, values: Mapping[str, Value], seed: int) -> float:
        return self._single[0].seconds(values, seed)

    def truth_curve(self, values: Mapping[str, Value]) -> Floats:
        """(rounds, objectives), the means over the held-out seeds."""
        return np.stack([episode.truth_curve(values) for episode in self._single], axis=-1)

    def volume(self, configurations: Iterable[Mapping[str, Value]]) -> float:
        """What a set of configurations is worth."""
        places = frozenset(self._world.single[0].place(values) for values in configurations)
        if places not in self._known:
            rows = self.box[sorted(places)]
            self._known[places] = pareto.dominated(rows[pareto.front(rows)])[-1] / self._whole if places else 0.0
        return self._known[places]
