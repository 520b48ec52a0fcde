"""Ray Tune as its users run it with Optuna: its own OptunaSearch (TPE) and its own ASHA, both with their defaults.

Driven without Ray, by the calls that its controller makes: the round that stops a trial is not shown to the search, and
a stopped trial counts as complete with its last value. The winner is the trial whose last value is the highest, stopped
or not, as `ResultGrid.get_best_result` has it."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from benchmarks.replay.searcher import Floats, Setting, Verdict
from benchmarks.replay.trials import Trials, mean
from search_spaces.parameter import Value

METRIC, TIME = "value", "round"


class RayTune(Trials):
    """One seed per trial."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting.rounds, (0,), setting.slots)
        import optuna
        from ray.tune.schedulers import ASHAScheduler
        from ray.tune.search.optuna import OptunaSearch

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.space = setting.space
        self._search = OptunaSearch(space=self._define, metric=METRIC, mode="max", seed=setting.seed)
        self._scheduler = ASHAScheduler(time_attr=TIME, metric=METRIC, mode="max", max_t=setting.rounds)
        self._trials: dict[int, Any] = {}
        self._ended: list[tuple[float, Mapping[str, Value]]] = []

    def _define(self, trial: Any) -> None:
        self.space.suggest(trial)

    def propose(self) -> tuple[int, Mapping[str, Value]] | None:
        number = len(self._trials)
        config = self._search.suggest(str(number))
        self._trials[number] = SimpleNamespace(trial_id=str(number), config=config)
        self._scheduler.on_trial_add(None, self._trials[number])
        return number, self.space.values(config)

    def after_round(self, number: int, round_: int, curves: Floats) -> bool:
        trial, value = self._trials[number], mean(curves)
        if value != value:  # diverged: a trial that raises
            self._scheduler.on_trial_error(None, trial)
            self._search.on_trial_complete(trial.trial_id, error=True)
            return False
        result = {METRIC: value, TIME: round_, "training_iteration": round_}
        if round_ < self.rounds and self._scheduler.on_trial_result(None, trial, result) == self._scheduler.CONTINUE:
            self._search.on_trial_result(trial.trial_id, result)
            return True
        self._scheduler.on_trial_complete(None, trial, result)
        self._search.on_trial_complete(trial.trial_id, result=result)
        self._ended.append((value, self.space.values(trial.config)))
        return False

    def winner(self) -> Verdict | None:
        if not self._ended:
            return None
        value, values = max(self._ended, key=lambda pair: pair[0])
        return Verdict(values, value)
