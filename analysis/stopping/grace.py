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


def grace_sentences(found: Grace) -> list[str]:
    """Which grace was chosen, and by which rank correlation."""
    if not found.trials:
        return ["Grace: not chosen yet, as too few trials have ended. Until then every trial runs to its end."]
    trials = f"{found.trials} trial{'s' * (found.trials != 1)}"
    if found.round is None:
        best = max((c for c in found.correlations if c.low is not None), key=lambda c: c.low or 0.0, default=None)
        why = "their values are all the same"
        if best is not None:
            why = f"the best so far is round {best.round} with {rank(best)}"
        return [
            f"Grace: after {trials} no round ranks trials surely enough as their ends do ({why}). Until "
            f"one does, every trial runs to its end."
        ]
    by = next((c for c in found.correlations if c.round == found.round), None)
    how = "" if by is None else f": its rank correlation with their ends is {rank(by)}"
    return [f"Grace: {found.round} round{'s' * (found.round != 1)}, chosen from {trials} that ran to their end{how}."]


def rank(found: Correlation) -> str:
    """`0.94 (0.61 to 0.99)`."""
    if found.rho is None or found.low is None or found.high is None:
        return "–"
    return f"{found.rho:.2f} ({found.low:.2f} to {found.high:.2f})"
