"""What became of a trial: what the study holds of one that has ended, what it measured round by round, and whether its
rows are still there.

`rounds.jsonl` is the truth of what a trial measured. The same configuration and seeds give the same rows, so a trial
whose rows are truncated, garbled or gone is computed again when its run goes on; in the study it stays what it was.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fedtune.decisions.history import seeds_of
from search_spaces import run_folder

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial, TrialState

    from fedtune.record.experiment import Experiment
    from trainables.tune import Ending


class Outcome(NamedTuple):
    """`state`: None for one that was interrupted, which stays to be resumed. `values`: of the last round, by metric;
    None of a trial that did not run to its end."""

    state: TrialState | None
    values: list[float] | None
    attributes: dict[str, Any]


def outcome(ending: Ending, metrics: Sequence[str]) -> Outcome:
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
        attributes["curve"] = _as_json(ending.curve)
    if reason == "interrupted":
        return Outcome(None, None, attributes)
    state = {"completed": TrialState.COMPLETE, "scheduler": TrialState.PRUNED}.get(reason, TrialState.FAIL)
    return Outcome(state, final if state == TrialState.COMPLETE else None, attributes)


def damaged(folder: Path, experiment: Experiment, trials: Sequence[FrozenTrial]) -> list[int]:
    """The numbers of those of `trials`, all of the run in `folder`, that have ended and lack rows that they had. (Not
    of those that were taken from earlier runs, which this run cannot compute.) Raises `OSError` where a file cannot be
    read."""
    from trainables.worker.rounds_jsonl import Damaged, first_rows

    found = []
    for trial in trials:
        if not trial.state.is_finished() or trial.number < experiment.taken:
            continue
        rows = folder / run_folder.trial_folder(trial.number) / run_folder.ROUNDS
        try:
            first_rows(rows, int(trial.user_attrs.get("rounds", 0)), seeds_of(experiment, trial))
        except Damaged:
            found.append(trial.number)
    return found


def _as_json(values: Mapping[int, Sequence[float]]) -> str:
    """How an attribute holds the values of several metrics by round."""
    return json.dumps({str(round_): list(of_round) for round_, of_round in sorted(values.items())})
