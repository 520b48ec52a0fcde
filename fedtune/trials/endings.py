"""What a study holds of a trial that has ended: its state in Optuna's words, its values, its attributes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from fedtune.trials.damaged import COPY

if TYPE_CHECKING:
    from optuna.trial import TrialState

    from trainables.tune import Ending


class Ended(NamedTuple):
    """`state`: None for one that was interrupted, which stays to be resumed. `values`: of the last round, by metric;
    None of a trial that did not run to its end."""

    state: TrialState | None
    values: list[float] | None
    attributes: dict[str, Any]


def ended(ending: Ending, metrics: Sequence[str]) -> Ended:
    """What is to be written of a trial that ended so. One that ran to its end without ever measuring has failed."""
    from optuna.trial import TrialState

    reason, error = ending.stop_reason, ending.error
    final = list(ending.curve[max(ending.curve)]) if ending.curve else None
    if reason == "completed" and final is None:
        reason, error = "error", f"{' and '.join(metrics)} was never measured in {ending.round} rounds."
    attributes: dict[str, Any] = {
        "stop_reason": reason,
        "rounds": ending.round,
        "seconds": round(ending.seconds, 3),
    }
    if error and reason != "interrupted":  # the search tells of it; a resumed trial's record is as if nothing was
        attributes["error"] = error
    if len(metrics) > 1:
        attributes["curve"] = as_json(ending.curve)
    attributes |= {f"{COPY}{name}": value for name, value in ending.means.items()}
    if reason == "interrupted":
        return Ended(None, None, attributes)
    state = {"completed": TrialState.COMPLETE, "scheduler": TrialState.PRUNED}.get(reason, TrialState.FAIL)
    return Ended(state, final if state == TrialState.COMPLETE else None, attributes)


def as_json(values: Mapping[int, Sequence[float]]) -> str:
    """How an attribute holds the values of several metrics by round."""
    return json.dumps({str(round_): list(of_round) for round_, of_round in sorted(values.items())})
