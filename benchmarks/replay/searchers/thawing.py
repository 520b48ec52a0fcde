"""Freeze and go on: a trial that was stopped early may go on later, from where it stopped, when that is worth it.

No option of `fedtune search`: it is here to learn whether it would pay. The rule is that of a race
(`fedtune.decisions.race`) with the rounds that are left as the price: a stopped trial goes on where its gain per round,
by the same model, is above that of a new configuration. It then runs to its end. Its end counts for the winner and for
who goes on next; sampler and stopping rule keep to what they saw of it."""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING

from analysis.estimate import standing
from benchmarks.replay.searcher import Job, Result, Setting, Verdict
from benchmarks.replay.searchers.present import Present, best_of
from fedtune.decisions.race import FIRST, further, gain, of_a_new_one

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial


class Thawing(Present):
    """fedtune's search of one seed whose stopped trials may go on."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting, each=1)
        #: Trials that went on: as they were stopped while they run, and then as they ended.
        self.gone_on: dict[int, FrozenTrial] = {}

    def ask(self) -> Job | None:
        free = not self._going_on and len(self._values) < self.at_once
        trial = self._worth_it() if free else None
        if trial is None:
            return super().ask()
        self.gone_on[trial.number] = trial
        self._values[trial.number] = self.queue.parts[0].space.values(trial.params)
        return Job(trial.number, self._values[trial.number], self.seeds, self.rounds)

    def tell(self, result: Result) -> None:
        number = result.job.trial
        if number not in self.gone_on:
            super().tell(result)
            return
        del self._values[number]
        self.gone_on[number] = _ended(self.gone_on[number], [float(v) for v in result.curves[0]])

    def trials(self) -> list[FrozenTrial]:
        """The search's trials, those that went on as they ended."""
        return [self.gone_on.get(trial.number, trial) for trial in self.queue.trials()]

    def _worth_it(self) -> FrozenTrial | None:
        """The stopped trial that promises most per round, where that is more than a new configuration promises."""
        known = [trial for trial in self.trials() if trial.state.is_finished()]
        found = standing(known, 1.0)
        if found is None or len(known) < FIRST:
            return None
        best = float(found.belief.mean[found.ranking[0]])
        place = {number: i for i, number in enumerate(found.numbers)}
        promises = {}
        for trial in known:
            i = place.get(trial.number)
            if i is None or trial.state.name != "PRUNED" or trial.number in self.gone_on:
                continue
            moves = further(float(found.belief.variance[i]), found.belief.own, 0)
            left = (self.rounds - int(trial.user_attrs["rounds"])) / self.rounds
            promises[trial.number] = gain(float(found.belief.mean[i]) - best, moves) / left
        number = max(promises, key=lambda n: (promises[n], -n), default=None)
        if number is None or promises[number] <= of_a_new_one(found, known, self.rounds, found.belief.own):
            return None
        return next(trial for trial in known if trial.number == number)

    def winner(self) -> Verdict | None:
        return best_of(self.trials(), self.queue.parts[0].space, None, self._fresh)


def _ended(trial: FrozenTrial, curve: list[float]) -> FrozenTrial:
    """The stopped trial as it is after its last round."""
    from optuna.trial import TrialState

    ended = copy.copy(trial)
    whole = all(map(math.isfinite, curve))
    ended.state = TrialState.COMPLETE if whole else TrialState.FAIL
    ended.values = [curve[-1]] if whole else None
    ended.intermediate_values = dict(enumerate(curve, start=1))
    ended.user_attrs = {**trial.user_attrs, "rounds": len(curve)}
    return ended
