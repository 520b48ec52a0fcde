"""`fedtune.export`: one complete configuration of a search as a file, with a record of where it came from.

(With `table=True`: all learning curves of a run, with `study`: a database of Optuna's.)

With `table` it writes every learning curve of the run as one small file, see `analysis.curve_table`.

The curves `validation` are those of the metric by which the run selects (its first), the curves `test` those of the
same metric on test data; where there is no such twin, both are the same. A trial that was stopped early has no values
after that round. Trials that have not ended yet are left out.
"""

from __future__ import annotations

import os
import sqlite3
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis import curve_table
from analysis.curve_table import CurveTable
from analysis.estimate import configuration
from analysis.runs import Run, load_run
from analysis.runs.best import Best
from analysis.runs.conditions import means, named, show
from fedtune.api import optuna_study
from fedtune.option import fields_of
from fedtune.options import ExportRequest
from fedtune.planning.configuration import described, trial_of
from fedtune.record.experiment import Experiment
from fedtune.record.journal import quiet_optuna
from fedtune.record.run_directory import write_document
from search_spaces import files
from search_spaces.errors import UserError, sentence, unknown
from search_spaces.files import cannot_write, given, replacing
from search_spaces.metrics import METRICS, twin
from search_spaces.parameter import canonical

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial


@fields_of(ExportRequest)
def export(request: ExportRequest) -> dict[str, Any]:
    """The configuration of `trial` (default: the best) of a search; written to `output`, YAML or JSON by its suffix. Of
    a run under several conditions of the experiment, `where` names the condition, as in `["omega=0.1"]`.

    With `table` instead every learning curve of the run, written to `output` (.npz) with a card beside it, which is
    returned; see `analysis.curve_table`.

    With `study` instead the run's trials as an Optuna study in this SQLite file (.db), each with the last value of
    every metric, mean over seeds, as the user attribute `metric:<name>`, and with notes for optuna-dashboard; returned
    is how many there are.

    Raises `UserError` where there is no such trial, or what is asked for cannot be written."""
    found, output, trial, where = load_run(request.run), request.output, request.trial, request.where
    if request.study is not None:
        if output is not None or trial is not None or where or request.table:
            raise UserError("--study exports all trials to its own file, so it must be given alone.")
        return _write_study(found, _target(Path(request.study), (".db",)))
    if request.table:
        if where:
            raise UserError("--table exports the curves of all trials, so it cannot be given together with --where.")
        return write_table(found, _table_target(output, trial))
    target = None if output is None else _target(Path(output), (".yaml", ".yml", ".json"))
    if trial is not None and where:
        raise UserError("--trial and --where both choose what is exported. Give one of them.")
    part = found if trial is not None or not (where or found.crossed) else under(found, where)
    data = described(found, Best.of(part, trial_of(part, trial)))
    if target is not None:
        write_document(target, data)
    return data


def _write_study(run: Run, path: Path) -> dict[str, Any]:
    """Makes the trials of the run the only study in the SQLite file `path`."""
    import optuna
    from optuna.study import StudyDirection

    with quiet_optuna():
        try:
            with replacing(path) as temporary:
                # Opened here, as a URL has no place for every character that a path may hold.
                engine = {"creator": lambda: sqlite3.connect(temporary, check_same_thread=False)}
                storage = optuna.storages.RDBStorage("sqlite://", engine_kwargs=engine)
                made = optuna.create_study(
                    study_name=run.name,
                    storage=storage,
                    directions=[StudyDirection[word.upper()] for word in run.directions],
                )
                made.set_metric_names(list(run.metrics))
                made.add_trials(optuna_study.trials(run))
                ids = [trial._trial_id for trial in made.get_trials(deepcopy=False)]
                place = storage.get_study_id_from_name(run.name)
                for key, value in optuna_study.notes(run, ids).items():
                    storage.set_study_system_attr(place, key, value)
                for key, value in optuna_study.facts(run).items():
                    made.set_user_attr(key, value)
                storage.remove_session()
                storage.engine.dispose()
        except OSError as error:
            raise cannot_write(path, error, ELSEWHERE) from error
        except optuna.exceptions.StorageInternalError as error:
            raise cannot_write(path, str(error.__cause__ or error).splitlines()[0], ELSEWHERE) from error
    return {"study": str(path), "trials": len(run.frozen)}


