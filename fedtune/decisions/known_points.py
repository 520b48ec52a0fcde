"""Trials whose values are known before the sampler is asked: the first ones of a search, the cells of a grid, and draws
from the prior.

A trial with known values is written like a proposal, so the sampler, early stopping and all readers treat it like any
other. Where its values come from is recorded with it, as its user attribute `from`.

`--prior`: trials are drawn around the paper's values at first, and less and less often later.

The rule, for a trial that may look at `seen` earlier ones (results taken from earlier runs included):

    seen < STARTUP    the trial, which most samplers would draw at random, is drawn from the prior
    seen ≥ STARTUP    it is drawn from the prior with probability STARTUP / (2 · seen), else the sampler proposes it

So the probability is ½ after STARTUP trials, ¼ after twice as many, and falls like 1/n: a prior that is
wrong costs ever less of a search. A prior that fades like 1/n is from πBO (Hvarfner et al. 2022, ICLR), draws from the
prior among the search's own proposals are from PriorBand (Mallik et al. 2023, NeurIPS).

The prior itself, for each searched parameter by itself, has its centre at the paper's value, the declared default:

    number    a normal distribution in the unit coordinate u of its interval (log u where it is searched on a log
              scale), of standard deviation `width`, truncated to [0, 1]; then the nearest step or whole number. A
              default outside the interval counts as the interval's nearer end.
    option    the default has 1 / width times the weight of each other one; where it is not searched, all are equal.

    width     off: no prior     paper: 0.25     strong: 0.125     the smaller, the sharper

What trial n draws depends on the search's seed and n, and on nothing else.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

from fedtune.decisions.optuna_samplers import STARTUP
from fedtune.decisions.sampling import at, drawn, ends, generator, scaled
from search_spaces import run_folder
from search_spaces.dimension import Dimension
from search_spaces.errors import Shown, UserError, sentence
from search_spaces.parameter import Value
from search_spaces.space import Space

if TYPE_CHECKING:
    from fedtune.record.experiment import Experiment
    from search_spaces.space import Space

#: What a trial that was drawn from the prior says.
PRIOR = "the prior"


@dataclass(frozen=True)
class Point:
    """The searched values of a trial by key, and where they come from (empty: from the grid)."""

    values: Mapping[str, Value]
    origin: str = ""


class KnownPoints:
    """The known values of a search's configurations, by their number: that of the trial, where it is no further seed.

    Raises `UserError` where a point of the experiment lies outside the space (somebody edited the file)."""

    def __init__(self, experiment: Experiment, space: Space) -> None:
        self._first = [Point(dict(item["values"]), str(item["from"])) for item in experiment.first]
        self._experiment, self._space = experiment, space
        known = [point.values for point in self._first]
        cells = space.grid_points() if experiment.sampler == "grid" else []
        #: The cells of a grid that are not known from earlier runs.
        self._grid = [Point(cell) for cell in cells if cell not in known]
        # A grid's points are crossed with the conditions; what a sampler proposes is crossed later.
        inside = space.contains if experiment.sampler == "grid" else space.searches
        for point in self._first:
            if not inside(point.values):
                must = f"a point of the space that {run_folder.SPACE} describes"
                where = f"{run_folder.EXPERIMENT}, {point.origin}"
                got = Shown(", ".join(f"{key} {value}" for key, value in point.values.items()))
                raise UserError(sentence("values of first", must, got, where, "Undo the change of that file."))

    def more(self, number: int) -> bool:
        """Whether there is a configuration of that number: a grid has an end."""
        return self._experiment.sampler != "grid" or number < len(self._first) + len(self._grid)

    def of(self, number: int, seen: int) -> Point | None:
        """The values of configuration `number`, whose sampler may look at `seen` ones; None where the sampler proposes
        them."""
        if number < len(self._first):
            return self._first[number]
        if self._grid:
            return self._grid[number - len(self._first)]
        e = self._experiment
        drawn = draw(self._space, e.prior, e.seed, number, seen) if e.prior else None
        return None if drawn is None else Point(drawn, PRIOR)


#: Widths by the names that users type.
WIDTHS: dict[str, float] = {"off": 0.0, "paper": 0.25, "strong": 0.125}


def draw(space: Space, width: float, seed: int, number: int, seen: int) -> dict[str, Value] | None:
    """The values of trial `number`, by key, where it is drawn from the prior; None where the sampler proposes it.

    width: of the prior, in (0, 1]; seen: how many trials it may look at."""
    rng = generator(seed, number, "prior")
    if rng.random() >= share(seen):
        return None
    return drawn(
        space,
        option=lambda dimension: _option(dimension, width, rng),
        number=lambda dimension: _number(dimension, width, rng),
    )


def share(seen: int) -> float:
    """The probability that a trial is drawn from the prior."""
    return 1.0 if seen < STARTUP else STARTUP / (2 * seen)


def _option(dimension: Dimension, width: float, rng: random.Random) -> Value:
    options = dimension.values()
    weights = [1 / width if option == dimension.parameter.default else 1.0 for option in options]
    return rng.choices(options, weights)[0]


def _number(dimension: Dimension, width: float, rng: random.Random) -> Value:
    """A number from the truncated normal distribution around the default."""
    low, high = (scaled(dimension, end) for end in ends(dimension))
    if low == high:
        return at(dimension, 0.0)
    assert dimension.low is not None and dimension.high is not None
    default = min(max(float(dimension.parameter.default), dimension.low), dimension.high)
    normal = NormalDist((scaled(dimension, default) - low) / (high - low), width)
    bottom, top = normal.cdf(0.0), normal.cdf(1.0)
    # `inv_cdf` is not defined at 0 and 1, and rounding could lead just outside.
    level = min(max(bottom + rng.random() * (top - bottom), 1e-300), 1 - 1e-16)
    unit = min(max(normal.inv_cdf(level), 0.0), 1.0)
    return at(dimension, unit)
