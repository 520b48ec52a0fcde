"""The searchers with several objectives. One that searches with one objective have too has the same name here."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from analysis.runs import pareto
from benchmarks.replay.searcher import Floats, Front, Setting
from benchmarks.replay.searchers import Factory, arm, plain
from benchmarks.replay.searchers.optuna_study import TPE, Asked
from benchmarks.replay.searchers.oracle import Told
from benchmarks.replay.searchers.present import Present
from search_spaces.parameter import Value

NSGA2 = "nsga2"


class Random(plain.Random):
    """Configurations drawn independently, each to its end; the front of their means."""

    def winner(self) -> Front | None:
        return front([values for values, _ in self._ended], [last.mean(axis=0) for _, last in self._ended])


class Fedtune(Present):
    """`fedtune search` with several --metric: its own queue, with halving by Pareto fronts, and the front that its
    reports show."""

    def winner(self) -> Front | None:
        trials = self.queue.trials()
        numbers = pareto.front_of_trials(trials, self.experiment.directions)
        return Front(tuple(self.queue.parts[0].space.values(trials[n].params) for n in numbers)) if numbers else None


class OptunaFront(Asked):
    """A study with several directions and its own sampler. Optuna stops no trial of such a study; the front is
    `Study.best_trials`."""

    def __init__(self, setting: Setting, *, sampler: str, **settings: Any) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        samplers = {TPE: optuna.samplers.TPESampler, NSGA2: optuna.samplers.NSGAIISampler}
        study = optuna.create_study(
            directions=["maximize"] * len(setting.metrics), sampler=samplers[sampler](seed=setting.seed, **settings)
        )
        super().__init__(setting, study)

    def after_round(self, number: int, round_: int, curves: Floats) -> bool:
        import optuna

        last = curves[0, -1]
        if not np.isfinite(last).all():
            self.study.tell(self._asked.pop(number), state=optuna.trial.TrialState.FAIL)
            return False
        if round_ < self.rounds:
            return True
        self.study.tell(self._asked.pop(number), last.tolist())
        return False

    def winner(self) -> Front | None:
        found = self.study.best_trials
        return Front(tuple(self.space.values(trial.params) for trial in found)) if found else None


def front(configurations: list[Mapping[str, Value]], values: list[Floats]) -> Front | None:
    """Those configurations that no other one beats; None where there are none."""
    return Front(tuple(configurations[row] for row in pareto.front(np.array(values)))) if values else None


SEARCHERS: dict[str, Factory] = {
    "random-1": partial(Random, each=1),
    "fedtune-1": partial(Fedtune, each=1),
    "fedtune-3": partial(Fedtune, each=3),
    "fedtune-1-nsga2": partial(Fedtune, each=1, sampler=NSGA2),
    "fedtune-1-random": partial(Fedtune, each=1, sampler="random"),
    "fedtune-1-complete": partial(Fedtune, each=1, scheduler="none"),
    "optuna-tpe": partial(OptunaFront, sampler=TPE),
    "optuna-nsga2": partial(OptunaFront, sampler=NSGA2),
    "optuna-nsga2-12": partial(OptunaFront, sampler=NSGA2, population_size=12),
    "syne-tune-moasha": arm("syne-tune", "moasha"),
    "oracle-random": lambda setting: Told(Random(setting, each=1), setting),
    "oracle-fedtune": lambda setting: Told(Fedtune(setting, each=1), setting),
}

#: Those that run in environments of their own; they take part when they are named, or with --peers.
PEERS = ("syne-tune-moasha",)
#: The one whose lead over every other is measured: the search as it stands, with its defaults.
OURS = "fedtune-1"
