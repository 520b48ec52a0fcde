"""The stop rule of every trial of a search: made from what earlier trials did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fedtune.trials.early_stopping import History, Never, Rule, rule
from fedtune.trials.outcome import curve

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

    from fedtune.record.experiment import Experiment


class StopRules:
    """The rules of one search. What is asked of it with the same trials is answered in the same way."""

    def __init__(self, experiment: Experiment) -> None:
        self._experiment = experiment

    def rule(self, known: Sequence[FrozenTrial]) -> Rule:
        """The rule of a trial that may look at the `known` ones, which have ended."""
        e = self._experiment
        if e.scheduler == "none":
            return Never()
        histories = [self.history(trial) for trial in known]
        return rule(e.scheduler, histories, rounds=e.rounds, grace=e.grace, reduction=e.reduction_factor)

    def history(self, trial: FrozenTrial) -> History:
        """What the rules read of a trial that has ended."""
        return History(int(trial.user_attrs.get("rounds", 0)), self._signed(curve(trial)))

    def _signed(self, measured: Mapping[int, Sequence[float]]) -> dict[int, tuple[float, ...]]:
        """Turned so that larger is better."""
        signs = self._experiment.signs
        return {r: tuple(s * v for s, v in zip(signs, values, strict=True)) for r, values in measured.items()}
