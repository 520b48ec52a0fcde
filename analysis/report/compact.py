"""A figure's numbers with as many digits as can be seen, so that the page of a large search stays small.

A number is a double of up to 17 digits; on a screen of some thousand pixels its sixth digit cannot be seen any more.
What is left out is at most a hundred-thousandth of what an array spans, on a logarithmic axis of each number itself.
Whole numbers, among them those of trials, stay as they are, and so does what the reader can copy: the table of trials.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: What may be left out of a number, as a part of it and of its array's span.
PART = 1e-5
#: Digits that are always kept.
DIGITS = 6
#: The arrays of a trace that are drawn; what is behind a link or in a text keeps all its digits.
ARRAYS = ("x", "y", "z")
_SINGLE = np.finfo(np.float32)


def compact(figure: dict[str, Any]) -> dict[str, Any]:
    """`figure` as Plotly's JSON has it, its traces' arrays shortened in place."""
    for trace in figure["data"]:
        for name in ARRAYS:
            if isinstance(trace.get(name), dict):
                trace[name] = _packed(trace[name])
            elif isinstance(trace.get(name), list):
                trace[name] = _listed(trace[name])
    return figure


def _packed(array: dict[str, Any]) -> dict[str, Any]:
    """Doubles packed as single numbers, where these are exact enough."""
    if array.get("dtype") != "f8":
        return array
    values = np.frombuffer(base64.b64decode(array["bdata"]), dtype="<f8")
    if not _single_is_enough(values):
        return array
    return array | {"dtype": "f4", "bdata": base64.b64encode(values.astype("<f4").tobytes()).decode("ascii")}


def _single_is_enough(values: NDArray[np.float64]) -> bool:
    sizes = np.abs(values[np.isfinite(values) & (values != 0)])
    if not len(sizes):
        return True
    return bool(sizes.min() > _SINGLE.tiny and sizes.max() < _SINGLE.max and _ratio(values) * _SINGLE.eps <= PART)


def _listed(values: list[Any]) -> list[Any]:
    """Fractions in a list, or in the lists in it, rounded; all else as it was."""
    fractions = np.array([value for value in _fractions(values) if math.isfinite(value)])
    if not len(fractions):
        return values
    ratio = _ratio(fractions)
    digits = DIGITS + math.ceil(math.log10(ratio)) if ratio < 10**9 else 17
    return _rounded(values, digits)


def _fractions(values: list[Any]) -> Iterator[float]:
    for value in values:
        if isinstance(value, list):
            yield from _fractions(value)
        elif isinstance(value, float):
            yield value


def _rounded(values: list[Any], digits: int) -> list[Any]:
    return [
        _rounded(value, digits)
        if isinstance(value, list)
        else float(f"{value:.{digits}g}")
        if isinstance(value, float) and math.isfinite(value)
        else value
        for value in values
    ]


def _ratio(values: NDArray[np.float64]) -> float:
    """How many times the largest number is as large as what all of them span; 1 where all are the same."""
    finite = values[np.isfinite(values)]
    span = float(finite.max() - finite.min()) if len(finite) else 0.0
    return max(1.0, float(np.abs(finite).max()) / span) if span > 0 else 1.0
