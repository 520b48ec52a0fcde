"""Several runs driven as one: their trials share one session of Ray and one count of what runs at once.

Every run keeps its own directory, study and queue. Here each of its trials has a number among all of them, by which the
session and the display speak of it. These numbers belong to the session; nothing records them.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedtune.execution.queue import Home, Proposal, TrialQueue

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

    from trainables.tune import Ending


class Together:
    """The trials of several runs. The run of which fewest trials have begun is asked first for the next one."""

    def __init__(self, queues: Sequence[TrialQueue]) -> None:
        self.queues = list(queues)
        #: By number: the run's place and the trial's number there.
        self._at: list[tuple[int, int]] = []
        self._numbers: dict[tuple[int, int], int] = {}
        for place, trial in self._in_order():
            self._number(place, trial.number)

    def _in_order(self) -> list[tuple[int, FrozenTrial]]:
        """The trials that are there already, in the order in which they are numbered."""
        found = [(place, trial) for place, queue in enumerate(self.queues) for trial in queue.trials()]
        return sorted(found, key=lambda item: (item[1].number, item[0]))

    def _number(self, place: int, own: int) -> int:
        """The number of trial `own` of the run at `place`; a new one where it has none."""
        if (place, own) not in self._numbers:
            self._numbers[place, own] = len(self._at)
            self._at.append((place, own))
        return self._numbers[place, own]

    # -- proposing -------------------------------------------------------------------------------------------------

    @property
    def exhausted(self) -> bool:
        """Whether every trial has been proposed."""
        return all(queue.exhausted for queue in self.queues)

    @property
    def finished(self) -> bool:
        """Whether every trial has ended."""
        return all(queue.finished for queue in self.queues)

    @property
    def folders(self) -> list[Path]:
        """The runs' directories."""
        return [queue.folder for queue in self.queues]

    def home(self, number: int) -> Home:
        """Where trial `number` belongs."""
        place, own = self._at[number]
        return self.queues[place].home(own)

    def trials(self) -> list[FrozenTrial]:
        """All trials, each under its number here."""
        found = []
        by_queue = [{trial.number: trial for trial in queue.trials()} for queue in self.queues]
        for number, (place, own) in enumerate(self._at):
            trial = copy.copy(by_queue[place][own])
            trial.number = number
            found.append(trial)
        return found

    def damaged(self) -> list[int]:
        """As of `TrialQueue`."""
        return [self._numbers[place, own] for place, queue in enumerate(self.queues) for own in queue.damaged()]

    def next_share(self) -> tuple[float, float] | None:
        """The share that the next proposal will ask for, where it is not the usual one."""
        return next((share for queue in self._asked() if (share := queue.next_share()) is not None), None)

    def propose(self) -> Proposal | None:
        """The next trial; None while all have to wait, or when there is none left."""
        for queue in self._asked():
            proposal = queue.propose()
            if proposal is not None:
                return self._proposed(queue, proposal)
        return None

    def _asked(self) -> list[TrialQueue]:
        """The queues in the order in which they are asked: those with trials to go on with first."""
        return sorted(self.queues, key=lambda queue: (queue.waiting is None, queue.started))

    def _proposed(self, queue: TrialQueue, proposal: Proposal) -> Proposal:
        number = self._number(self.queues.index(queue), proposal.number)
        return dataclasses.replace(proposal, number=number)

    # -- remembering -----------------------------------------------------------------------------------------------

    def report(self, number: int, round_: int, values: Sequence[float] | None) -> None:
        place, own = self._at[number]
        self.queues[place].report(own, round_, values)

    def finish(self, number: int, ending: Ending) -> None:
        place, own = self._at[number]
        self.queues[place].finish(own, ending)

    def again(self, number: int, share: tuple[float, float] | None) -> None:
        place, own = self._at[number]
        self.queues[place].again(own, share)

    def mark(self, number: int, reason: str) -> None:
        place, own = self._at[number]
        self.queues[place].mark(own, reason)
