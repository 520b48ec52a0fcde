"""The queue of a race: a trial is one federation, of a new configuration or a further seed of one that is known.

`race.py` says which of the two comes next. As in every search a trial is decided by those that `Experiment.seen` lets
it look at, and it is started only where the rounds of all trials before it leave room in the budget for a whole
federation. A trial that still runs counts with all its rounds there, so the answer may have to wait, and never changes.

A configuration that a sampler proposes a second time is a further seed as well: on the same seed it would only give the
same value again. Further seeds are never stopped early, and samplers see a configuration once, with the mean over its
seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from analysis.estimate import configuration
from fedtune.decisions.early_stopping import Never, Rule
from fedtune.decisions.race import has_budget, is_further, repeated
from fedtune.execution.queue import TrialQueue
from fedtune.record.experiment import further_seed
from search_spaces import run_folder

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

    from fedtune.record.experiment import Experiment
    from search_spaces.space import Space


def queue_of(folder: Path, experiment: Experiment, space: Space) -> TrialQueue:
    """The queue of any run."""
    return (RaceQueue if experiment.races else TrialQueue)(folder, experiment, space)


class RaceQueue(TrialQueue):
    """The trials of one race."""

    #: Whether there is neither a new configuration nor one that could have a further seed.
    _over = False

    @property
    def exhausted(self) -> bool:
        if self._waiting:
            return False
        ended = all(trial.state.is_finished() for trial in self._trials.values())
        return self._over or (ended and not has_budget(self.trials(), self.experiment))

    def _known(self, number: int) -> list[FrozenTrial] | None:
        """As of every search, and None while it is not known whether the budget reaches for a new trial."""
        new = number == self.started
        return super()._known(number) if not new or has_budget(self.trials(), self.experiment) else None

    def _seeds(self, number: int) -> tuple[int, ...]:
        return (int(self._trials[number].user_attrs["seed"]),)

    def _create(self, number: int, known: Sequence[FrozenTrial]) -> None:
        e = self.experiment
        running = [self._trials[n] for n in range(len(known), number)]
        place = number - sum(is_further(self._trials[n]) for n in range(e.taken, number))
        more = self._points.more(place)
        again = None
        if number >= e.taken:
            again = repeated(known, running, sign=e.signs[0], rounds=e.rounds, most=len(e.seeds), new=more)
        if again is not None:
            self._begin(number, self._trials[again], "")
        elif more:
            self._begin(number, *self._asked(number, place, known))
        else:
            self._over = True

    def _begin(self, number: int, proposed: FrozenTrial, origin: str) -> None:
        """Writes trial `number` with the values of `proposed`, on the first seed that its configuration lacks."""
        key = configuration(proposed)
        same = [n for n in sorted(self._trials) if configuration(self._trials[n]) == key]
        user: dict[str, object] = {"seed": further_seed(self.experiment.seeds, len(same))}
        user |= {run_folder.OF: same[0]} if same else {}
        user |= {"from": origin} if origin else {}
        self._add(number, proposed, user)

    def _rule(self, number: int, known: Sequence[FrozenTrial]) -> Rule:
        if is_further(self._trials[number]):
            return Never()
        return super()._rule(number, [trial for trial in known if not is_further(trial)])

    def _shown(self, known: Sequence[FrozenTrial]) -> list[FrozenTrial | None]:
        """Every configuration once, with the mean over its seeds."""
        import optuna

        values: dict[object, list[float]] = {}
        for trial in known:
            if trial.state.name == "COMPLETE":
                values.setdefault(configuration(trial), []).append(trial.values[0])
        merged = []
        for trial in known:
            if is_further(trial):
                continue
            if trial.state.name == "COMPLETE":
                trial = optuna.trial.create_trial(
                    values=[float(np.mean(values[configuration(trial)]))],
                    params=trial.params,
                    distributions=trial.distributions,
                    system_attrs=trial.system_attrs,
                )
            merged.append(trial)
        return super()._shown(merged)
