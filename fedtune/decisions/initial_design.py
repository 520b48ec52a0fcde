"""The initial design of a search: many trials that end early, of which the best goes on.

Early stopping compares a trial with those before it, so the first one runs to its end, and so does a later one as long
as it is better. A search that begins so has tried little after its first few federations, and the paper's values take
the first of them, which are often poor on other data. So its first trials, `Experiment.initial` of them, all end in the
round before the first rung: a successive halving of their own (Jamieson and Talwalkar 2016), with one rung. They are
the paper's values, others that fill the space (`sampling.spread`), and as soon as `LEAST` have ended what the sampler
proposes by their values in that round (`compared`). When all have ended, the best of them runs to its end. It does so
as a further trial of the same values on the same seed (`run_folder.OF`), which has the same first rounds again. Until
a second one has run to its end, proposals compare the values of that early round. The paper's values run to their end
too, as the last trial before the confirmation (`MEASURED` at the latest): what a search gained over them is not to be
guessed from two rounds. docs/defaults.md has what all that is worth.

It is for the sampler `ei` with asynchronous successive halving and trials of one seed; a race gives its seeds in a way
of its own, and other samplers were not measured.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from analysis.runs.race import first_of, is_repeated
from analysis.runs.trials import origin
from fedtune.decisions.early_stopping import Curve, Earlier, LearningCurve, Rule, rungs
from search_spaces import run_folder

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

    from fedtune.record.experiment import Experiment

#: So many trials at most, one of so many that the search has, and the rounds of so many federations.
MOST, SHARE, FEDERATIONS = 10, 3, 2
#: With fewer no best one is to be chosen; after so many the sampler proposes.
FEWEST, LEAST = 3, 5
#: The number of the trial that runs the paper's values to their end, in a search that has more.
MEASURED = 30


def size(trials: int, rounds: int, grace: int, reduction: int) -> int:
    """How many trials the initial design of a search of so many `trials` has; 0 where none could be left out, or where
    trials are not stopped early."""
    if not rungs(rounds, grace, reduction) or grace < 2:
        return 0
    found = min(MOST, trials // SHARE, FEDERATIONS * rounds // last_round(grace))
    return found if found >= FEWEST else 0


def last_round(grace: int) -> int:
    """The round after which a trial of the design ends. grace: the first rung."""
    return grace - 1


def without(experiment: Experiment) -> Experiment:
    """The same experiment without such a design."""
    return replace(experiment, initial=0)


@dataclass(frozen=True)
class First:
    """The rule of a trial of the design, which ends after round `last`."""

    last: int

    def stops(self, round_: int, curve: Curve) -> bool:
        return round_ >= self.last

    def may_stop(self, round_: int) -> bool:
        return round_ >= self.last


def going_on(
    begun: Sequence[FrozenTrial], known: Container[int], experiment: Experiment, gone: Sequence[int]
) -> int | None:
    """The trial of the design whose configuration runs to its end next; None where none does, or not yet.

    begun: all trials of the search; known: the numbers of those that have ended and that the next one may look at;
    gone: those whose configurations went on."""
    e = experiment
    design = {trial.number: trial for trial in begun[: e.initial]}
    if not design or len(design) < e.initial or not all(number in known for number in design):
        return None
    values = {
        number: e.signs[0] * trial.intermediate_values[max(trial.intermediate_values)]
        for number, trial in design.items()
        if trial.state.name == "PRUNED" and trial.intermediate_values
    }
    able = [number for number, value in values.items() if math.isfinite(value)]
    if not gone:
        return min(able, key=lambda number: (-values[number], number), default=None)
    if len(begun) < min(MEASURED, e.trials - e.confirm - 1):
        return None
    papers = (number for number in able if origin(design[number]) == run_folder.PAPER and number not in gone)
    return next(papers, None)


class FirstSeeds:
    """Every configuration once, on its first seed, as later trials are compared with it: the trial of the design, or
    the one by which it ran to its end; by the condition that it ran under."""

    def __init__(
        self, trials: Mapping[int, FrozenTrial], conditions: Collection[str], signs: Sequence[int], *given: Any
    ) -> None:
        """trials: all of the run, by number. conditions: names of the parameters that are no part of a configuration.
        signs: by metric 1 where more is better, -1 where less is. given: what `Earlier` is made with."""
        self._trials, self._conditions, self._signs, self._given = trials, conditions, signs, given
        self._under: dict[object, Earlier] = {}

    def add(self, trial: FrozenTrial) -> None:
        first = first_of(trial)
        if first is not None:
            if not is_repeated(trial, self._trials):
                return
            # What a decision sees of a configuration that went on holds the trial of the design, too.
            self._earlier(trial).remove(self._curve(self._trials[first]))
        self._earlier(trial).add(self._curve(trial))

    def rule(self, trial: FrozenTrial) -> Rule:
        """The rule by which a trial is stopped."""
        return self._earlier(trial).rule()

    def _earlier(self, trial: FrozenTrial) -> Earlier:
        condition = tuple((name, trial.params[name]) for name in self._conditions if name in trial.params)
        if condition not in self._under:
            self._under[condition] = Earlier(*self._given)
        return self._under[condition]

    def _curve(self, trial: FrozenTrial) -> LearningCurve:
        return LearningCurve.of(trial, self._signs)


def compared(known: Sequence[FrozenTrial]) -> Sequence[FrozenTrial]:
    """The trials as the sampler is to see them. As long as fewer than two ran to their end nothing is known of what
    trials end with; so they count as if each had ended after the last round that all of them have, those that failed
    apart. The same trials where two ran to their end, or where fewer than `LEAST` have ended."""
    from optuna.trial import TrialState, create_trial

    measured = [trial for trial in known if trial.state != TrialState.FAIL and trial.intermediate_values]
    if len(known) < LEAST or not measured or sum(trial.state == TrialState.COMPLETE for trial in known) > 1:
        return known
    last = min(max(trial.intermediate_values) for trial in measured)
    found = []
    for trial in known:
        if trial.state != TrialState.FAIL and trial.intermediate_values:
            curve = {round_: value for round_, value in trial.intermediate_values.items() if round_ <= last}
            number, kinds = trial.number, trial.distributions
            trial = create_trial(
                state=TrialState.COMPLETE,
                value=curve[max(curve)],
                params=trial.params,
                distributions=kinds,
                intermediate_values=curve,
                user_attrs=trial.user_attrs,
            )
            trial.number = number
        found.append(trial)
    return found
