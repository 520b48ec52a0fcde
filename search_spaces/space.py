"""A search space: which declared parameters vary, where, and what stays fixed.

A `Dimension` narrows one declared `Parameter`; a `Space` is several of them plus fixed values, figures and profiles.
A dimension is exactly one Optuna distribution and back:

    real     FloatDistribution(low, high, log, step)
    integer  IntDistribution(low, high, log, step or 1)
    choice   CategoricalDistribution(options)
    flag     CategoricalDistribution((False, True))

A `grid` is the list of values a grid search visits; every other sampler searches the interval they span. A grid search
visits the product of the dimensions' values, or, in a space that is `one_at_a_time`, lines through one point: all
parameters at their declared defaults first, then each dimension's other values with the rest at their defaults. Other
samplers search the whole product either way.

A choice may own sub-parameters. Those exist only in trials that chose their option; the study calls them
`<option>.<key>` (two options may own a parameter of the same name), the trial's values hold them under `<key>`.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from search_spaces.parameter import Parameter, Value

if TYPE_CHECKING:
    from optuna import Trial
    from optuna.distributions import BaseDistribution

#: Relative slack with which a value counts as standing on a step, as Optuna's own.
_ON_STEP = 1e-8


@dataclass(frozen=True)
class Dimension:
    """One searched parameter. `low`, `high`, `log`, `step` belong to numbers, `options` to a choice."""

    parameter: Parameter
    low: float | int | None = None
    high: float | int | None = None
    log: bool = False
    step: float | int | None = None
    options: tuple[str, ...] = ()
    #: The values a grid search visits, in that order; None: evenly spaced ones, or all options.
    grid: tuple[float | int, ...] | None = None
    #: For a choice: what is searched while that option is chosen.
    children: Mapping[str, tuple[Dimension, ...]] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return self.parameter.key

    @classmethod
    def of(cls, parameter: Parameter) -> Dimension:
        """The part of the declaration that a default search covers: `tune` where it names one, else all bounds or options.

        Raises ValueError where the declaration leaves no finite part to search."""
        tune = parameter.tune
        if parameter.kind == "flag":
            return cls(parameter)
        if parameter.kind == "choice":
            options = tuple(str(option) for option in tune) if isinstance(tune, tuple) else parameter.options
            children = {
                option: tuple(cls.of(child) for child in parameter.children[option] if child.tune is not False)
                for option in options if option in parameter.children
            }
            return cls(parameter, options=options, children={option: found for option, found in children.items() if found})
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
        if self.parameter.kind == "choice":
            return CategoricalDistribution(self.options)
        assert self.low is not None and self.high is not None
        if self.parameter.kind == "integer":
            return IntDistribution(int(self.low), int(self.high), log=self.log, step=int(self.step or 1))
        return FloatDistribution(self.low, self.high, log=self.log, step=self.step)

    @classmethod
    def from_distribution(cls, parameter: Parameter, distribution: BaseDistribution) -> Dimension:
        """The dimension whose distribution this is; the inverse of `distribution` (a grid and children are not part of it)."""
        from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

        if isinstance(distribution, CategoricalDistribution):
            return cls(parameter, options=() if parameter.kind == "flag" else tuple(str(c) for c in distribution.choices))
        assert isinstance(distribution, (FloatDistribution, IntDistribution)), distribution
        step = None if isinstance(distribution, IntDistribution) and distribution.step == 1 else distribution.step
        return cls(parameter, distribution.low, distribution.high, distribution.log, step)

    def contains(self, value: object) -> bool:
        """Whether a trial of this space may hold `value`."""
        if self.parameter.kind == "flag":
            return isinstance(value, bool)
        if self.parameter.kind == "choice":
            return value in self.options
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            return False
        if self.parameter.kind == "integer" and value != int(value):
            return False
        assert self.low is not None and self.high is not None
        if not self.low <= value <= self.high:
            return False
        return self.step is None or on_step(self.low, value, self.step)

    def values(self, points: int = 5) -> tuple[Value, ...]:
        """What a grid search visits here: the grid, all options, or `points` evenly (log: geometrically) spaced numbers."""
        if self.parameter.kind == "flag":
            return (False, True)
        if self.parameter.kind == "choice":
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
        if self.step is None:  # no 0.30000000000000004 in a table, and the ends exactly
            found = [float(self.low), *(float(f"{v:.12g}") for v in found[1:-1]), float(self.high)] if len(found) > 1 else [float(self.low)]
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
        assert self.low is not None and self.high is not None
        if self.parameter.kind == "integer":
            return {self.key: trial.suggest_int(name, int(self.low), int(self.high), log=self.log, step=int(self.step or 1))}
        return {self.key: trial.suggest_float(name, self.low, self.high, log=self.log, step=self.step)}

    def describe(self) -> str:
        """For a table: `[0.25, 1.5], grid of 6`, `mul, add`, `[0.001, 0.1] log`."""
        if self.parameter.kind == "flag":
            return "true, false"
        if self.parameter.kind == "choice":
            return ", ".join(self.options)
        text = f"[{self.low:g}, {self.high:g}]" + (" log" if self.log else "") + (f" step {self.step:g}" if self.step else "")
        return f"{text}, grid of {len(self.grid)}" if self.grid is not None else text

    def _count(self, points: int) -> int:
        return sum(math.prod(child._count(points) for child in self.children.get(str(value), ())) for value in self.values(points))

    def _points(self, points: int) -> list[dict[str, Value]]:
        found: list[dict[str, Value]] = []
        for value in self.values(points):
            owned = self.children.get(value, ()) if isinstance(value, str) else ()
            combinations = itertools.product(*(child._points(points) for child in owned))
            found += [{self.key: value} | {key: v for part in combination for key, v in part.items()} for combination in combinations]
        return found


@dataclass(frozen=True)
class Space:
    """What a search varies and what it holds fixed, with the figures that belong to it."""

    name: str
    method: str
    search: Mapping[str, Dimension]
    title: str = ""
    source: str = ""
    fix: Mapping[str, Value] = field(default_factory=dict)
    #: `small` and `paper`: values by key, and the experiment's `seeds`, `trials`, `sampler`, `scheduler`.
    profiles: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)
    figures: tuple[str, ...] = ()
    #: Name of the table in `analysis/published` to show beside ours.
    published: str | None = None
    metric: tuple[str, ...] = ("val_global_accuracy",)
    #: The paper chose its best configuration on the test set; its profile does the same and says so.
    select_on_test: bool = False
    #: A grid search varies one dimension while the others stay at their defaults.
    one_at_a_time: bool = False

    def dimensions(self) -> Iterator[tuple[str, Dimension]]:
        """Every dimension, children too, by its name in the study."""
        yield from _named(self.search.values(), "")

    def distributions(self) -> dict[str, BaseDistribution]:
        """Optuna's distributions by name in the study; those of children apply only under their option."""
        return {name: dimension.distribution() for name, dimension in self.dimensions()}

    def suggest(self, trial: Trial) -> dict[str, Value]:
        """One configuration of the searched parameters, by key; sub-parameters only of the options that were chosen."""
        found: dict[str, Value] = {}
        for dimension in self.search.values():
            found |= dimension.suggest(trial)
        return found

    def values(self, params: Mapping[str, Any]) -> dict[str, Value]:
        """A study's parameters (`{"method": "dfrd", "dfrd.alpha": 0.5}`) as values by key."""
        return {name.rsplit(".", 1)[-1]: value for name, value in params.items()}

    def params(self, values: Mapping[str, Value]) -> dict[str, Value]:
        """Values by key as the study calls them; the inverse of `values`, for enqueuing a grid's points."""
        found: dict[str, Value] = {}

        def collect(dimensions: Iterable[Dimension], prefix: str) -> None:
            for dimension in dimensions:
                if dimension.key in values:
                    found[prefix + dimension.key] = values[dimension.key]
                    option = str(values[dimension.key])
                    collect(dimension.children.get(option, ()), f"{prefix}{option}.")

        collect(self.search.values(), "")
        return found

    def grid_points(self, points: int = 5) -> list[dict[str, Value]]:
        """Every combination of the dimensions' grid values, the last dimension running fastest; with `one_at_a_time` the
        point of all defaults, then for each dimension in turn its other values with the rest at their defaults."""
        if self.one_at_a_time:
            start = {key: dimension.parameter.default for key, dimension in self.search.items()}
            return [start, *(start | {key: value} for key, dimension in self.search.items() for value in dimension.values(points) if value != start[key])]
        combinations = itertools.product(*(dimension._points(points) for dimension in self.search.values()))
        return [{key: value for part in combination for key, value in part.items()} for combination in combinations]

    def cells(self, points: int = 5) -> int:
        """How many points `grid_points` gives, without making them."""
        if self.one_at_a_time:
            return len(self.grid_points(points))
        return math.prod(dimension._count(points) for dimension in self.search.values())

    def contains(self, values: Mapping[str, object]) -> bool:
        """Whether `values` by key is a complete point of this space: nothing missing, outside or left over."""
        rest = dict(values)
        queue = list(self.search.values())
        while queue:
            dimension = queue.pop()
            if dimension.key not in rest or not dimension.contains(rest[dimension.key]):
                return False
            queue.extend(dimension.children.get(str(rest.pop(dimension.key)), ()))
        return not rest

    def to_json(self) -> dict[str, Any]:
        """What `space.json` holds; `from_json` gives the same space back."""
        return {
            "name": self.name, "method": self.method, "title": self.title, "source": self.source,
            "search": [dimension_to_json(dimension) for dimension in self.search.values()],
            "fixed": dict(self.fix), "profiles": {name: dict(values) for name, values in self.profiles.items()},
            "figures": list(self.figures), "published": self.published, "metric": list(self.metric), "select_on_test": self.select_on_test,
            "one_at_a_time": self.one_at_a_time,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Space:
        """The space that `to_json` wrote."""
        dimensions = [dimension_from_json(item) for item in data["search"]]
        return cls(
            name=data["name"], method=data["method"], title=data["title"], source=data["source"],
            search={dimension.key: dimension for dimension in dimensions}, fix=dict(data["fixed"]),
            profiles={name: dict(values) for name, values in data["profiles"].items()}, figures=tuple(data["figures"]),
            published=data["published"], metric=tuple(data["metric"]), select_on_test=data["select_on_test"],
            one_at_a_time=data.get("one_at_a_time", False),
        )


def _named(dimensions: Iterable[Dimension], prefix: str) -> Iterator[tuple[str, Dimension]]:
    for dimension in dimensions:
        yield prefix + dimension.key, dimension
        for option, children in dimension.children.items():
            yield from _named(children, f"{prefix}{option}.")




def _spaced(low: float, high: float, points: int) -> list[float]:
    if low == high or points == 1:
        return [low]
    return [low + (high - low) * i / (points - 1) for i in range(points)]


def on_step(low: float, value: float, step: float) -> bool:
    """Whether `value` is `low` plus a whole number of steps, up to rounding."""
    steps = (value - low) / step
    return abs(steps - round(steps)) < _ON_STEP


def reachable(low: float | int, high: float | int, step: float | int | None) -> float | int:
    """The largest value of at most `high` that stands on a step from `low`; Optuna would lower `high` to it with a warning."""
    if step is None:
        return high
    exact_low, exact_step = Decimal(str(low)), Decimal(str(step))
    length = Decimal(str(high)) - exact_low
    if length % exact_step == 0:
        return high
    top = length // exact_step * exact_step + exact_low
    return int(top) if isinstance(low, int) and isinstance(step, int) else float(top)


def dimension_to_json(dimension: Dimension) -> dict[str, Any]:
    """A dimension as plain data: what readers of `space.json` need to label an axis, and the whole declaration."""
    parameter = dimension.parameter
    return {
        "key": dimension.key, "kind": parameter.kind, "label": parameter.label, "symbol": parameter.symbol, "doc": parameter.doc,
        "source": parameter.source, "unit": parameter.unit, "low": dimension.low, "high": dimension.high, "log": dimension.log,
        "step": dimension.step, "options": list(dimension.options), "grid": None if dimension.grid is None else list(dimension.grid),
        "children": {option: [dimension_to_json(child) for child in children] for option, children in dimension.children.items()},
        "declared": parameter_to_json(parameter),
    }


def dimension_from_json(data: Mapping[str, Any]) -> Dimension:
    """The inverse of `dimension_to_json`."""
    return Dimension(
        parameter_from_json(data["declared"]), data["low"], data["high"], data["log"], data["step"], tuple(data["options"]),
        None if data["grid"] is None else tuple(data["grid"]),
        {option: tuple(dimension_from_json(child) for child in children) for option, children in data["children"].items()},
    )


def parameter_to_json(parameter: Parameter) -> dict[str, Any]:
    """A declaration as plain data."""
    data = {f.name: getattr(parameter, f.name) for f in dataclasses.fields(parameter)}
    data["options"] = list(parameter.options)
    data["children"] = {option: [parameter_to_json(child) for child in children] for option, children in parameter.children.items()}
    data["tune"] = list(parameter.tune) if isinstance(parameter.tune, tuple) else parameter.tune
    return data


def parameter_from_json(data: Mapping[str, Any]) -> Parameter:
    """The inverse of `parameter_to_json`."""
    fields = dict(data)
    fields["options"] = tuple(data["options"])
    fields["children"] = {option: tuple(parameter_from_json(child) for child in children) for option, children in data["children"].items()}
    fields["tune"] = tuple(data["tune"]) if isinstance(data["tune"], list) else data["tune"]
    return Parameter(**fields)
