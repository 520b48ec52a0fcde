"""Early stopping as pure functions: what earlier trials did decides, before a trial starts, when it will be stopped.

A rule is built from the histories of trials that have finished and is then handed to the trial, which asks it after
every round. It depends on nothing else, so a decision is the same whatever ran beside the trial, and the same after a
restart.

    Halving   asynchronous successive halving (Li et al. 2020): at the rungs g, g·η, g·η², … in the first two thirds of
              the planned rounds a trial goes on while it is among the best 1/η of the trials that reached that rung,
              itself included. With several metrics "best" is by Pareto front: fewer than a 1/η share may lie on
              earlier fronts.
    Median    Vizier's median rule (Golovin et al. 2017, Sec. 3.2.2): stop at round t when the best value so far is
              below the median of the other trials' means over rounds 1..t.

Values are vectors, one entry per metric, with the sign turned so that larger is better.
"""

from __future__ import annotations

import math
import statistics
import time
from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, get_args

from fedtune.options import Scheduler
from fedtune.record.journal import curve

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

Vector = tuple[float, ...]
#: Measured values by round.
Curve = Mapping[int, Vector]

SCHEDULERS: tuple[str, ...] = get_args(Scheduler)

#: About one trial in so many goes on at each rung.
REDUCTION = 3

#: The median rule waits for so many trials.
MEDIAN_TRIALS = 3


@dataclass(frozen=True)
class LearningCurve:
    """A finished trial: how many rounds it ran and what was measured."""

    rounds: int
    curve: Curve
    _at: dict[int, Vector | None] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(cls, trial: FrozenTrial, signs: Sequence[int]) -> LearningCurve:
        """What the study has of a trial that has ended, turned so that larger is better. signs: by metric."""
        found = {r: tuple(s * v for s, v in zip(signs, at, strict=True)) for r, at in curve(trial).items()}
        return cls(int(trial.user_attrs.get("rounds", 0)), found)

    def at(self, rung: int) -> Vector | None:
        """The last value up to a rung that it reached, if it is finite."""
        if rung not in self._at:
            value = value_at(self.curve, rung) if self.rounds >= rung else None
            self._at[rung] = value if value is not None and all(map(math.isfinite, value)) else None
        return self._at[rung]


class Rule(Protocol):
    """Asked after each round of a trial."""

    def stops(self, round_: int, curve: Curve) -> bool:
        """Whether the trial, having measured `curve` up to `round_`, ends here."""

    def may_stop(self, round_: int) -> bool:
        """Whether a trial may end in this round, whatever it measures."""


@dataclass(frozen=True)
class Never:
    """Every trial runs all its rounds."""

    def stops(self, round_: int, curve: Curve) -> bool:
        return False

    def may_stop(self, round_: int) -> bool:
        return False


@dataclass(frozen=True)
class Later:
    """`rule`, which is not asked before round `after` + 1."""

    after: int
    rule: Rule

    def stops(self, round_: int, curve: Curve) -> bool:
        return round_ > self.after and self.rule.stops(round_, curve)

    def may_stop(self, round_: int) -> bool:
        return self.rule.may_stop(round_)


@dataclass(frozen=True)
class Until:
    """`rule`, up to a `moment`: a trial ends where its next round would end after it, by what its rounds have taken on
    average since it `began`. Both in seconds since the epoch."""

    moment: float
    rule: Rule
    began: float

    def stops(self, round_: int, curve: Curve) -> bool:
        return self._is_over(round_) or self.rule.stops(round_, curve)

    def may_stop(self, round_: int) -> bool:
        """The round is still to come: it and the next one have to end in time."""
        return self._is_over(round_ - 1, 2) or self.rule.may_stop(round_)

    def _is_over(self, rounds: int, more: int = 1) -> bool:
        """Whether, after so many rounds, so many more would end after the moment."""
        now = time.time()
        return now + more * (now - self.began) / max(rounds, 1) >= self.moment


@dataclass(frozen=True)
class Halving:
    """`rungs`: by rung, a number of trials and values of earlier ones: a trial stops where so many of these are ahead
    of its own."""

    rungs: Mapping[int, tuple[int, Sequence[Vector]]] = field(default_factory=dict)

    @classmethod
    def of(cls, reduction: int, others: Mapping[int, Sequence[Vector]]) -> Halving:
        """others: by rung, what earlier trials had there. Of one metric only the value is kept by which it is decided:
        every trial has a rule, and of thousands of trials it would hold thousands of values."""
        return cls.of_sorted(reduction, {rung: sorted(values) for rung, values in others.items()})

    @classmethod
    def of_sorted(cls, reduction: int, others: Mapping[int, Sequence[Vector]]) -> Halving:
        """The same of values that are in order, the least first."""
        kept: dict[int, tuple[int, Sequence[Vector]]] = {}
        for rung, values in others.items():
            least = math.ceil((len(values) + 1) / reduction)
            if values and len(values[0]) == 1:
                kept[rung] = 1, [values[-least]]
            elif values:
                kept[rung] = least, [*values]
        return cls(kept)

    def stops(self, round_: int, curve: Curve) -> bool:
        own = value_at(curve, round_)
        if round_ not in self.rungs or own is None:
            return False
        least, others = self.rungs[round_]
        return ahead(own, others) >= least

    def may_stop(self, round_: int) -> bool:
        return round_ in self.rungs


