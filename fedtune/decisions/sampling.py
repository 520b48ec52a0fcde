"""What is drawn for one trial of a search: its generator, and configurations, parameter by parameter."""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Callable
from decimal import Decimal

from search_spaces.dimension import Dimension
from search_spaces.parameter import Value
from search_spaces.space import Space


def generator(seed: int, number: int, purpose: str) -> random.Random:
    """What is drawn for trial `number` of a search with this `seed`, for one purpose."""
    digest = hashlib.blake2b(f"{seed}/{number}/{purpose}".encode(), digest_size=8).digest()
    return random.Random(int.from_bytes(digest, "big"))


def drawn(space: Space, option: Callable[[Dimension], Value], number: Callable[[Dimension], Value]) -> dict[str, Value]:
    """A configuration by key: `option` and `number` draw one parameter each, those of an option only where it was
    drawn."""
    found: dict[str, Value] = {}
    queue = list(space.search.values())
    while queue:
        dimension = queue.pop(0)
        value = option(dimension) if dimension.parameter.kind in ("choice", "flag") else number(dimension)
        found[dimension.key] = value
        if dimension.children:
            queue.extend(dimension.children.get(str(value), ()))
    return found


def uniform(space: Space, rng: random.Random) -> dict[str, Value]:
    """A configuration by key, every option and every number of an interval (on its scale) as likely as any other."""
    return drawn(space, lambda d: rng.choice(d.values()), lambda d: at(d, rng.random()))


def spread(space: Space, seed: int, number: int) -> dict[str, Value]:
    """A configuration by key: point `number` of a sequence whose points fill the space evenly, each parameter by itself
    and all together, wherever the sequence ends: Halton's, scrambled by the seed (Owen 2017)."""
    from scipy.stats import qmc

    keys = list(dict.fromkeys(dimension.key for _, dimension in space.dimensions()))
    if not keys:
        return {}
    sequence = qmc.Halton(len(keys), scramble=True, seed=generator(seed, 0, "spread").getrandbits(63))
    sequence.num_generated = number  # `fast_forward` would draw all points before it
    unit = dict(zip(keys, map(float, sequence.random(1)[0]), strict=True))

    def option(dimension: Dimension) -> Value:
        options = dimension.values()
        return options[int(unit[dimension.key] * len(options))]

    return drawn(space, option, lambda dimension: at(dimension, unit[dimension.key]))


def at(dimension: Dimension, unit: float) -> Value:
    """The value of the dimension nearest to the unit coordinate."""
    if dimension.only and dimension.grid:
        return dimension.grid[min(int(unit * len(dimension.grid)), len(dimension.grid) - 1)]
    assert dimension.low is not None and dimension.high is not None
    low, high = dimension.drawn_from
    place = low + unit * (high - low)
    value = min(max(math.exp(place) if dimension.log else place, dimension.low), dimension.high)
    if dimension.parameter.kind == "real" and dimension.step is None:
        return float(value)
    step = dimension.step or 1
    exact = Decimal(str(dimension.low)) + round((value - dimension.low) / step) * Decimal(str(step))
    return int(exact) if dimension.parameter.kind == "integer" else float(exact)
