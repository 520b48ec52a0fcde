"""Fresh seeds of `fedtune auto`: how many the best configuration of each method gets, and which go on to further ones.

The best configurations of M methods begin with the same few seeds. Those that cannot be told from the best one go on,
all with the same further seeds, half as many again as they had, until one is left, the seeds are at an end or the
budget is. What tells them apart is a t test on pairs with one noise for all: y_ms is the value of method m on seed s,

    s² = Σ_ms (y_ms - ȳ_m - ȳ_s + ȳ)² / ((M - 1)(S - 1)),    t_m = (ȳ_best - ȳ_m) / √(2 s² / S)

with (M - 1)(S - 1) degrees of freedom, one-sided: with two seeds a test of each pair by itself would have one. What a
seed does to all methods alike is in ȳ_s and cancels. A method is told apart where its p is at most `RISK`.

Of a budget by the clock, time may run out. Then every method first has fewer seeds, down to one, and after that those
of which the search expects least have none.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence

import numpy as np

#: The probability with which a method is dropped that is as good as the best one.
RISK = 0.05


def rivals(values: Mapping[str, Mapping[int, float]], sign: float) -> list[str]:
    """The methods that cannot be told from the best one, which comes first.

    values: by method, its values by seed; the seeds that all have are compared. sign: 1 where more is better, -1 where
    less is. Methods without a finite value on such a seed are told apart."""
    able = {name: {s: v for s, v in of.items() if math.isfinite(v)} for name, of in values.items()}
    most = max(map(len, able.values()), default=0)
    able = {name: of for name, of in able.items() if of and len(of) == most}
    seeds = sorted(set.intersection(*(set(of) for of in able.values()))) if able else []
    if not seeds:
        return list(able)
    table = sign * np.array([[of[seed] for seed in seeds] for of in able.values()])
    means = table.mean(axis=1)
    order = sorted(range(len(able)), key=lambda m: (-means[m], m))
    names = list(able)
    methods, count = table.shape
    freedom = (methods - 1) * (count - 1)
    if freedom == 0:
        return [names[m] for m in order]
    from scipy.special import stdtr

    rest = table - means[:, None] - table.mean(axis=0)[None, :] + table.mean()
    error = math.sqrt(2 * float((rest**2).sum()) / freedom / count)
    found = [names[order[0]]]
    for m in order[1:]:
        behind = float(means[order[0]] - means[m])
        p = float(stdtr(freedom, -behind / error)) if error > 0 else 0.5 * (behind <= 0)
        if p > RISK:
            found.append(names[m])
    return found


def next_count(had: int, most: int) -> int:
    """How many seeds those have next that had so many and cannot be told apart."""
    return min(most, had + max(1, had // 2))


def first_count(prices: Sequence[float], seeds: int, left: float, slots: int) -> tuple[int, int]:
    """How many seeds come first, and for how many of the methods, where so many seconds are `left`.

    prices: seconds of one seed of each method, the one of which most is expected first; seeds: how many are planned."""
    for count in range(seeds, 0, -1):
        if together(list(prices) * count, slots) <= left:
            return count, len(prices)
    for methods in range(len(prices) - 1, 1, -1):
        if together(prices[:methods], slots) <= left:
            return 1, methods
    return 1, 1


def together(prices: Sequence[float], slots: int) -> float:
    """After how many seconds trials of these prices have ended, in this order and so many at the same time."""
    ends = [0.0] * max(1, slots)
    for price in prices:
        heapq.heappush(ends, heapq.heappop(ends) + price)
    return max(ends)
