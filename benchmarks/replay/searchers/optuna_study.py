"""Optuna as its users run it: a study with its own sampler and pruner, one seed, the highest complete trial wins.

Settings are Optuna's defaults, but for the pruners' range, which is that of the federation's rounds; halving by three
as its documentation has it for Hyperband."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from benchmarks.replay.searcher import Floats, Setting, Verdict
from benchmarks.replay.trials import Trials, mean
from search_spaces.parameter import Value

if TYPE_CHECKING:
    import optuna

TPE, GP = "tpe", "gp"
PRUNERS = ("median", "halving", "hyperband")


class Asked(Trials):
    """A study in memory with one seed, asked for trials."""

    def __init__(self, setting: Setting, study: optuna.Study) -> None:
        super().__init__(setting.rounds, (0,), setting.slots)
        self.space, self.study = setting.space, study
        self._asked: dict[int, Any] = {}

    def propose(self) -> tuple[int, Mapping[str, Value]] | None:
        trial = self.study.ask()
        self._asked[trial.number] = trial
        return trial.number, self.space.suggest(trial)


class OptunaStudy(Asked):
    """A study with one direction, asked and told."""

    def __init__(self, setting: Setting, *, sampler: str, pruner: str) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        samplers = {TPE: optuna.samplers.TPESampler, GP: optuna.samplers.GPSampler}
        study = optuna.create_study(
            study_name=f"replay {setting.seed}",  # by which the Hyperband pruner deals trials to its brackets
            direction="maximize",
            sampler=samplers[sampler](seed=setting.seed),
            pruner=_pruner(pruner, setting.rounds),
        )
        super().__init__(setting, study)

    def after_round(self, number: int, round_: int, curves: Floats) -> bool:
        import optuna

        trial, value = self._asked[number], mean(curves)
        if value != value:  # diverged
            self.study.tell(trial, state=optuna.trial.TrialState.FAIL)
            return False
        trial.report(value, round_)
        if round_ >= self.rounds:
            self.study.tell(trial, value)
            return False
        if trial.should_prune():
            self.study.tell(trial, state=optuna.trial.TrialState.PRUNED)
            return False
        return True

    def winner(self) -> Verdict | None:
        done = [trial for trial in self.study.get_trials(deepcopy=False) if trial.state.name == "COMPLETE"]
        if not done:
            return None
        best = max(done, key=lambda trial: trial.values[0])
        return Verdict(self.space.values(best.params), float(best.values[0]))


def _pruner(name: str, rounds: int) -> Any:
    import optuna

    if name == "median":
        return optuna.pruners.MedianPruner()
    if name == "halving":
        return optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=3)
    return optuna.pruners.HyperbandPruner(min_resource=1, max_resource=rounds, reduction_factor=3)
