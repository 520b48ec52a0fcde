"""Searches that learn nothing: configurations at random or from the grid, each to its end over k seeds, highest mean
wins. The interval is that of Student's t over the winner's k seeds, as users compute it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping

import numpy as np

from analysis.stats import summarise
from benchmarks.replay.searcher import LEVEL, Floats, Impossible, Job, Result, Setting, Verdict
from fedtune.decisions.optuna_samplers import make_sampler
from fedtune.record.journal import quiet_optuna
from search_spaces.parameter import Value
from search_spaces.space import Space

#: A grid has at most so many cells, with at most so many values of a parameter that has no grid of its own.
CELLS, VALUES = 125, 5


class Fixed:
    """Whole trials of the configurations that `_proposals` gives, in that order."""

    def __init__(self, setting: Setting, *, each: int) -> None:
        setting.check_seeds(each)
        self.setting, self.each = setting, each
        self._rest = enumerate(self._proposals())
        self._ended: list[tuple[Mapping[str, Value], Floats]] = []

    def _proposals(self) -> Iterator[Mapping[str, Value]]:
        raise NotImplementedError

    def ask(self) -> Job | None:
        following = next(self._rest, None)
        if following is None:
            return None
        return Job(*following, tuple(range(self.each)), self.setting.rounds)

    def tell(self, result: Result) -> None:
        last = result.curves[:, -1]
        if np.isfinite(last).all():
            self._ended.append((result.job.values, last))

    def winner(self) -> Verdict | None:
        if not self._ended:
            return None
        values, last = max(self._ended, key=lambda trial: float(trial[1].mean()))
        found = summarise(last.tolist(), LEVEL)
        if self.each == 1:
            return Verdict(values, found.mean)
        # Over fresh seeds the mean differs from the true one as well: 1/k + 1/h in place of 1/k.
        wider = math.sqrt(1 + (self.each / self.setting.fresh if self.setting.fresh else 0.0))
        reach = wider * (found.high - found.mean)
        return Verdict(values, found.mean, found.mean - reach, found.mean + reach)


class Random(Fixed):
    """Configurations drawn independently: those with which searches of the same seed begin."""

    def _proposals(self) -> Iterator[Mapping[str, Value]]:
        return (at_random(self.setting.space, self.setting.seed, number) for number in itertools.count())


class Grid(Fixed):
    """The space's grid, in an order of chance, so that a part of it is a fair part. A parameter without a grid of its
    own has as many values, evenly spaced, as the limit on the cells allows."""

    def _proposals(self) -> Iterator[Mapping[str, Value]]:
        space = self.setting.space
        values = next((n for n in range(VALUES, 1, -1) if space.cells(n) <= CELLS), None)
        if values is None:
            raise Impossible(f"a grid of two values per parameter has {space.cells(2)} cells, more than {CELLS}")
        cells = space.grid_points(values)
        return iter([cells[i] for i in np.random.default_rng([self.setting.seed, 6]).permutation(len(cells))])


def at_random(space: Space, seed: int, number: int) -> dict[str, Value]:
    """By key, what `--sampler random` proposes for trial `number`."""
    import optuna

    with quiet_optuna():
        return space.suggest(optuna.create_study(sampler=make_sampler("random", seed, number)).ask())
