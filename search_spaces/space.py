"""A search space: which declared parameters are searched, which are conditions of the experiment, and what stays fixed.

A `Space` is several dimensions (`search_spaces.dimension`) plus fixed values, figures and profiles. It keeps apart what
is tuned and what is studied: the dimensions of `search` are hyper-parameters, those of `vary` conditions of the
experiment, such as ω or the data set. Nobody looks for the best condition: every configuration of the hyper-parameters
is run under each combination of the conditions' values.

A dimension's `grid` is the list of values a grid search visits; every other sampler searches the interval they span. A
grid search visits the product of the dimensions' values, or, in a space that is `one_at_a_time`, lines through one
point: all parameters at their declared defaults first, then each dimension's other values with the rest at their
defaults. Other samplers search the whole product either way. The conditions are crossed with what the sampler proposes.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from search_spaces.dimension import Dimension
from search_spaces.parameter import Parameter, Value

if TYPE_CHECKING:
    from optuna import Trial
    from optuna.distributions import BaseDistribution


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
    metric: tuple[str, ...] = ("val_global_accuracy",)
    #: The paper chose its best configuration on the test set; its profile does the same and says so.
    select_on_test: bool = False
    #: A grid search varies one dimension while the others stay at their defaults.
    one_at_a_time: bool = False
    #: The conditions of the experiment; each has a list of values, and none has children.
    vary: Mapping[str, Dimension] = field(default_factory=dict)

    def dimensions(self) -> Iterator[tuple[str, Dimension]]:
        """Every searched dimension, children too, by its name in the study."""
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
        """A study's parameters (`{"method": "dfrd", "dfrd.alpha": 0.5}`), conditions too, as values by key."""
        return {name.rsplit(".", 1)[-1]: value for name, value in params.items()}

    def params(self, values: Mapping[str, Value]) -> dict[str, Value]:
        """Values by key as the study calls them; the inverse of `values`, for enqueuing a grid's points."""
        found: dict[str, Value] = {}

        def collect(dimensions: Iterable[Dimension], prefix: str) -> None:
            for dimension in dimensions:
                if dimension.key in values:
                    found[prefix + dimension.key] = values[dimension.key]
                    if dimension.children:
                        option = str(values[dimension.key])
                        collect(dimension.children.get(option, ()), f"{prefix}{option}.")

        collect(self.search.values(), "")
        return found | self.condition_of(values)

    def conditions(self) -> list[dict[str, Value]]:
        """Every combination of the conditions' values, the last one running fastest; where nothing is varied the one
        empty combination."""
        combinations = itertools.product(*(dimension.combinations(0) for dimension in self.vary.values()))
        return [{key: value for part in combination for key, value in part.items()} for combination in combinations]

    def condition_of(self, values: Mapping[str, Value]) -> dict[str, Value]:
        """Of values by key, those of the conditions."""
        return {key: values[key] for key in self.vary if key in values}

    def grid_points(self, points: int = 5) -> list[dict[str, Value]]:
        """Every combination of the searched dimensions' grid values, the last dimension running fastest; with
        `one_at_a_time` the point of all defaults, then for each dimension in turn its other values with the rest at
        their defaults. Each of them under every condition before the next one."""
        conditions = self.conditions()
        return [cell | condition for cell in self._searched_points(points) for condition in conditions]

    def _searched_points(self, points: int) -> list[dict[str, Value]]:
        """The same without the conditions."""
        if self.one_at_a_time:
            start = {key: dimension.parameter.default for key, dimension in self.search.items()}
            return [
                start,
                *(
                    start | {key: value}
                    for key, dimension in self.search.items()
                    for value in dimension.values(points)
                    if value != start[key]
                ),
            ]
        combinations = itertools.product(*(dimension.combinations(points) for dimension in self.search.values()))
        return [{key: value for part in combination for key, value in part.items()} for combination in combinations]

    def cells(self, points: int = 5) -> int:
        """How many points `grid_points` gives, without making them."""
        if self.one_at_a_time:
            return len(self.grid_points(points))
        return math.prod(dimension.count(points) for dimension in (*self.search.values(), *self.vary.values()))

    def contains(self, values: Mapping[str, object]) -> bool:
        """Whether `values` by key is a complete point of this space, conditions included: nothing missing, outside or
        left over."""
        rest = {key: value for key, value in values.items() if key not in self.vary}
        if not all(key in values and dimension.contains(values[key]) for key, dimension in self.vary.items()):
            return False
        return self.searches(rest)

    def searches(self, values: Mapping[str, object]) -> bool:
        """Whether `values` by key is a complete point of what is searched."""
        rest = dict(values)
        queue = list(self.search.values())
        while queue:
            dimension = queue.pop()
            if dimension.key not in rest or not dimension.contains(rest[dimension.key]):
                return False
            queue.extend(dimension.children.get(str(rest.pop(dimension.key)), ()))
        return not rest

    def declared_point(self) -> dict[str, Value] | None:
        """The point at which every searched parameter has its declared default, which is the paper's value; None where
        one of these lies outside this space (of a stepped dimension, between its steps)."""
        found: dict[str, Value] = {}
        queue = list(self.search.values())
        while queue:
            dimension = queue.pop(0)
            found[dimension.key] = dimension.parameter.default
            queue.extend(dimension.children.get(str(dimension.parameter.default), ()))
        return found if self.searches(found) else None

    def to_json(self) -> dict[str, Any]:
        """What `space.json` holds; `from_json` gives the same space back."""
        return {
            "name": self.name,
            "method": self.method,
            "title": self.title,
            "source": self.source,
            "search": [dimension_to_json(dimension) for dimension in self.search.values()],
            "vary": [dimension_to_json(dimension) for dimension in self.vary.values()],
            "fixed": dict(self.fix),
            "profiles": {name: dict(values) for name, values in self.profiles.items()},
            "figures": list(self.figures),
            "metric": list(self.metric),
            "select_on_test": self.select_on_test,
            "one_at_a_time": self.one_at_a_time,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Space:
        """The space that `to_json` wrote."""
        dimensions = [dimension_from_json(item) for item in data["search"]]
        varied = [dimension_from_json(item) for item in data["vary"]]
        return cls(
            name=data["name"],
            method=data["method"],
            title=data["title"],
            source=data["source"],
            search={dimension.key: dimension for dimension in dimensions},
            vary={dimension.key: dimension for dimension in varied},
            fix=dict(data["fixed"]),
            profiles={name: dict(values) for name, values in data["profiles"].items()},
            figures=tuple(data["figures"]),
            metric=tuple(data["metric"]),
            select_on_test=data["select_on_test"],
            one_at_a_time=data["one_at_a_time"],
        )


def _named(dimensions: Iterable[Dimension], prefix: str) -> Iterator[tuple[str, Dimension]]:
    for dimension in dimensions:
        yield prefix + dimension.key, dimension
        for option, children in dimension.children.items():
            yield from _named(children, f"{prefix}{option}.")


def dimension_to_json(dimension: Dimension) -> dict[str, Any]:
    """A dimension as plain data: what readers of `space.json` need to label an axis, and the whole declaration."""
    parameter = dimension.parameter
    return {
        **({"only": True} if dimension.only else {}),
        "key": dimension.key,
        "kind": parameter.kind,
        "label": parameter.label,
        "symbol": parameter.symbol,
        "doc": parameter.doc,
        "source": parameter.source,
        "unit": parameter.unit,
        "low": dimension.low,
        "high": dimension.high,
        "log": dimension.log,
        "step": dimension.step,
        "options": list(dimension.options),
        "grid": None if dimension.grid is None else list(dimension.grid),
        "cost": dimension.cost,
        "children": {
            option: [dimension_to_json(child) for child in children] for option, children in dimension.children.items()
        },
        "declared": parameter_to_json(parameter),
    }


def dimension_from_json(data: Mapping[str, Any]) -> Dimension:
    """The inverse of `dimension_to_json`."""
    return Dimension(
        parameter_from_json(data["declared"]),
        data["low"],
        data["high"],
        data["log"],
        data["step"],
        tuple(data["options"]),
        None if data["grid"] is None else tuple(data["grid"]),
        bool(data.get("only", False)),
        {
            option: tuple(dimension_from_json(child) for child in children)
            for option, children in data["children"].items()
        },
        data["cost"],
    )


def parameter_to_json(parameter: Parameter) -> dict[str, Any]:
    """A declaration as plain data, without `work`, which a record has no use for."""
    data = {f.name: getattr(parameter, f.name) for f in dataclasses.fields(parameter) if f.name != "work"}
    data |= {"options": list(parameter.options), "names": dict(parameter.names)}
    if not parameter.files:  # as in records of earlier versions
        del data["files"]
    data["children"] = {
        option: [parameter_to_json(child) for child in children] for option, children in parameter.children.items()
    }
    data["tune"] = list(parameter.tune) if isinstance(parameter.tune, tuple) else parameter.tune
    return data


def parameter_from_json(data: Mapping[str, Any]) -> Parameter:
    """The inverse of `parameter_to_json`."""
    fields = dict(data)
    fields["options"] = tuple(data["options"])
    fields["children"] = {
        option: tuple(parameter_from_json(child) for child in children) for option, children in data["children"].items()
    }
    fields["tune"] = tuple(data["tune"]) if isinstance(data["tune"], list) else data["tune"]
    return Parameter(**fields)
