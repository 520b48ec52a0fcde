"""Trials that have ended, and whose rows are not what was written: truncated, garbled, gone, or with other numbers.

`rounds.jsonl` is the truth of what a trial measured. The same configuration and seeds give the same rows, so such a
trial is computed again when its run goes on; in the study it stays what it was. Where trials are selected
by one metric, the study has its means over seeds of every round, which the rows must give to the last bit; of what else
the rows hold nothing is compared, and a number there that was replaced by another one is not noticed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedtune.record.experiment import Experiment
from fedtune.record.provenance import is_of_one_kind
from search_spaces import run_folder
from search_spaces.metrics import METRICS

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial


def damaged(folder: Path, experiment: Experiment, trials: Sequence[FrozenTrial]) -> list[int]:
    """The numbers of those of `trials`, all of the run in `folder`, of which this holds. (Not of those that were taken
    from earlier runs, which this run cannot compute.) Raises `OSError` where a file cannot be read."""
    from trainables.worker.rounds_jsonl import Damaged, first_rows
    from trainables.worker.trial_values import check_curve

    found, compared = [], is_compared(folder, experiment)
    for trial in trials:
        if not trial.state.is_finished() or trial.number < experiment.taken:
            continue
        # A final run's trial and a race's have a seed of their own.
        own = trial.user_attrs.get("seed")
        seeds = experiment.trial_seeds(trial.number) if own is None else (int(own),)
        try:
            rows = folder / run_folder.trial_folder(trial.number) / run_folder.ROUNDS
            read = first_rows(rows, int(trial.user_attrs.get("rounds", 0)), seeds)
            check_curve(read, experiment.metric, curve(trial) if compared else {}, rows.name)
        except Damaged:
            found.append(trial.number)
    return found


def curve(trial: FrozenTrial) -> dict[int, tuple[float, ...]]:
    """The means of the metrics that the study has of a trial, by round."""
    if "curve" in trial.user_attrs:
        return {int(r): tuple(values) for r, values in json.loads(trial.user_attrs["curve"]).items()}
    return {r: (value,) for r, value in trial.intermediate_values.items()}


def is_compared(folder: Path, experiment: Experiment) -> bool:
    """Whether rows must agree with the study. Rows that were computed again need not where the run has gone on with
    other versions or on another kind of machine, nor where what is measured is time. (Of several
    metrics Optuna keeps no values per round; their `curve` is not compared.)"""
    single = len(experiment.metric) == 1 and not METRICS[experiment.metric[0]].timing
    return single and is_of_one_kind(folder)
