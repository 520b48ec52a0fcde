"""Configurations as points of the unit cube, for models over a searched space."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def coordinates(trials: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> NDArray[np.float64]:
    """(n, d): the parameters of n trials, each as (values, Optuna's distributions) by name.

    A number lies in [0, 1], by its logarithm where it is searched so, and by its rank where it is one of several that
    are listed. An option is as far from every other one as a
    number's end from its beginning. What a trial does not have (it belongs to an option that was not chosen) lies in
    the middle."""
    parts = []
    for name, distribution in _parameters(trials):
        given = [values.get(name) for values, _ in trials]
        if _are_numbers(distribution):
            parts.append([[_rank(value, distribution.choices)] for value in given])
        elif hasattr(distribution, "choices"):
            parts.append([[(value == option) / math.sqrt(2) for option in distribution.choices] for value in given])
        else:
            parts.append([[_place(value, distribution)] for value in given])
    return np.hstack([np.array(part, dtype=float) for part in parts]) if parts else np.zeros((len(trials), 0))


def widths(trials: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> tuple[int, ...]:
    """How many of the `coordinates` of these trials each parameter has, in their order."""
    kinds = [distribution for _, distribution in _parameters(trials)]
    return tuple(len(kind.choices) if hasattr(kind, "choices") and not _are_numbers(kind) else 1 for kind in kinds)


def _parameters(trials: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> list[tuple[str, Any]]:
    """Every parameter that a trial has, with its distribution."""
    found: dict[str, Any] = {}
    for _, distributions in trials:
        found |= {name: d for name, d in distributions.items() if name not in found}
    return sorted(found.items())


def _are_numbers(distribution: Any) -> bool:
    """Whether listed numbers are searched."""
    choices = getattr(distribution, "choices", ())
    return bool(choices) and all(isinstance(one, (int, float)) and not isinstance(one, bool) for one in choices)


def _rank(value: Any, choices: Sequence[float]) -> float:
    if value is None or len(choices) < 2:
        return 0.5
    return sorted(choices).index(value) / (len(choices) - 1)


def _place(value: Any, distribution: Any) -> float:
    low, high = float(distribution.low), float(distribution.high)
    if value is None or high <= low:
        return 0.5
    if distribution.log:
        return (math.log(value) - math.log(low)) / (math.log(high) - math.log(low))
    return (float(value) - low) / (high - low)
