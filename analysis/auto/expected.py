"""What the best of k trials is expected to be, from the trials that there are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def expected_best(values: Sequence[float], k: int, sign: float = 1.0) -> float:
    """The expected best of `k` values drawn from `values` with replacement: Σ v_(i) [(i/n)^k - ((i-1)/n)^k] over the n
    values in rising order; nan where there are none. `sign`: 1 where more is better, -1 where less is.

    Source: Dodge et al., Show Your Work: Improved Reporting of Experimental Results, 2019, Sec. 3.1."""
    ordered = np.sort(sign * np.asarray(values, dtype=float))
    n = len(ordered)
    if n == 0:
        return float("nan")
    below = (np.arange(n + 1) / n) ** k
    return float(sign * (ordered * np.diff(below)).sum())