def _table_target(output: str | Path | None, trial: int | None) -> Path:
    """Where a table is written."""
    if trial is not None:
        raise UserError("--table exports the curves of all trials, so it cannot be given together with --trial.")
    if output is None:
        raise UserError("--table needs a file ending in .npz to write to. Give one with -o, such as -o curves.npz.")
    return _target(Path(output), (".npz",))


def _target(path: Path, suffixes: tuple[str, ...]) -> Path:
    path = given(path, "-o")
    if path.suffix not in suffixes:
        several = f"{', '.join(suffixes[:-1])} or {suffixes[-1]}" if len(suffixes) > 1 else suffixes[0]
        raise UserError(sentence("output", f"a file ending in {several}", str(path), "-o"))
    parent = path.resolve().parent
    if not parent.is_dir():
        raise cannot_write(path, f"there is no directory {str(parent)!r}", ELSEWHERE)
    if path.is_dir() or not os.access(parent, os.W_OK):
        raise cannot_write(path, "it is a directory" if path.is_dir() else "permission denied", ELSEWHERE)
    return path


def under(run: Run, where: Sequence[str]) -> Run:
    """The part of the run under the one condition that these `name=value` texts choose. Raises `UserError` where they
    choose none or several."""
    asked: dict[str, str] = {}
    problems = []
    varied = [str(item["key"]) for item in run.varied]
    for text in where:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            problems.append(sentence("--where", "name=value", text))
        elif canonical(name) not in varied:
            problems.append(unknown("condition", name, varied, "--where"))
        else:
            asked[canonical(name)] = value.strip()
    if problems:
        raise UserError(*problems)
    chosen = [one for one in run.conditions if all(means(text, one.get(key)) for key, text in asked.items())]
    if len(chosen) == 1:
        return run.within(chosen[0])
    every = "; ".join(named(one) for one in run.conditions)
    options = " ".join(f"--where {key}={show(value)}" for key, value in run.conditions[0].items())
    has = "no condition of that kind" if not chosen else f"{len(chosen)} conditions of the experiment"
    raise UserError(
        f"{run.path} has {has}, and a best configuration under each one alone. Choose one with --where, such as "
        f"{options}. It has: {every}."
    )


#: What can be done about an output that cannot be written.
ELSEWHERE = "Give another place with -o."


def write_table(run: Run, path: Path) -> dict[str, Any]:
    """Writes the table of `run` to `path` (.npz) and its card beside it; returns the card.

    Raises `UserError` where no trial has ended yet, or the files cannot be written."""
    table = learning_curves(run)
    try:
        return curve_table.save(table, path)
    except OSError as error:
        raise files.cannot_write(path, error, ELSEWHERE) from error


def learning_curves(run: Run) -> CurveTable:
    """The curves of a run that was read: a search's trials are configurations; a final run is one configuration, each
    trial of it a seed. Raises `UserError` where no trial has ended yet."""
    experiment = Experiment.of(run)
    ended = [trial for trial in run.frozen if trial.state.is_finished()]
    if not ended:
        raise UserError(f"{run.path} has no trial that has ended, so there are no curves yet.")
    final = experiment.kind == "run"
    keys = [() if final else configuration(trial) if experiment.single else trial.number for trial in ended]
    places = {key: place for place, key in enumerate(dict.fromkeys(keys))}
    numbers = {trial.number: places[key] for trial, key in zip(ended, keys, strict=True)}
    kept = [ended[keys.index(key)] for key in places]
    configurations = tuple({name.rsplit(".", 1)[-1]: value for name, value in t.params.items()} for t in kept)
    seeds = experiment.seeds
    if final or experiment.single:
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
    """The own seed of a single federation or of a final run's."""
    return int(trial.user_attrs["seed"]) if experiment.single else experiment.trial_seeds(trial.number)[0]


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
