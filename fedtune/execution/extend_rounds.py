"""`fedtune extend --rounds`: trials that had run all their rounds go on when more are planned.

The request says how many rounds are planned (`Experiment.rounds`), and that there were fewer (`rounds_before`). So one
file, swapped at once, makes a search longer. Whoever drives the search next finds the trials that ended too early and
makes them running ones: they come before new ones, and go on from their last checkpoint like a trial that was
interrupted. They lose their values, which were those of an earlier round than others will have.

Early stopping ends none of them at a round that it had run before. Trials that were stopped or that failed stay so.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import TYPE_CHECKING

from fedtune.decisions.race import unfinished
from fedtune.record.journal import StudyFile
from search_spaces import run_folder

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

    from fedtune.record.experiment import Experiment

#: User attributes that a trial has before it ends (`search_spaces.run_folder`).
_OF_RUNNING = ("from", "share", "curve")


def go_on(folder: Path, experiment: Experiment) -> None:
    """Makes them running ones in the study of the run in `folder`, whose lock the caller holds. Raises `UserError`
    where the disk refuses."""
    if not experiment.rounds_before:
        return
    study = StudyFile(folder)
    trials = study.trials()
    going_on = {trial.number: _running(trial) for trial in unfinished(trials, experiment)}
    if going_on:
        study.replace([going_on.get(trial.number, trial) for trial in trials])


def _running(trial: FrozenTrial) -> FrozenTrial:
    """A trial that had ended and goes on; the values of its rounds stay."""
    from optuna.trial import TrialState

    found = copy.copy(trial)
    found.state, found.values, found.datetime_complete = TrialState.RUNNING, None, None
    kept = {key: value for key, value in trial.user_attrs.items() if key in _OF_RUNNING}
    found.user_attrs = kept | {run_folder.WENT_ON: int(trial.user_attrs.get("rounds", 0))}
    return found
