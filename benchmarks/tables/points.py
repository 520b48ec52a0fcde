"""Configurations as points of the unit cube, and back: for drawing them evenly, and for models over a space.

A space has one coordinate per dimension, those that belong to options of a choice too. Coordinates of options that are
not chosen do not matter; `to_unit` puts them in the middle.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from search_spaces.dimension import Dimension
from search_spaces.parameter import Value
from search_spaces.space import Space

Unit = NDArray[np.float64]


def coordinates(space: Space) -> int:
    """How many coordinates a point of the space has."""
    return sum(1 for _ in space.dimensions())


def from_unit(space: Space, point: Sequence[float] | Unit) -> dict[str, Value]:
    """The configuration at `point` in [0, 1)^n, with parameters of chosen options only."""
    places = iter(point)
    return _values(space.search.values(), places, wanted=True)


def _values(dimensions: Iterable[Dimension], places: Iterator[float], wanted: bool) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for dimension in dimensions:
        value = value_at(dimension, float(next(places)))
        if wanted:
            found[dimension.key] = value
        for option, children in dimension.children.items():
            found |= _values(children, places, wanted and str(value) == option)
    return found


def value_at(dimension: Dimension, place: float) -> Value:
    """The value at `place` in [0, 1): evenly over the interval (log: over its logarithm), the steps, or the options."""
    place = min(max(place, 0.0), math.nextafter(1.0, 0.0))
    if dimension.parameter.kind == "flag":
        return place >= 0.5
    if dimension.parameter.kind == "choice":
        return dimension.options[int(place * len(dimension.options))]
    assert dimension.low is not None and dimension.high is not None
    low, high = float(dimension.low), float(dimension.high)
    if dimension.parameter.kind == "integer" and dimension.step is None:
        # Every whole number has a part of the interval from half below the least to half above the largest.
        return min(max(round(_between(low - 0.5, high + 0.5, place, dimension.log)), int(low)), int(high))
    if dimension.step is not None:
        steps = round((high - low) / dimension.step)
        found = low + int(place * (steps + 1)) * dimension.step
        return int(found) if dimension.parameter.kind == "integer" else float(f"{found:.12g}")
    return min(max(float(f"{_between(low, high, place, dimension.log):.6g}"), low), high)


def _between(low: float, high: float, place: float, log: bool) -> float:
    if not log:
        return low + place * (high - low)
    return math.exp(math.log(low) + place * (math.log(high) - math.log(low)))


def to_unit(space: Space, values: Mapping[str, Value]) -> Unit:
    """The point of a configuration; 0.5 for what belongs to an option that was not chosen."""
    return np.array([*_places(list(space.search.values()), values, chosen=True)])


def _places(dimensions: Sequence[Dimension], values: Mapping[str, Value], chosen: bool) -> Iterator[float]:
    for dimension in dimensions:
        there = chosen and dimension.key in values
        yield place_of(dimension, values[dimension.key]) if there else 0.5
        for option, children in dimension.children.items():
            yield from _places(children, values, there and str(values[dimension.key]) == option)


def place_of(dimension: Dimension, value: Value) -> float:
    """Where in [0, 1] a value lies; the middle of its part for an option, a step or a whole number."""
    if dimension.parameter.kind == "flag":
        return 0.75 if value else 0.25
    if dimension.parameter.kind == "choice":
        return (dimension.options.index(str(value)) + 0.5) / len(dimension.options)
    assert dimension.low is not None and dimension.high is not None
    low, high, number = float(dimension.low), float(dimension.high), float(value)
    if dimension.step is not None:
        steps = round((high - low) / dimension.step)
        return (round((number - low) / dimension.step) + 0.5) / (steps + 1)
    if dimension.parameter.kind == "integer":
        low, high = low - 0.5, high + 0.5
    if dimension.log:
        low, high, number = math.log(low), math.log(high), math.log(number)
    return (number - low) / (high - low)


def sobol(space: Space, count: int, seed: int = 0) -> list[dict[str, Value]]:
    """`count` configurations spread evenly; those of a smaller count are the first of a larger one."""
    from scipy.stats import qmc

    drawn = qmc.Sobol(coordinates(space), seed=seed).random_base2(max(1, math.ceil(math.log2(max(count, 2)))))
    return [from_unit(space, point) for point in drawn[:count]]


def random(space: Space, count: int, seed: int = 0) -> list[dict[str, Value]]:
    """`count` configurations drawn independently; those of a smaller count are the first of a larger one."""
    drawn = np.random.default_rng(seed).random((count, coordinates(space)))
    return [from_unit(space, point) for point in drawn]
