"""Writes the trials whose results were taken from earlier runs into the study, before anything is run.

Their rounds are in the run directory already (`fedtune.record.taken_trials`). From there on they are complete trials
like any other: samplers and early stopping see them from the first new trial on, and every reader shows them. A driver
that is killed in between leaves the rest to the next one.
"""

from __future__ import annotations

import itertools
import math
from pathlib import Path

from fedtune.execution.queue import TrialQueue
from fedtune.record.experiment import Experiment
from search_spaces import run_folder
from search_spaces.errors import UserError
from trainables.worker import rounds_jsonl
from trainables.worker.trial_values import TrialValues


def settle(queue: TrialQueue, folder: Path, experiment: Experiment) -> None:
    """Ends every taken trial of the run in `folder` that the study does not hold yet."""
    from trainables.tune import Ending

    ended = {trial.number for trial in queue.trials() if trial.state.is_finished()}
    for number in sorted(set(range(experiment.taken)) - ended):
        values = TrialValues(experiment.metric, experiment.signs)
        path = folder / run_folder.trial_folder(number) / run_folder.ROUNDS
        try:
            rows = rounds_jsonl.first_rows(path, experiment.rounds, experiment.first_seeds)
        except rounds_jsonl.Damaged as error:
            raise UserError(
                f"Trial {number} cannot be taken from an earlier run, as {error} ({path}). Begin a new run."
            ) from error
        for _, of_round in itertools.groupby(rows, key=lambda row: row["round"]):
            values.add(list(of_round))
        seconds = math.fsum(row.get("seconds") or 0.0 for row in rows)
        queue.take(number, Ending("completed", experiment.rounds, None, values.curve, seconds))
