"""One searched or varied parameter: the part of a declared `Parameter` that a space covers.

A dimension is exactly one Optuna distribution and back:

    real     FloatDistribution(low, high, log, step)
             CategoricalDistribution(grid) of a real or an integer whose `grid` has its only values
    integer  IntDistribution(low, high, log, step or 1)
    choice   CategoricalDistribution(options)
    flag     CategoricalDistribution((False, True))
    text     CategoricalDistribution(options), of conditions only (`search_spaces.space_entries`)

A choice may own sub-parameters, its children. They exist only in trials that chose their option; the study calls them
`<option>.<key>` (two options may own a parameter of the same name), the trial's values hold them under `<key>`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING

from search_spaces.parameter import Parameter, Value

if TYPE_CHECKING:
    from optuna import Trial
    from optuna.distributions import BaseDistribution

#: Relative slack with which a value counts as standing on a step, as Optuna's own.
_ON_STEP = 1e-8


@dataclass(frozen=True)
class Dimension:
    """One searched parameter. `low`, `high`, `log`, `step` belong to numbers, `options` to a choice or a text."""

    parameter: Parameter
    low: float | int | None = None
    high: float | int | None = None
    log: bool = False
    step: float | int | None = None
    options: tuple[str, ...] = ()
    #: The values a grid search visits, in that order; None: evenly spaced ones, or all options.
    grid: tuple[float | int, ...] | None = None
    #: Whether these are the only values that a trial may have; they stand in rising order.
    only: bool = False
    #: For a choice: what is searched while that option is chosen.
    children: Mapping[str, tuple[Dimension, ...]] = field(default_factory=dict)
    #: For a number: the part of a round's cost that is in proportion to it (`search_spaces.cost`); None: not marked.
    cost: float | None = None

    @property
    def key(self) -> str:
        return self.parameter.key

    @cached_property
    def drawn_from(self) -> tuple[float, float]:
        """For a number: the interval, on the scale that is searched. Half a step is added at both ends, so that
        rounding to steps gives the first and the last one as much room as the others."""
        assert self.low is not None and self.high is not None
        step = self.step or (1 if self.parameter.kind == "integer" else 0)
        low, high = self.low - step / 2, self.high + step / 2
        return (math.log(low), math.log(high)) if self.log else (low, high)

    @classmethod
    def of(cls, parameter: Parameter) -> Dimension:
        """The part of the declaration that a default search covers: `tune` where it names one, else all bounds or
        options.

        Raises ValueError where the declaration leaves no finite part to search."""
        tune = parameter.tune
        if parameter.kind == "flag":
            return cls(parameter)
        if parameter.kind == "choice":
            options = tuple(str(option) for option in tune) if isinstance(tune, tuple) else parameter.options
            children = {
                option: tuple(cls.of(child) for child in parameter.children[option] if child.tune is not False)
                for option in options
                if option in parameter.children
            }
            return cls(
                parameter, options=options, children={option: found for option, found in children.items() if found}
            )
        if parameter.kind == "text":
            raise ValueError(f"{parameter.key} is a text and cannot be searched")
        low, high = (parameter.low, parameter.high) if not isinstance(tune, tuple) else (float(tune[0]), float(tune[1]))
        if low is None or high is None:
            raise ValueError(f"{parameter.key} is declared without a lower or an upper bound")
        if parameter.kind == "integer":
            low, high = int(low), int(high)
        log = parameter.log and low > 0
        step = None if log or (parameter.kind == "integer" and parameter.step == 1) else parameter.step
        return cls(parameter, low, reachable(low, high, step), log, step)

    def distribution(self) -> BaseDistribution:
        """This dimension as Optuna sees it."""
        from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

        if self.parameter.kind == "flag":
            return CategoricalDistribution((False, True))
        if self.parameter.kind in ("choice", "text"):
            return CategoricalDistribution(self.options)
        if self.only:
            return CategoricalDistribution(self.grid or ())
        assert self.low is not None and self.high is not None
        if self.parameter.kind == "integer":
            return IntDistribution(int(self.low), int(self.high), log=self.log, step=int(self.step or 1))
        return FloatDistribution(self.low, self.high, log=self.log, step=self.step)

    def contains(self, value: object) -> bool:
        """Whether a trial of this space may hold `value`."""
        if self.parameter.kind == "flag":
            return isinstance(value, bool)
        if self.parameter.kind in ("choice", "text"):
            return value in self.options
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            return False
        if self.parameter.kind == "integer" and value != int(value):
            return False
        if self.only:
            return value in (self.grid or ())
        assert self.low is not None and self.high is not None
        if not self.low <= value <= self.high:
            return False
        return self.step is None or on_step(self.low, value, self.step)

    def values(self, points: int = 5) -> tuple[Value, ...]:
        """What a grid search visits: the grid, all options, or `points` evenly (log: geometrically) spaced values."""
        if self.parameter.kind == "flag":
            return (False, True)
        if self.parameter.kind in ("choice", "text"):
            return self.options
        if self.grid is not None:
            return self.grid
        assert self.low is not None and self.high is not None
        if self.step is not None or (self.parameter.kind == "integer" and not self.log):
            step = self.step or 1
            steps = sorted({round(i) for i in _spaced(0, round((self.high - self.low) / step), points)})
            found = [float(Decimal(str(self.low)) + i * Decimal(str(step))) for i in steps]
        elif self.log:
            found = [math.exp(v) for v in _spaced(math.log(self.low), math.log(self.high), points)]
        else:
            found = _spaced(self.low, self.high, points)
        if self.parameter.kind == "integer":
            return tuple(dict.fromkeys(round(v) for v in found))
        if self.step is None:  # A table should not show 0.30000000000000004, and the ends should be exact.
            found = (
                [float(self.low), *(float(f"{v:.12g}") for v in found[1:-1]), float(self.high)]
                if len(found) > 1
                else [float(self.low)]
            )
        return tuple(dict.fromkeys(found))

    def suggest(self, trial: Trial, prefix: str = "") -> dict[str, Value]:
        """Asks `trial` for this parameter and for those its chosen option owns; values by key."""
        name = prefix + self.key
        if self.parameter.kind in ("choice", "flag"):
            chosen = trial.suggest_categorical(name, (False, True) if self.parameter.kind == "flag" else self.options)
            found: dict[str, Value] = {self.key: chosen}
            for child in self.children.get(str(chosen), ()):
                found |= child.suggest(trial, f"{prefix}{chosen}.")
            return found
        if self.only:
            listed: tuple[float, ...] = self.grid or ()
            return {self.key: trial.suggest_categorical(name, listed)}
        assert self.low is not None and self.high is not None
        if self.parameter.kind == "integer":
            return {
                self.key: trial.suggest_int(name, int(self.low), int(self.high), log=self.log, step=int(self.step or 1))
            }
        return {self.key: trial.suggest_float(name, self.low, self.high, log=self.log, step=self.step)}

    def describe(self) -> str:
        """For a table: `[0.25, 1.5], grid of 6`, `mul, add`, `[0.001, 0.1] log`, `[5, 100], cost 0.8`."""
        if self.parameter.kind == "flag":
            return "true, false"
        if self.parameter.kind in ("choice", "text"):
            return ", ".join(self.options)
        if self.only:
            return ", ".join(f"{value:g}" for value in self.grid or ())
        text = (
            f"[{self.low:g}, {self.high:g}]"
            + (" log" if self.log else "")
            + (f" step {self.step:g}" if self.step else "")
        )
        text += f", grid of {len(self.grid)}" if self.grid is not None else ""
        return text + (f", cost {self.cost:g}" if self.cost is not None else "")

    def count(self, points: int) -> int:
        """How many values or, with children, combinations of values a grid search visits here."""
        return sum(
            math.prod(child.count(points) for child in self.children.get(str(value), ()))
            for value in self.values(points)
        )

    def combinations(self, points: int) -> list[dict[str, Value]]:
        """What a grid search visits here, by key: every value with every combination of its children's values."""
        found: list[dict[str, Value]] = []
        for value in self.values(points):
            owned = self.children.get(value, ()) if isinstance(value, str) else ()
            combinations = itertools.product(*(child.combinations(points) for child in owned))
            found += [
                {self.key: value} | {key: v for part in combination for key, v in part.items()}
                for combination in combinations
            ]
        return found


def _spaced(low: float, high: float, points: int) -> list[float]:
    if low == high or points == 1:
        return [low]
    return [low + (high - low) * i / (points - 1) for i in range(points)]


def on_step(low: float, value: float, step: float) -> bool:
    """Whether `value` is `low` plus a whole number of steps, up to rounding."""
    steps = (value - low) / step
    return abs(steps - round(steps)) < _ON_STEP


def reachable(low: float | int, high: float | int, step: float | int | None) -> float | int:
    """The largest value up to `high` that stands on a step from `low`; Optuna would lower `high` to it and warn."""
    if step is None:
        return high
    exact_low, exact_step = Decimal(str(low)), Decimal(str(step))
    length = Decimal(str(high)) - exact_low
    if length % exact_step == 0:
        return high
    top = length // exact_step * exact_step + exact_low
    return int(top) if isinstance(low, int) and isinstance(step, int) else float(top)
