"""The trials of an experiment: those that have ended, those that run, and the next one. Knows the studies in which they
are recorded, and nothing of Ray.

Which trial comes next is said by `fedtune.decisions.proposals`: one that is new. Before any new one come those that
were interrupted and go on. An experiment is one fixed sequence of trials, whatever ran side by side and however often
it was interrupted; `Experiment.lag` bounds how many can run at once.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fedtune.decisions.early_stopping import Rule, Until
from fedtune.decisions.history import DONE, Answer, History, Next, Part
from fedtune.decisions.proposals import propose, stop_rule
from fedtune.execution.outcome import damaged, drop_checkpoint, opened, outcome, taken_result
from fedtune.machine.resources import Share
from fedtune.record.journal import curve
from search_spaces import run_folder
from search_spaces.parameter import Value

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

    from fedtune.decisions.shared_budget import Allocation, Clock
    from fedtune.record.journal import StudyFile
    from trainables.worker.job import Ending


@dataclass(frozen=True)
class Proposal:
    """A trial to be run: its number, its run and its number there, its searched values by key, its stop rule."""

    number: int
    part: Part
    own: int
    values: Mapping[str, Value]
    rule: Rule
    #: What it is simulated over.
    seeds: tuple[int, ...]
    resumed: bool
    #: Cores and GPUs it goes on with after having run out of memory; None is the experiment's usual share.
    share: Share | None
    #: It had ended, and is computed again as its rows are damaged.
    ended: bool


class Queue:
    """The trials of an experiment. One process at a time holds it (`fedtune.record.run_directory.lock`)."""

    def __init__(
        self,
        parts: Sequence[Part],
        allocation: Allocation | None = None,
        studies: Sequence[StudyFile] | None = None,
        clock: Clock | None = None,
    ) -> None:
        """parts: the runs of the experiment, whose locks the caller holds. allocation: as of `History`. studies: in
        place of those in the runs' folders, for an experiment that is replayed rather than run. clock: where a budget
        is counted by it, when each trial began and ended is recorded, and no trial goes on after what the allocation
        says is the last moment, but for the first one of all, so that there is an answer.

        Trials go on that have fewer rounds than are planned now, and those are there whose results were taken from
        earlier runs. Raises `UserError` where a record cannot be read or the disk refuses."""
        self._clock = clock
        self.parts = tuple(parts)
        self._studies = [opened(part) for part in parts] if studies is None else list(studies)
        self._trials: list[dict[int, FrozenTrial]] = []
        for part, study in zip(parts, self._studies, strict=True):
            part.check()
            self._trials.append({trial.number: trial for trial in study.trials()})
        found = [(place, trial) for place, trials in enumerate(self._trials) for trial in trials.values()]
        shared = allocation is not None
        found.sort(key=lambda item: (item[1].user_attrs[run_folder.PLACE] if shared else item[1].number, item[0]))
        self._order = [(place, trial.number) for place, trial in found]
        #: By run, what is known by round of those that have not ended.
        running = ({n: curve(t) for n, t in run.items() if not t.state.is_finished()} for run in self._trials)
        self._reported = dict(enumerate(running))
        #: What has happened so far. It changes with this queue; decisions only read it.
        self.history = History(self.parts, self._trials, self._order, allocation, self._reported)
        #: Trials to go on with, before anything new: left running by a driver that ended, or put back here.
        self._waiting = {number for number, (_, trial) in enumerate(found) if trial.state.name == "RUNNING"}
        #: What was proposed and not begun yet; None after any change.
        self._next: Next | Answer | None = None
        self._take_results()

    # -- proposing -------------------------------------------------------------------------------------------------

    @property
    def exhausted(self) -> bool:
        """Whether every trial has been begun, and none waits to go on."""
        return not self._waiting and self._proposed() is DONE

    @property
    def finished(self) -> bool:
        """Whether every trial has ended."""
        return self.history.ended and self.exhausted

    def at(self, number: int) -> tuple[Part, int]:
        """The run of trial `number`, and its number there."""
        place, own = self._order[number]
        return self.history.parts[place], own

    def trial(self, number: int) -> FrozenTrial:
        """Trial `number`, as last seen or written here, under its number in its run."""
        return self.history.trial(number)

    def trials(self) -> list[FrozenTrial]:
        """All trials in order, each under its number in its run."""
        return [self.trial(number) for number in range(len(self._order))]

    def damaged(self) -> list[int]:
        """The trials that have ended and are to be computed again (`fedtune.execution.outcome`)."""
        found = [{*damaged(part.folder, part.experiment, self.history.of(n))} for n, part in enumerate(self.parts)]
        return [number for number, (place, own) in enumerate(self._order) if own in found[place]]

    def propose(self) -> Proposal | None:
        """The next trial; None while it has to wait for others, or when there is none left (`exhausted`)."""
        resumed = bool(self._waiting)
        if resumed:
            number = min(self._waiting)
            if self.history.seen(*self._order[number]) is None:
                return None
            self._waiting.remove(number)
        else:
            found = self._proposed()
            if not isinstance(found, Next):
                return None
            number = self._begin(found)
        place, own = self._order[number]
        part, trial = self.history.parts[place], self.trial(number)
        values, rule = part.space.values(trial.params), stop_rule(self.history, place, own)
        allocation = self.history.allocation
        if self._clock is not None and allocation is not None and allocation.clock is not None and number > 0:
            now = time.time()
            rule = Until(now + allocation.clock.last_moment - self._clock.reading(), rule, now)
        seeds = part.experiment.seeds_of(trial)
        ended = trial.state.is_finished()
        return Proposal(number, part, own, values, rule, seeds, resumed, self._share(number), ended)

    def set_late(self) -> None:
        """Says that the time is so far over that what confirms comes next (`History.late`)."""
        if not self.history.late:
            self.history = replace(self.history, late=True)
            self._next = None

    @property
    def goes_on(self) -> int | None:
        """The trial that the next proposal will be, where it is one that goes on."""
        return min(self._waiting, default=None)

    def next_share(self) -> Share | None:
        """The share that the next proposal will ask for, where it is not the usual one."""
        return None if self.goes_on is None else self._share(self.goes_on)

    def _share(self, number: int) -> Share | None:
        found = self.trial(number).user_attrs.get("share")
        return None if found is None else Share(float(found[0]), float(found[1]), *found[2:])

    def _proposed(self) -> Next | Answer:
        """What `propose` says of the trials as they are now."""
        if self._next is None:
            self._next = propose(self.history)
        return self._next

    def _begin(self, found: Next) -> int:
        """Writes a trial, which runs from now on, and returns its number."""
        if self._clock is not None:
            found.trial.set_user_attr(run_folder.BEGAN, self._clock.reading())
        self._studies[found.part].add(found.trial)
        number = len(self._order)
        self._order.append((found.part, len(self._trials[found.part])))
        self._remember(number)
        return number

    # -- remembering -----------------------------------------------------------------------------------------------

    def report(self, number: int, round_: int, values: Sequence[float] | None) -> None:
        """A round's values. Reporting a round twice, an unmeasured one, or one of a trial that is computed again after
        its end changes nothing. (Optuna keeps curves for one metric only; those of several are written with the trial's
        end.)"""
        place, own = self._order[number]
        if values is None or self.trial(number).state.is_finished() or round_ in self._reported[place][own]:
            return
        if len(values) == 1:
            self._studies[place].set_value(own, round_, float(values[0]))
        self._reported[place][own][round_] = tuple(values)

    def finish(self, number: int, ending: Ending) -> None:
        """Writes what became of a trial. One that was interrupted stays to be resumed; one that has ended stays as it
        is."""
        if self.trial(number).state.is_finished():
            return
        place, own = self._order[number]
        metrics = self.history.parts[place].experiment.metric
        if len(metrics) == 1:
            for round_, values in sorted(ending.curve.items()):
                self.report(number, round_, values)
        state, final, attributes = outcome(ending, metrics)
        if self._clock is not None:
            attributes[run_folder.ENDED] = self._clock.reading()
        for key, value in attributes.items():
            self._studies[place].set_attribute(own, key, value)
        if state is not None:
            self._studies[place].end(own, state, final)
        self._remember(number)

    def tidy(self, number: int) -> None:
        """Empties what a trial has left of which nothing goes on any more, once the study holds how it ended."""
        part, _ = self.at(number)
        drop_checkpoint(part, self.trial(number))

    def again(self, number: int, share: Share | None) -> None:
        """Puts a trial that could not go on back in front of those to come, with `share` of the machine (None: as
        before). The study never sees a failure; and of one that had ended, and is computed again, nothing at all."""
        if share is not None and not self.trial(number).state.is_finished():
            place, own = self._order[number]
            self._studies[place].set_attribute(own, "share", [part for part in share if part != ""])
            self._remember(number)
        self._waiting.add(number)

    def interrupt(self) -> None:
        """Notes of every trial that has not ended that it stands still."""
        for number, (place, own) in enumerate(self._order):
            if not self.trial(number).state.is_finished():
                self._studies[place].set_attribute(own, "stop_reason", "interrupted")
                if self._clock is not None:
                    self._studies[place].set_attribute(own, run_folder.ENDED, self._clock.reading())

    def _remember(self, number: int) -> None:
        place, own = self._order[number]
        trial = self._studies[place].trial(own)
        self._trials[place][own] = trial
        self._reported[place].pop(own, None)
        if not trial.state.is_finished():
            self._reported[place][own] = curve(trial)
        self._next = None

    # -- trials whose results are there already --------------------------------------------------------------------

    def _take_results(self) -> None:
        """Ends every trial whose result was taken from an earlier run and that the study does not hold yet. Its rounds
        are in the run directory (`fedtune.record.run_directory`). A driver that is killed in between leaves the rest to
        the next one."""
        numbers = {at: number for number, at in enumerate(self._order)}
        for place, part in enumerate(self.parts):
            for own in range(part.experiment.taken):
                number = numbers.get((place, own))
                if number is not None and self.trial(number).state.is_finished():
                    continue
                ending = taken_result(part, own)
                if number is None:
                    found = self._proposed()
                    assert isinstance(found, Next)
                    number = self._begin(found)
                self.finish(number, ending)
                self._waiting.discard(number)
