"""What decisions are made from: the runs of an experiment, and their trials in the order in which they were begun.

An experiment has one run or several: a search or a final run has one, `fedtune auto` one for each method, `fedtune
reproduce` one for each cell of a table. A trial has a number in its run, by which its folder and its study know it, and
a number among all trials of the experiment; where there is one run the two are the same.

What becomes of trial n is decided by the trials that `Experiment.seen` lets it look at and by nothing else. So a
decision has to wait until all of those have ended, and is then the same whatever ran side by side and however often the
experiment was interrupted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fedtune.decisions import expected_improvement, own_sampler
from fedtune.decisions.conditions import Crossed
from fedtune.decisions.known_points import KnownPoints
from fedtune.decisions.optuna_samplers import SAMPLERS
from search_spaces import run_folder

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

    from fedtune.decisions.method_allocation import Allocation
    from fedtune.decisions.own_sampler import Propose
    from fedtune.record.experiment import Experiment
    from search_spaces.space import Space


class Answer(Enum):
    """What is said where no trial can be begun."""

    WAIT = "a trial that decides about the next one still runs"
    DONE = "every trial has been begun"


WAIT, DONE = Answer.WAIT, Answer.DONE


class Next(NamedTuple):
    """The trial to begin: the place of its run, itself, and what is recorded of it (user attributes)."""

    part: int
    trial: FrozenTrial
    attributes: Mapping[str, Any]


@dataclass(frozen=True)
class Part:
    """A run of an experiment: its directory, its request and its space."""

    folder: Path
    experiment: Experiment
    space: Space

    def check(self) -> None:
        """Raises `UserError` where the record asks for what cannot be proposed (somebody edited it, or a user's own
        sampler is gone)."""
        expected_improvement.check(self.space.search)
        self.points, self.sampler  # noqa: B018

    @cached_property
    def points(self) -> KnownPoints:
        """The configurations whose values are known before a sampler is asked."""
        return KnownPoints(self.experiment, self.space)

    @cached_property
    def crossed(self) -> Crossed:
        """The conditions of the experiment under which every configuration is run."""
        return Crossed.of(self.experiment, self.space)

    @cached_property
    def sampler(self) -> Propose | None:
        """A sampler of the user's own, where the run has one."""
        name = self.experiment.sampler
        return None if name in SAMPLERS else own_sampler.load(name)


@dataclass(frozen=True)
class History:
    """The trials of all runs of an experiment, as far as they have come."""

    parts: Sequence[Part]
    #: By run, and by their number there.
    trials: Sequence[Mapping[int, FrozenTrial]]
    #: Of every trial its run and its number there, in the order in which they were begun.
    order: Sequence[tuple[int, int]]
    #: Where the runs are those of several methods that share a budget.
    allocation: Allocation | None = None

    def of(self, part: int) -> list[FrozenTrial]:
        """The trials of a run."""
        return list(self.trials[part].values())

    def trial(self, number: int) -> FrozenTrial:
        """Trial `number` of all, as its run's study holds it."""
        part, own = self.order[number]
        return self.trials[part][own]

    @property
    def ended(self) -> bool:
        """Whether no trial runs."""
        return all(trial.state.is_finished() for trials in self.trials for trial in trials.values())

    def seen(self, part: int, number: int) -> list[tuple[int, FrozenTrial]] | None:
        """What trial `number` of a run may look at, which may be one that is still to be begun: trials with the places
        of their runs. None while one of them still runs."""
        e = self.parts[part].experiment
        if self.allocation is not None:
            trials = self.trials[part]
            place = int(trials[number].user_attrs[run_folder.PLACE]) if number in trials else len(self.order)
            found = [(self.order[n][0], self.trial(n)) for n in range(e.seen(place))]
        elif e.looks_back:
            found = [(part, self.trials[part][n]) for n in range(e.seen(number))]
        else:
            found = []
        return found if all(trial.state.is_finished() for _, trial in found) else None
