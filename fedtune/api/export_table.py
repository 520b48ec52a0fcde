"""`fedtune.export(run, …, table=True)`: every learning curve of a run as one small file, see `analysis.curve_table`.

The curves `validation` are those of the metric by which the run selects (its first), the curves `test` those of the
same metric on test data; where there is no such twin, both are the same. A trial that was stopped early has no values
after that round. Trials that have not ended yet are left out.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis import curve_table
from analysis.curve_table import CurveTable
from analysis.estimate import configuration
from analysis.runs import Run
from fedtune.record.experiment import Experiment
from search_spaces import files
from search_spaces.errors import UserError
from search_spaces.metrics import METRICS, twin

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

#: What can be done about an output that cannot be written.
ELSEWHERE = "Give another place with -o."


def write(run: Run, path: Path) -> dict[str, Any]:
    """Writes the table of `run` to `path` (.npz) and its card beside it; returns the card.

    Raises `UserError` where no trial has ended yet, or the files cannot be written."""
    table = of_run(run)
    try:
        return curve_table.save(table, path)
    except OSError as error:
        raise files.cannot_write(path, error, ELSEWHERE) from error


def of_run(run: Run) -> CurveTable:
    """The curves of a run that was read: a search's trials are configurations; a final run is one configuration, each
    trial of it a seed. Raises `UserError` where no trial has ended yet."""
    experiment = Experiment.of(run)
    ended = [trial for trial in run.frozen if trial.state.is_finished()]
    if not ended:
        raise UserError(f"{run.path} has no trial that has ended, so there are no curves yet.")
    final = experiment.kind == "run"
    keys = [() if final else configuration(trial) if experiment.races else trial.number for trial in ended]
    places = {key: place for place, key in enumerate(dict.fromkeys(keys))}
    numbers = {trial.number: places[key] for trial, key in zip(ended, keys, strict=True)}
    kept = [ended[keys.index(key)] for key in places]
    configurations = tuple({name.rsplit(".", 1)[-1]: value for name, value in t.params.items()} for t in kept)
    seeds = experiment.seeds
    if final or experiment.races:
        seeds = tuple(dict.fromkeys(_seed(trial, experiment) for trial in ended))
    name = experiment.metric[0]
    on_test = name if not name.startswith("val_") else twin(name)
    shape = (len(configurations), len(seeds), experiment.rounds)
    curves = {metric: np.full(shape, np.nan) for metric in (name, on_test)}
    seconds: dict[tuple[int, int], list[float]] = {}
    columns = {seed: place for place, seed in enumerate(seeds)}
    for row in run.rounds.to_dict("records"):
        if row["trial"] not in numbers:
            continue
        at = numbers[row["trial"]], columns[int(row["seed"])]
        for metric, values in curves.items():
            values[(*at, int(row["round"]) - 1)] = row.get(metric, np.nan)
        seconds.setdefault(at, []).append(row.get("seconds", np.nan))
    taken = np.full(shape[:2], np.nan, dtype=np.float32)
    for at, several in seconds.items():
        taken[at] = statistics.fmean(several)
    card = _card(run, experiment, on_test, len(ended))
    return CurveTable(card, configurations, seeds, curves[name], curves[on_test], taken)


def _seed(trial: FrozenTrial, experiment: Experiment) -> int:
    """The own seed of a race's trial or a final run's."""
    return int(trial.user_attrs["seed"]) if experiment.races else experiment.trial_seeds(trial.number)[0]


def _card(run: Run, experiment: Experiment, on_test: str, ended: int) -> dict[str, Any]:
    origin = run.provenance
    return {
        "name": run.name,
        "method": experiment.method,
        "space": dict(run.space),
        "settings": {key: value for key, value in experiment.values.items() if key not in run.keys},
        "dataset": str(experiment.values.get("dataset", run.value("dataset"))),
        "metric": {"validation": experiment.metric[0], "test": on_test},
        "direction": METRICS[experiment.metric[0]].direction,
        "how": f"Exported from a run of fedtune: {experiment.trials} trials, sampler {experiment.sampler}, scheduler "
        f"{experiment.scheduler}; a stopped trial has no values after it stopped.",
        "made": [
            {
                "date": origin.get("created"),
                "revision": origin.get("git"),
                "machine": origin.get("machine"),
                "trials": ended - run.taken,
            },
            *({**part, "trials": len(part.get("trials") or [])} for part in origin.get("taken") or []),
        ],
    }
