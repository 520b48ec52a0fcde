"""How much each searched parameter matters, by Optuna's PED-ANOVA."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

from analysis.runs.study import in_memory

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial


def importances(directions: Sequence[str], trials: Sequence[FrozenTrial], target: int = 0) -> dict[str, float]:
    """The importance of every parameter (0 to 1) for objective number `target` in these completed trials, largest
    first, of equal ones that which trials name first; empty where it cannot be computed."""
    import optuna

    sign = -1.0 if directions[target] == "maximize" else 1.0
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # PED-ANOVA explains what makes the target low; a target that is maximised is turned round.
            found = optuna.importance.get_param_importances(
                in_memory(directions, trials),
                evaluator=optuna.importance.PedAnovaImportanceEvaluator(),
                target=lambda t: sign * t.values[target],
            )
    except (ValueError, RuntimeError, ZeroDivisionError):
        return {}
    # Optuna orders equal ones by a set of names, whose order is another one in every process.
    named = {name: place for place, name in enumerate(dict.fromkeys(name for t in trials for name in t.params))}
    known = {name: float(value) for name, value in found.items() if math.isfinite(value)}
    return dict(sorted(known.items(), key=lambda item: (-item[1], named[item[0]])))
