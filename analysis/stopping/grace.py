"""The grace period that a search with `--grace auto` chose, as its study records it.

`fedtune.trials.grace` makes the choice and says why; here it is only read. The record belongs to the trial that was
proposed with it, as its user attribute `grace`: {"round": the grace, or null as long as none was good enough, "trials":
how many it rests on, "correlations": [[round, rho, low, high], …]}.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

#: The user attribute of a trial.
GRACE = "grace"


@dataclass(frozen=True)
class Correlation:
    """How well the values after `round` ranked trials as their last values did."""

    round: int
    #: Spearman's rank correlation, in [-1, 1]; None where all values were the same.
    rho: float | None
    #: Its 90 % interval.
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Grace:
    """What was chosen, and from what."""

    #: No trial is stopped before it; None as long as no round was good enough: then none is stopped.
    round: int | None
    #: Different configurations that had run to their end; 0 where these are too few still.
    trials: int
    correlations: tuple[Correlation, ...]

    def to_attribute(self) -> dict[str, Any]:
        """Plain data for the study."""
        listed = [[c.round, c.rho, c.low, c.high] for c in self.correlations]
        return {"round": self.round, "trials": self.trials, "correlations": listed}


def grace(trials: Sequence[FrozenTrial]) -> Grace:
    """The latest record of a search's trials, in their order; where there is none yet, or none that can be read, one of
    no trials."""
    found = (_read(trial.user_attrs.get(GRACE)) for trial in reversed(trials))
    return next((record for record in found if record is not None), Grace(None, 0, ()))


def _read(data: object) -> Grace | None:
    try:
        assert isinstance(data, Mapping)
        chosen = data["round"]
        correlations = tuple(
            Correlation(int(round_), _number(rho), _number(low), _number(high))
            for round_, rho, low, high in data["correlations"]
        )
        return Grace(None if chosen is None else int(chosen), int(data["trials"]), correlations)
    except (AssertionError, KeyError, TypeError, ValueError, OverflowError):
        return None


def _number(value: object) -> float | None:
    if value is None:
        return None
    if not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError(value)
    return float(value)