@dataclass(frozen=True)
class Median:
    """`medians`: by round, the median of earlier trials' running means."""

    medians: Mapping[int, float] = field(default_factory=dict)

    def stops(self, round_: int, curve: Curve) -> bool:
        own = [v[0] for r, v in curve.items() if r <= round_]
        return bool(own) and round_ in self.medians and max(own) < self.medians[round_]

    def may_stop(self, round_: int) -> bool:
        return round_ in self.medians


class Earlier:
    """What earlier trials had in the rounds in which a scheduler compares, each round's values in order."""

    def __init__(self, scheduler: str, rounds: int, grace: int, reduction: int) -> None:
        """rounds: planned for a trial; grace: no trial is stopped before it."""
        if scheduler not in SCHEDULERS:
            raise ValueError(f"scheduler {scheduler!r}")
        self._scheduler, self._reduction = scheduler, reduction
        compared: Sequence[int] = rungs(rounds, grace, reduction) if scheduler == "asha" else ()
        compared = range(grace, rounds) if scheduler == "median" else compared
        self._values: dict[int, list[Vector]] = {round_: [] for round_ in compared}

    def add(self, history: LearningCurve) -> None:
        for round_, values in self._values.items():
            if (value := self._at(history, round_)) is not None:
                insort(values, value)

    def remove(self, history: LearningCurve) -> None:
        """Takes out one that was added."""
        for round_, values in self._values.items():
            if (value := self._at(history, round_)) is not None:
                del values[bisect_left(values, value)]

    def rule(self) -> Rule:
        """The scheduler's rule for the next trial."""
        if self._scheduler == "none":
            return Never()
        if self._scheduler == "asha":
            return Halving.of_sorted(self._reduction, self._values)
        enough = {round_: values for round_, values in self._values.items() if len(values) >= MEDIAN_TRIALS}
        return Median({round_: _middle(values) for round_, values in enough.items()})

    def _at(self, history: LearningCurve, round_: int) -> Vector | None:
        return history.at(round_) if self._scheduler == "asha" else _mean(history, round_)


def rungs(rounds: int, grace: int, reduction: int) -> list[int]:
    """The rounds at which halving compares, `grace · reduction^k` up to two thirds of the planned `rounds`.

    A trial stopped later than that would have cost nearly as much as a complete one, and have no final value."""
    found, rung = [], grace
    while 3 * rung <= 2 * rounds:
        found.append(rung)
        rung *= reduction
    return found


def default_grace(rounds: int, reduction: int) -> int:
    """The third round, or later where that still leaves three rungs; the first rounds of a federation say little.

    With TPE, in short searches, the first round gave a slightly better winner, but an estimate of it that is less true
    (`docs/early-stopping.md`)."""
    return min(max(3, rounds // reduction**3), max(1, rounds - 1))


def value_at(curve: Curve, round_: int) -> Vector | None:
    """The last value measured up to `round_` (not every round need be evaluated); None where there is none."""
    measured = [r for r in curve if r <= round_]
    return curve[max(measured)] if measured else None


def dominates(a: Vector, b: Vector) -> bool:
    """Pareto dominance: nowhere worse, somewhere better."""
    return all(x >= y for x, y in zip(a, b, strict=True)) and any(x > y for x, y in zip(a, b, strict=True))


def ahead(own: Vector, others: Sequence[Vector]) -> int:
    """How many of `others` lie on a Pareto front before that of `own`; for one metric, how many are strictly better."""
    if len(own) == 1:
        return sum(other[0] > own[0] for other in others)
    rest, passed = [*others, own], 0
    while True:
        front = [v for v in rest if not any(dominates(w, v) for w in rest)]
        if own in front:
            return passed
        passed += len(front)
        rest = [v for v in rest if v not in front]


def _mean(history: LearningCurve, round_: int) -> Vector | None:
    """The mean of a trial's values up to a round that it reached, those that are finite."""
    values = [v[0] for r, v in history.curve.items() if r <= round_ and math.isfinite(v[0])]
    return (statistics.fmean(values),) if history.rounds >= round_ and values else None


def _middle(values: Sequence[Vector]) -> float:
    """The median of values that are in order."""
    return (values[(len(values) - 1) // 2][0] + values[len(values) // 2][0]) / 2
