"""Trials that have ended, and whose rows are not what was written: truncated, garbled, gone.

`rounds.jsonl` is the truth of what a trial measured, and the study does not hold it. The same configuration and seeds
give the same rows, so such a trial is computed again when its run goes on; in the study it stays what it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedtune.record.experiment import Experiment
from search_spaces import run_folder

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial


def damaged(folder: Path, experiment: Experiment, trials: Sequence[FrozenTrial]) -> list[int]:
    """The numbers of those of `trials`, all of the run in `folder`, of which this holds. (Not of those that were taken
    from earlier runs, which this run cannot compute.) Raises `OSError` where a file cannot be read."""
    from trainables.worker.rounds_jsonl import Damaged, first_rows

    found = []
    for trial in trials:
        if not trial.state.is_finished() or trial.number < experiment.taken:
            continue
        # A final run's trial and a race's have a seed of their own.
        own = trial.user_attrs.get("seed")
        seeds = experiment.trial_seeds(trial.number) if own is None else (int(own),)
        try:
            rows = folder / run_folder.trial_folder(trial.number) / run_folder.ROUNDS
            first_rows(rows, int(trial.user_attrs.get("rounds", 0)), seeds)
        except Damaged:
            found.append(trial.number)
    return found
