"""Trials that have ended, and whose rows are not what was written: truncated, garbled, gone, or with other numbers.

`rounds.jsonl` is the truth of what a trial measured. The same configuration and seeds give the same rows, so such a
trial is computed again when its run goes on; in the study it stays what it was. The study has the means over seeds of
what trials are selected by, of every round, and of a trial that was not cut short those of every other metric in the
last round that measured it; the rows must give both to the last bit (but for those of a run that has gone on with other
versions or on another kind of machine, which may have been computed again there). Of what else the rows hold nothing is
compared, and a number there that was replaced by another one is not noticed.
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

#: How the study calls its copy of a metric.
COPY = "metric:"


def damaged(folder: Path, experiment: Experiment, trials: Sequence[FrozenTrial]) -> list[int]:
    """The numbers of those of `trials`, all of the run in `folder`, of which this holds. (Not of those that were taken
    from earlier runs, which this run cannot compute.) Raises `OSError` where a file cannot be read."""
    from trainables.worker.rounds_jsonl import Damaged, first_rows
    from trainables.worker.trial_values import check_curve, check_means

    found, compared = [], is_of_one_kind(folder)
    for trial in trials:
        if not trial.state.is_finished() or trial.number < experiment.taken:
            continue
        # A final run's trial and a race's have a seed of their own.
        own = trial.user_attrs.get("seed")
        seeds = experiment.trial_seeds(trial.number) if own is None else (int(own),)
        try:
            rows = folder / run_folder.trial_folder(trial.number) / run_folder.ROUNDS
            read = first_rows(rows, int(trial.user_attrs.get("rounds", 0)), seeds)
            if compared:
                check_curve(read, experiment.metric, curve(trial), rows.name)
                check_means(read, _last_means(trial), rows.name)
        except Damaged:
            found.append(trial.number)
    return found


def curve(trial: FrozenTrial) -> dict[int, tuple[float, ...]]:
    """The means of the metrics that the study has of a trial, by round."""
    if "curve" in trial.user_attrs:
        return {int(r): tuple(values) for r, values in json.loads(trial.user_attrs["curve"]).items()}
    return {r: (value,) for r, value in trial.intermediate_values.items()}


def _last_means(trial: FrozenTrial) -> dict[str, float]:
    """What the study has of every metric in its last round. (A trial that failed may have what an interrupted session
    left of an earlier round.)"""
    if trial.user_attrs.get("stop_reason") not in ("completed", "scheduler"):
        return {}
    copies = {key.removeprefix(COPY): value for key, value in trial.user_attrs.items() if key.startswith(COPY)}
    return {name: value for name, value in copies.items() if name in METRICS}
