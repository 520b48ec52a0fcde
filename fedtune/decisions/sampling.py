"""What is drawn for one trial of a search: its generator, and configurations, parameter by parameter."""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Callable
from decimal import Decimal

from fedtune.decisions.optuna_samplers import make_sampler
from fedtune.record.journal import quiet_optuna
from search_spaces.dimension import Dimension
from search_spaces.parameter import Value
from search_spaces.space import Space


def generator(seed: int, number: int, purpose: str) -> random.Random:
    """What is drawn for trial `number` of a search with this `seed`, for one purpose."""
    digest = hashlib.blake2b(f"{seed}/{number}/{purpose}".encode(), digest_size=8).digest()
    return random.Random(int.from_bytes(digest, "big"))


def at_random(space: Space, seed: int, number: int) -> dict[str, Value]:
    """By key, what `--sampler random` proposes for trial `number`, and the models of Optuna before they start."""
    import optuna

    with quiet_optuna():
        return space.suggest(optuna.create_study(sampler=make_sampler("random", seed, number)).ask())


def drawn(space: Space, option: Callable[[Dimension], Value], number: Callable[[Dimension], Value]) -> dict[str, Value]:
    """A configuration by key: `option` and `number` draw one parameter each, those of an option only where it was
    drawn."""
    found: dict[str, Value] = {}
    queue = list(space.search.values())
    while queue:
        dimension = queue.pop(0)
        value = option(dimension) if dimension.parameter.kind in ("choice", "flag") else number(dimension)
        found[dimension.key] = value
        queue.extend(dimension.children.get(str(value), ()))
    return found


def uniform(space: Space, rng: random.Random) -> dict[str, Value]:
    """A configuration by key, every option and every number of an interval (on its scale) as likely as any other."""
    return drawn(space, lambda d: rng.choice(d.values()), lambda d: at(d, rng.random()))


def ends(dimension: Dimension) -> tuple[float, float]:
    """The interval whose numbers are drawn. Half a step is added at both ends, so that rounding to steps gives the
    first and the last one as much room as the others."""
    assert dimension.low is not None and dimension.high is not None
    step = dimension.step or (1 if dimension.parameter.kind == "integer" else 0)
    return dimension.low - step / 2, dimension.high + step / 2


def scaled(dimension: Dimension, value: float) -> float:
    """The value on the scale that it is searched on."""
    return math.log(value) if dimension.log else value


def at(dimension: Dimension, unit: float) -> Value:
    """The value of the dimension nearest to the unit coordinate."""
    if dimension.only and dimension.grid:
        return dimension.grid[min(int(unit * len(dimension.grid)), len(dimension.grid) - 1)]
    assert dimension.low is not None and dimension.high is not None
    low, high = (scaled(dimension, end) for end in ends(dimension))
    place = low + unit * (high - low)
    value = min(max(math.exp(place) if dimension.log else place, dimension.low), dimension.high)
    if dimension.parameter.kind == "real" and dimension.step is None:
        return float(value)
    step = dimension.step or 1
    exact = Decimal(str(dimension.low)) + round((value - dimension.low) / step) * Decimal(str(step))
    return int(exact) if dimension.parameter.kind == "integer" else float(exact)
