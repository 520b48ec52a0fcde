"""The stop rule of every trial of a search: made from what earlier trials did, under the grace that is chosen from
them, and put aside for a trial that is drawn for the audit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from analysis.estimate.winner import configuration
from analysis.stopping import AUDITED, GRACE, Grace
from fedtune.trials.audit import drawn, stopped_after
from fedtune.trials.damaged import curve
from fedtune.trials.early_stopping import History, Never, Rule, rule
from fedtune.trials.grace import AUTO, AutoGrace
from search_spaces import run_folder

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

    from fedtune.record.experiment import Experiment
    from trainables.tune import Ending


class StopRules:
    """The rules of one search. What is asked of it with the same trials is answered in the same way."""

    def __init__(self, experiment: Experiment) -> None:
        self._experiment = experiment
        self._auto = AutoGrace(experiment.rounds)
        #: By number, the rules of the trials that run whatever their rule says.
        self._overruled: dict[int, Rule] = {}

    def rule(self, known: Sequence[FrozenTrial]) -> Rule:
        """The rule of a trial that may look at the `known` ones, which have ended."""
        e = self._experiment
        if e.scheduler == "none":
            return Never()
        grace = e.grace
        if grace == AUTO:
            found = self._grace(known)
            if found is None or found.round is None:
                return Never()
            grace = found.round
        histories = [self.history(trial) for trial in known]
        return rule(e.scheduler, histories, rounds=e.rounds, grace=grace, reduction=e.reduction_factor)

    def unless_drawn(self, number: int, made: Rule) -> Rule:
        """The rule that trial `number` is to follow: `made`, or none where it was drawn for the audit."""
        if not drawn(self._experiment.audit, self._experiment.seed, number):
            return made
        self._overruled[number] = made
        return Never()

    def audited(self, number: int, ending: Ending) -> dict[str, Any]:
        """What is recorded of a trial that has ended: where it would have been stopped, if it was drawn and would have
        been."""
        if number not in self._overruled or ending.stop_reason == "interrupted":
            return {}
        # A trial asks its rule after every round but the one that ends it.
        last = ending.round - (ending.stop_reason in ("completed", "diverged"))
        round_ = stopped_after(self._overruled[number], self._signed(ending.curve), last)
        return {} if round_ is None else {AUDITED: round_}

    def note(self, known: Sequence[FrozenTrial], earlier: Sequence[FrozenTrial]) -> dict[str, Any]:
        """What is recorded of the grace with a new trial that may look at the `known` ones: the choice so far, unless a
        trial of the `earlier` ones, all before it, has the final one."""
        found = self._grace(known) if self._experiment.grace == AUTO else None
        if found is None or any(trial.user_attrs.get(GRACE, {}).get("round") for trial in reversed(earlier)):
            return {}
        return {GRACE: found.to_attribute()}

    def history(self, trial: FrozenTrial) -> History:
        """What the rules read of a trial that has ended."""
        return History(int(trial.user_attrs.get("rounds", 0)), self._signed(curve(trial)))

    def _grace(self, known: Sequence[FrozenTrial]) -> Grace | None:
        """The grace by the known trials."""
        first: dict[object, FrozenTrial] = {}
        for trial in known:
            # A race's further seeds are no further configurations.
            if trial.state.name == "COMPLETE" and run_folder.OF not in trial.user_attrs:
                first.setdefault(configuration(trial), trial)
        return self._auto.after([self.history(trial) for trial in first.values()])

    def _signed(self, measured: Mapping[int, Sequence[float]]) -> dict[int, tuple[float, ...]]:
        """Turned so that larger is better."""
        signs = self._experiment.signs
        return {r: tuple(s * v for s, v in zip(signs, values, strict=True)) for r, values in measured.items()}
