"""The queue of `fedtune auto`: every method has a run of its own, and each new trial goes to the method that
`method_allocation.py` names.

As in every search, trial n is decided by trials 0 … n - lag of all methods and by nothing else: which method it belongs
to, which values it has, and when it is stopped. Its values are what another method's best configuration teaches
(`transfer.py`), else what the method's sampler proposes, which is shown that method's trials only. The study of its run
records n as `place`. It is started only where the cost of all trials before it leaves room in the budget for a whole
one; a trial that still runs counts with all its rounds there, so the answer may have to wait, and never changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedtune.decisions import method_allocation
from fedtune.decisions.early_stopping import History, Rule
from fedtune.decisions.known_points import Point
from fedtune.decisions.method_allocation import Allowance, Seen
from fedtune.decisions.transfer import taught
from fedtune.execution.queue import Proposal, TrialQueue
from fedtune.execution.together import Together
from search_spaces import run_folder

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

    from fedtune.record.experiment import Experiment
    from fedtune.record.journal import StudyFile
    from search_spaces.space import Space

    #: A method's search, as `TrialQueue` takes it.
    Begun = tuple[Path, Experiment, Space] | tuple[Path, Experiment, Space, StudyFile]


class MethodQueue(TrialQueue):
    """The trials of one method."""

    #: Whose part this is; set by it.
    whole: AutoQueue

    @property
    def exhausted(self) -> bool:
        return self._waiting == [] and self.whole.exhausted

    def trial(self, number: int) -> FrozenTrial:
        """A trial, as last seen or written here."""
        return self._trials[number]

    def place(self, number: int) -> int:
        """Of a trial of this method among all trials; of the next one, how many there are."""
        return place_of(self._trials[number]) if number in self._trials else self.whole.started

    def _known(self, number: int) -> list[FrozenTrial] | None:
        known = self.whole.known(self.place(number))
        return None if known is None else [trial for queue, trial in known if queue is self]

    def _create(self, number: int, known: Sequence[FrozenTrial]) -> None:
        proposed, origin = self._asked(number, number, known)
        self._add(number, proposed, {run_folder.PLACE: self.whole.started} | ({"from": origin} if origin else {}))

    def _point(self, number: int, place: int, known: Sequence[FrozenTrial]) -> Point | None:
        point = super()._point(number, place, known)
        if point is None:
            point = taught(self.space, self.trials(), known, self.whole.seen(), self._signs[0])
        return point

    def _rule(self, number: int, known: Sequence[FrozenTrial]) -> Rule:
        # A method is judged by its paper's values, so these always run to their end.
        return super()._rule(number, []) if number == 0 else self.whole.rule(self, self.place(number))

    def history(self, trial: FrozenTrial) -> History:
        """What stop rules read of a trial that has ended."""
        return self._stop_rules.history(trial)


class AutoQueue(Together):
    """The trials of all methods."""

    queues: list[TrialQueue]

    def __init__(self, runs: Sequence[Begun], allowance: Allowance, budget: float) -> None:
        """allowance: with the methods in the order of `runs`; budget: in the unit in which `prices` are."""
        self._own = [MethodQueue(*run) for run in runs]
        for queue in self._own:
            queue.whole = self
        self._allowance, self._budget = allowance, budget
        self._prices = allowance.costs
        super().__init__(self._own)

    def priced(self, prices: Sequence[float]) -> AutoQueue:
        """The same queue, whose budget is counted in another unit than rungs are: what a round of each method takes of
        it."""
        self._prices = tuple(prices)
        return self

    def _in_order(self) -> list[tuple[int, FrozenTrial]]:
        return sorted(super()._in_order(), key=lambda item: place_of(item[1]))

    # -- what there is ---------------------------------------------------------------------------------------------

    @property
    def started(self) -> int:
        """Trials of all methods, whatever became of them."""
        return len(self._at)

    def _trial(self, number: int) -> tuple[MethodQueue, FrozenTrial]:
        place, own = self._at[number]
        return self._own[place], self._own[place].trial(own)

    def known(self, number: int) -> list[tuple[MethodQueue, FrozenTrial]] | None:
        """The trials of all methods that trial `number` may look at; None while one of them still runs."""
        seen = self._own[0].experiment.seen(number)
        found = [self._trial(n) for n in range(seen)]
        return found if all(trial.state.is_finished() for _, trial in found) else None

    def seen(self) -> list[tuple[Space, FrozenTrial]]:
        """What the next trial may look at, with the spaces of the methods."""
        return [(queue.space, trial) for queue, trial in self.known(self.started) or []]

    def spent(self) -> float:
        """What the trials so far took of the budget; one that still runs counts with all its rounds."""
        total = 0.0
        for number, (place, _) in enumerate(self._at):
            trial = self._trial(number)[1]
            ended = trial.state.is_finished()
            rounds = int(trial.user_attrs["rounds"]) if ended else self._allowance.rounds
            total += self._prices[place] * rounds
        return total

    def _fits(self, place: int) -> bool:
        """Whether the budget reaches for one more whole trial of a method."""
        return self.spent() + self._prices[place] * self._allowance.rounds <= self._budget * (1 + 1e-9)

    @property
    def _all_ended(self) -> bool:
        return all(self._trial(number)[1].state.is_finished() for number in range(self.started))

    @property
    def exhausted(self) -> bool:
        waiting = any(queue.waiting is not None for queue in self._own)
        return not waiting and self._all_ended and not any(map(self._fits, range(len(self._own))))

    @property
    def finished(self) -> bool:
        return self.exhausted

    # -- what comes next -------------------------------------------------------------------------------------------

    def propose(self) -> Proposal | None:
        waiting = [(queue.place(queue.waiting), queue) for queue in self._own if queue.waiting is not None]
        if waiting:
            queue = min(waiting, key=lambda item: item[0])[1]
        else:
            place = self._next()
            if place is None:
                return None
            queue = self._own[place]
        proposal = queue.propose()
        return None if proposal is None else self._proposed(queue, proposal)

    def _next(self) -> int | None:
        """The method of the next trial; None while that cannot be said, or where the budget is spent."""
        known = self.known(self.started)
        if known is None:
            return None
        later = [self._at[number][0] for number in range(len(known), self.started)]
        for place in method_allocation.order(self._allowance, self._seen(known), later):
            if self._fits(place):
                return place
            if not self._all_ended:
                return None  # what these leave may yet be enough for this one
        return None

    def _seen(self, known: Sequence[tuple[MethodQueue, FrozenTrial]]) -> list[Seen]:
        names = [queue.experiment.method for queue in self._own]
        return [
            method_allocation.merged(names, self._own.index(queue), number, trial)
            for number, (queue, trial) in enumerate(known)
        ]

    def rule(self, queue: MethodQueue, number: int) -> Rule:
        """The stop rule of trial `number`, which belongs to `queue`."""
        known = self.known(number) or []
        histories = [(self._own.index(one), one.history(trial)) for one, trial in known]
        e = queue.experiment
        return method_allocation.rule(self._allowance, self._own.index(queue), histories, e.grace, e.reduction_factor)


def place_of(trial: FrozenTrial) -> int:
    """The place of a trial among the trials of all methods."""
    return int(trial.user_attrs[run_folder.PLACE])
