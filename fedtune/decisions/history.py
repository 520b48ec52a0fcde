"""What decisions are made from: the runs of an experiment, and their trials in the order in which they were begun.

An experiment has one run or several: a search or a final run has one, `fedtune auto` one for each method, `fedtune
reproduce` one for each cell of a table. A trial has a number in its run, by which its folder and its study know it, and
a number among all trials of the experiment; where there is one run the two are the same.

What becomes of a trial is decided by the trials that it sees and by nothing else. Which ones these are depends on the
experiment's order. In the fixed order trial n sees the first ones, as many as `Experiment.seen` says: a decision waits
until all of those have ended, and is then the same whatever ran side by side. By arrival a trial sees those that have
ended when it is proposed, and the sampler `ei` the rounds that others have, so nothing waits; what it saw is recorded
with it. In both orders an experiment that was interrupted goes on from exactly what it had.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fedtune.decisions import expected_improvement, own_sampler
from fedtune.decisions.conditions import Crossed
from fedtune.decisions.early_stopping import Curve, LearningCurve
from fedtune.decisions.known_points import KnownPoints
from fedtune.decisions.optuna_samplers import SAMPLERS
from fedtune.decisions.seen import Kept, Seen
from search_spaces import run_folder

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

    from fedtune.decisions.expected_improvement import Ahead
    from fedtune.decisions.own_sampler import Propose
    from fedtune.decisions.shared_budget import Allocation
    from fedtune.record.experiment import Experiment
    from search_spaces.space import Space


class Answer(Enum):
    """What is said where no trial can be begun."""

    WAIT = "a trial that decides about the next one still runs"
    DONE = "every trial has been begun"


WAIT, DONE = Answer.WAIT, Answer.DONE


class Next(NamedTuple):
    """The trial to begin, and the place of its run."""

    part: int
    trial: FrozenTrial


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
        conditions = tuple(self.space.conditions())
        return Crossed(conditions, 1 if self.experiment.sampler == "grid" else len(conditions))

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
    order: list[tuple[int, int]]
    #: Where the runs are those of several methods that share a budget.
    allocation: Allocation | None = None
    #: By run, and by their number there, the values by round of trials that have not ended.
    reported: Mapping[int, Mapping[int, Curve]] = field(default_factory=dict)
    #: Whether the time of a search that confirms is so far over that it is to begin with that.
    late: bool = False
    #: By run, what was proposed at once and ahead. A decision may put it here: nothing else of a history is changed,
    #: except for what is kept of trials, by run and number there or as `seen.py` says, as it takes long to find again.
    ahead: dict[int, Ahead] = field(default_factory=dict)
    curves: dict[tuple[int, int], LearningCurve] = field(default_factory=dict)
    kept: Kept = field(default_factory=Kept)

    def of(self, part: int) -> list[FrozenTrial]:
        """The trials of a run."""
        return list(self.trials[part].values())

    def curve(self, part: int, trial: FrozenTrial) -> LearningCurve:
        """What stop rules read of a trial of a run that has ended."""
        key = part, trial.number
        if key not in self.curves:
            self.curves[key] = LearningCurve.of(trial, self.parts[part].experiment.signs)
        return self.curves[key]

    def trial(self, number: int) -> FrozenTrial:
        """Trial `number` of all, as its run's study holds it."""
        part, own = self.order[number]
        return self.trials[part][own]

    @property
    def ended(self) -> bool:
        """Whether no trial runs."""
        return not any(self.running(part) for part in range(len(self.parts)))

    def running(self, part: int) -> list[int]:
        """The places of the trials that run, in the order that `seen` has them in."""
        line, begun = (part, self.trials[part]) if self.allocation is None else (None, self.order)
        return self.kept.running(line, self._at(part), len(begun))

    def first(self, part: int, count: int) -> Seen:
        """So many trials of a run, the first ones."""
        return Seen(self._at(part), count)

    def seen(self, part: int, number: int) -> Seen | None:
        """What trial `number` of a run may look at, which may be one that is still to be begun: trials of this run, or
        of all where these share a budget. None while one of them still runs."""
        e, before = self.parts[part].experiment, self._before(part, number)
        if e.order == run_folder.ARRIVAL:
            found = Seen(self._at(part), before, frozenset(self.unseen(part, number)))
        else:
            found = Seen(self._at(part), e.seen(before))
        return None if any(place in found for place in self.running(part)) else found

    def by_run(self, seen: Seen) -> list[tuple[int, FrozenTrial]]:
        """Of runs that share a budget the trials that a decision sees, with the places of their runs."""
        return [(self.order[place][0], self.trial(place)) for place in seen]

    def unseen(self, part: int, number: int) -> list[int]:
        """Where trials go by arrival: of those before trial `number`, the places of the ones that ran when it was
        proposed, or run now where it is still to be begun."""
        if number in self.trials[part]:
            return list(self.trials[part][number].user_attrs.get(run_folder.BESIDE, ()))
        return self.running(part) if self._before(part, number) else []

    def _at(self, part: int) -> Callable[[int], FrozenTrial]:
        """The trial of a place."""
        return self.trial if self.allocation is not None else self.trials[part].__getitem__

    def _before(self, part: int, number: int) -> int:
        """How many trials before it there are that it could look at."""
        trials = self.trials[part]
        if self.allocation is not None:
            return int(trials[number].user_attrs[run_folder.PLACE]) if number in trials else len(self.order)
        return number if self.parts[part].experiment.looks_back else 0
