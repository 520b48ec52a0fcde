"""Rungs that decide by what has arrived: a trial is compared with all that came as far by then, those included that
still run, and one that was stopped may go on later.

No option of `fedtune search`, whose trials are stopped by what had ended when they began: it is here to learn whether
it would pay on many slots. `benchmarks.replay.rungs` measures that."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.replay.searcher import Job, Setting
from benchmarks.replay.searchers.present import Present, StudyInMemory
from fedtune.decisions.early_stopping import Never, ahead, rungs, value_at
from fedtune.decisions.history import Part
from fedtune.execution.queue import Queue
from trainables.worker.trial_values import TrialValues

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial


class Arriving(Present):
    """fedtune's search of one seed with such rungs. later: where a slot is free, a stopped trial goes on from where it
    stopped as soon as it is among the best at its rung again, the best one of the highest rung first."""

    def __init__(self, setting: Setting, *, later: bool) -> None:
        super().__init__(setting, each=1)
        e = self.experiment
        self.later = later
        self.study = OpenStudy()
        self.queue = Queue([Part(Path(), e, setting.space)], None, [self.study])
        #: By rung, what each trial had there.
        self.at: dict[int, dict[int, float]] = {rung: {} for rung in rungs(e.rounds, e.grace, e.reduction_factor)}
        #: The rung at which a trial was stopped, what it had measured, and how many have gone on.
        self.stopped: dict[int, int] = {}
        self._had: dict[int, TrialValues] = {}
        self.gone_on = 0

    def ask(self) -> Job | None:
        free = not self._going_on and len(self._values) < self.at_once
        number = self._again() if free and self.later else None
        if number is None:
            return super().ask()
        rung = self.stopped.pop(number)
        self.gone_on += 1
        trial = self.study.reopen(number)
        self.queue._remember(number)
        self._rules[number], self._measured[number] = Never(), self._had.pop(number)
        self._values[number] = self.queue.parts[0].space.values(trial.params)
        return Job(number, self._values[number], self.seeds_of(number), rung + 1)

    def _again(self) -> int | None:
        """The stopped trial that is to go on."""
        for rung in reversed(self.at):
            there = [n for n, at in self.stopped.items() if at == rung and self._among_the_best(n, rung)]
            if there:
                return max(there, key=lambda n: self.at[rung][n])
        return None

    def _among_the_best(self, number: int, rung: int) -> bool:
        """Whether a trial goes on at a rung, by all that came as far by now."""
        others = [(value,) for other, value in self.at[rung].items() if other != number]
        most = math.ceil((len(others) + 1) / self.experiment.reduction_factor)
        return not others or ahead((self.at[rung][number],), others) < most

    def _reason(self, number: int, round_: int, rows: list[dict[str, Any]]) -> str | None:
        measured = self._measured[number]
        if measured.broken(rows) is not None:
            return "diverged"
        if round_ >= self.rounds:
            return "completed"
        value = value_at(measured.signed, round_) if round_ in self.at else None
        if value is not None:
            self.at[round_][number] = value[0]
            if not self._among_the_best(number, round_):
                self.stopped[number], self._had[number] = round_, measured
                return "scheduler"
        return None


class OpenStudy(StudyInMemory):
    """A study in memory whose trials may be opened again."""

    def __init__(self) -> None:
        self._list: list[FrozenTrial] = []

    def trials(self) -> list[FrozenTrial]:
        return self._list

    def add(self, trial: FrozenTrial) -> None:
        self._list.append(copy.deepcopy(trial))
        self._list[-1].number = len(self._list) - 1

    def set_value(self, number: int, round_: int, value: float) -> None:
        self._copy(number).intermediate_values[round_] = value

    def set_attribute(self, number: int, key: str, value: Any) -> None:
        self._copy(number).user_attrs[key] = value

    def end(self, number: int, state: Any, values: Any) -> None:
        ended = self._copy(number)
        ended.state, ended.values = state, values

    def reopen(self, number: int) -> FrozenTrial:
        """The trial, which runs again."""
        from optuna.trial import TrialState

        trial = self._copy(number)
        trial.state = TrialState.RUNNING
        for key in ("stop_reason", "rounds", "seconds"):
            del trial.user_attrs[key]
        return trial

    def _copy(self, number: int) -> FrozenTrial:
        """The trial in a new object, as others keep the old one."""
        self._list[number] = copy.deepcopy(self._list[number])
        return self._list[number]
