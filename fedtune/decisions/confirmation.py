"""Confirmation: a search ends with further seeds for the configurations that may be the best one.

Which configuration of a search is the best is told from values on one seed, or on few. So the last federations of a
search (`Experiment.confirm`) try nothing new. When everything before them has ended, the model of `analysis.estimate`
names the best configuration and its rivals: those that are better with a probability of more than `winner.RISK`, by
posterior mean, at most `MOST` in all. They take turns on their next seeds, so that they are compared on pairs:

    place i of the confirmation  →  configuration i mod k of these k

The last of the `MOST` places is for the paper's values, unless they are among the others or told from the best one by
far (`GAIN_RISK`): what a search says of its gain over them is then of the same seeds too. They had one seed otherwise,
whose luck the claim would rest on.

What is known afterwards is what the same model says of all federations, the further seeds among them
(`docs/how-sure.md` has what that is worth). Which trials confirm is decided once, by what came before all of them, so
it depends neither on how many run side by side nor on interruptions. Where fewer than two federations ran to their end
nothing can be told apart, and the search goes on looking.

Where a search has a time (`Experiment.time`), its last fifth confirms in place of the last federations, if it begins
before these (`History.late`). A clock says when, and the record says of every trial whether it confirms.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

from analysis.estimate import standing
from analysis.estimate.winner import RISK
from analysis.runs.trials import origin
from fedtune.decisions.race import has_budget
from search_spaces import run_folder

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

    from fedtune.record.experiment import Experiment

#: One of so many federations confirms, in a search of at least `LEAST`.
SHARE, LEAST = 5, 10
#: Configurations that are confirmed.
MOST = 4
#: The paper's values are confirmed where they are better than the best configuration with more than this probability.
GAIN_RISK = RISK / 10


def federations(whole: int) -> int:
    """How many of a search's `whole` federations confirm."""
    return whole // SHARE if whole >= LEAST else 0


def confirms(trial: FrozenTrial) -> bool:
    """Whether a trial belongs to a confirmation."""
    return bool(trial.user_attrs.get(run_folder.CONFIRMS))


def explores(trials: Sequence[FrozenTrial], experiment: Experiment, confirming: int) -> bool:
    """Whether the budget before the confirmation reaches for one more whole federation. confirming: how many of the
    trials belong to a confirmation."""
    if not experiment.races:
        return has_budget(trials, experiment, experiment.confirm - confirming)
    return has_budget([trial for trial in trials if not confirms(trial)], experiment, experiment.confirm)


class Rivals:
    """The configurations that a confirmation is about, by the trials before it."""

    def __init__(self, sign: float) -> None:
        """sign: 1 where more is better, -1 where less is."""
        self._sign = sign
        self._known: list[FrozenTrial] = []
        self._numbers: list[int] | None = None

    def add(self, trial: FrozenTrial) -> None:
        self._known.append(trial)
        self._numbers = None

    @property
    def numbers(self) -> list[int]:
        """The trials whose configurations take turns; none where no configuration can be told from any other."""
        if self._numbers is None:
            self._numbers = rivals(self._known, self._sign)
        return self._numbers


def rivals(known: Sequence[FrozenTrial], sign: float) -> list[int]:
    """The trials whose configurations take turns in a confirmation after the `known` ones; none where no configuration
    can be told from any other. sign: 1 where more is better, -1 where less is."""
    found = standing(known, sign)
    if found is None:
        return []
    best, *others = found.ranking
    chosen = [best, *(i for i in others if found.belief.better(i, best) > RISK)][:MOST]
    paper = next((trial.number for trial in known if origin(trial) == run_folder.PAPER), None)
    place = None if paper is None else found.place.get(paper)
    places = [i for i in others if i == place and found.belief.better(i, best) > GAIN_RISK]
    if not set(places) <= set(chosen):
        chosen = [*chosen[: MOST - 1], *places]
    return [found.numbers[i] for i in chosen]


def late(seconds: float) -> float:
    """How many of a search's `seconds` go to the confirmation."""
    return seconds / SHARE


def before(begun: Sequence[FrozenTrial]) -> Sequence[FrozenTrial]:
    """The trials before the confirmation that the last of them belong to, all where none does. (A search that was
    extended has more than one.)"""
    return begun[: len(begun) - sum(1 for _ in takewhile(confirms, reversed(begun)))]
