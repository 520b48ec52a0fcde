"""Searches by trials: one configuration per slot, round after round, until it ends or is stopped."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping

import numpy as np

from benchmarks.replay.searcher import Floats, Job, Result
from search_spaces.parameter import Value


class Trials:
    """Keeps the trials that run: a trial that goes on has its slot back before a new one is proposed.

    A subclass proposes (`propose`) and is told a trial's mean over its seeds after every round (`after_round`), upon
    which it says whether the trial goes on."""

    def __init__(self, rounds: int, seeds: tuple[int, ...], at_once: int) -> None:
        self.rounds, self.seeds, self.at_once = rounds, seeds, at_once
        self._values: dict[int, Mapping[str, Value]] = {}
        self._going_on: deque[tuple[int, int]] = deque()

    def propose(self) -> tuple[int, Mapping[str, Value]] | None:
        """A new trial's number and values; None where it has to wait for others."""
        raise NotImplementedError

    def after_round(self, number: int, round_: int, curves: Floats) -> bool:
        """Whether the trial goes on; `curves` (seeds, round_) are its values so far."""
        raise NotImplementedError

    def ask(self) -> Job | None:
        if self._going_on:
            number, until = self._going_on.popleft()
            return Job(number, self._values[number], self.seeds_of(number), until)
        if len(self._values) >= self.at_once:
            return None
        proposed = self.propose()
        if proposed is None:
            return None
        number, values = proposed
        self._values[number] = values
        return Job(number, values, self.seeds_of(number), 1)

    def seeds_of(self, number: int) -> tuple[int, ...]:
        """The places of a trial's seeds."""
        return self.seeds

    def tell(self, result: Result) -> None:
        number, round_ = result.job.trial, result.job.until
        if self.after_round(number, round_, result.curves):
            self._going_on.append((number, round_ + 1))
        else:
            del self._values[number]


def mean(curves: Floats) -> float:
    """The mean over seeds of the last round; NaN where one diverged."""
    found = float(np.mean(curves[:, -1]))
    return found if math.isfinite(found) else math.nan
