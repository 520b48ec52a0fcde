"""`fedtune.export`: one complete configuration of a search as a file, with a record of where it came from.

(With `table` all learning curves of a run or of several, with `study` a database of Optuna's.)

A table is one small file with every learning curve, see `analysis.curve_table`. The curves `validation` are those of
the metric by which the run selects (its first), the curves `test` those of the same metric on test data; where there
is no such twin, both are the same. A trial that was stopped early has no values after that round, and the table says
that it was stopped. Trials that have not ended yet are left out. Of several runs over one space the table has all
configurations and all seeds, so that final runs of a search's configurations give these further seeds.
"""

from __future__ import annotations

import itertools
import os
import sqlite3
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from fedtune.option import fields_of, several
from fedtune.options import ExportRequest
from fedtune.planning.configuration import ENDINGS, described, trial_of
from fedtune.record.experiment import Experiment
from fedtune.record.journal import quiet_optuna
from fedtune.record.run_directory import write_document
from search_spaces import files
from search_spaces.dimension import Dimension
from search_spaces.errors import UserError, unknown
from search_spaces.files import cannot_write, given, replacing
from search_spaces.metrics import METRICS, twin
from search_spaces.parameter import Value, canonical, pairs

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial


@fields_of(ExportRequest)
def export(request: ExportRequest) -> dict[str, Any]:
    """The configuration of `trial` (default: the best) of a search; written to `output`, YAML or JSON by its suffix. Of
    a run under several conditions of the experiment, `where` names the condition, as in `["omega=0.1"]`.

    With `table` instead every learning curve of the run, or of several over one space, written to this file (.npz) with
    a card beside it, which is returned; see `analysis.curve_table`.

    With `study` instead the run's trials as an Optuna study in this SQLite file (.db), each with the last value of
    every metric, mean over seeds, as the user attribute `metric:<name>`, and with notes for optuna-dashboard; returned
    is how many there are.

    Raises `UserError` where there is no such trial, or what is asked for cannot be written."""
    runs = [load_run(path) for path in several(request.runs)]
    found, output, trial, where = runs[0], request.output, request.trial, request.where
    alone = {"--table": request.table, "--study": request.study}
    for flag, path in alone.items():
        others = [path for other, path in alone.items() if other != flag]
        if path is not None and (output is not None or trial is not None or where or any(others)):
            raise UserError(f"{flag} exports all trials to its own file, so it must be given alone.")
    if request.table is not None:
        return write_table(runs, _target(Path(request.table), (".npz",), "--table"))
    if len(runs) > 1:
        raise UserError("Several runs make one table of learning curves. Give --table FILE, or one run.")
    if request.study is not None:
        return _write_study(found, _target(Path(request.study), (".db",), "--study"))
    target = None if output is None else _target(Path(output), ENDINGS, "-o")
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


def _target(path: Path, suffixes: tuple[str, ...], flag: str) -> Path:
    """Where the file is written that was given with `flag`."""
    path = given(path, flag)
    files.check_ending(path, suffixes, flag)
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
    problems: list[str] = []
    varied = [str(item["key"]) for item in run.varied]
    for name, value in pairs(where, "--where", problems):
        if run.crossed and canonical(name) not in varied:
            problems.append(unknown("condition", name, varied, "--where"))
        else:
            asked[canonical(name)] = value
    if problems:
        raise UserError(*problems)
    if not run.crossed:
        run.check_fixed(asked)
        return run
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
ELSEWHERE = "Give another place."


# -- tables of learning curves -----------------------------------------------------------------------------------------


def write_table(runs: Sequence[Run], path: Path) -> dict[str, Any]:
    """Writes the table of these runs to `path` (.npz) and its card beside it; returns the card.

    Raises `UserError` where no trial has ended yet, the runs do not belong together, or the files cannot be written."""
    table = together(runs)
    try:
        return curve_table.save(table, path)
    except OSError as error:
        raise files.cannot_write(path, error, ELSEWHERE) from error


def together(runs: Sequence[Run]) -> CurveTable:
    """The curves of these runs as one table. Raises `UserError` where they are not over one space, or differ in a
    metric, in rounds or in another setting."""
    tables = [learning_curves(run) for run in runs]
    if len(runs) == 1:
        return tables[0]
    lead = next((place for place, run in enumerate(runs) if run.kind != "run"), 0)
    first = tables[lead]
    points = [_points(run, table, first) for run, table in zip(runs, tables, strict=True)]
    for run, table in zip(runs, tables, strict=True):
        _must_agree(runs[lead], first, run, table)
    configurations = {canonical_point(point): point for own in points for point in own}
    rows = {key: row for row, key in enumerate(configurations)}
    seeds = tuple(dict.fromkeys(seed for table in tables for seed in table.seeds))
    columns = {seed: place for place, seed in enumerate(seeds)}
    shape = (len(rows), len(columns), first.rounds)
    validation, test = np.full(shape, np.nan), np.full(shape, np.nan)
    seconds, measured = np.full(shape[:2], np.nan, dtype=np.float32), np.zeros(shape[:2], dtype=np.uint16)
    for table, own in zip(tables, points, strict=True):
        known = np.full(table.seconds.shape, first.rounds) if table.measured is None else table.measured
        for (c, point), (s, seed) in itertools.product(enumerate(own), enumerate(table.seeds)):
            at = rows[canonical_point(point)], columns[seed]
            # The same federation twice: the one that came further.
            if known[c, s] > measured[at]:
                validation[at], test[at] = table.validation[c, s], table.test[c, s]
                seconds[at], measured[at] = table.seconds[c, s], known[c, s]
    card = dict(first.card) | {
        "how": f"Exported from {len(runs)} runs of fedtune, {', '.join(run.name for run in runs)}; a stopped trial has "
        "no values after it stopped.",
        "made": [made for table in tables for made in table.card["made"]],
    }
    return CurveTable(
        card, tuple(configurations.values()), tuple(columns), validation, test, seconds, measured=measured
    )


def canonical_point(point: Mapping[str, Value]) -> tuple[tuple[str, Value], ...]:
    """What equal configurations have in common."""
    return tuple(sorted(point.items()))


def _points(run: Run, table: CurveTable, first: CurveTable) -> Sequence[Mapping[str, Value]]:
    """The run's configurations as points of the first one's space: that of a final run, which searches nothing, is
    among its settings."""
    if run.kind != "run":
        return table.configurations
    settings = table.card["settings"]

    def walk(dimensions: Iterable[Dimension]) -> Iterator[tuple[str, Value]]:
        for d in dimensions:
            if d.key not in settings:
                raise UserError(f"{run.path} has no {d.key}, which {first.card['name']} searches.")
            yield d.key, settings[d.key]
            yield from walk(d.children.get(str(settings[d.key]), ()))

    return [dict(walk(first.space.search.values()))]


def _must_agree(run: Run, first: CurveTable, other: Run, table: CurveTable) -> None:
    """Raises `UserError` where two runs do not belong into one table."""
    searched = {dimension.key for _, dimension in first.space.dimensions()}
    compared: dict[str, tuple[Any, Any]] = {
        what: (first.card[what], table.card[what]) for what in ("method", "metric", "direction")
    }
    compared["rounds"] = first.rounds, table.rounds
    if other.kind != "run":
        compared["searched space"] = first.card["space"]["search"], table.card["space"]["search"]
    ours, theirs = first.card["settings"], table.card["settings"]
    free = {*searched, "eval_test"}  # how often the test set is measured changes no curve
    compared |= {key: (value, theirs[key]) for key, value in ours.items() if key in theirs and key not in free}
    differs = next((what for what, (one, two) in compared.items() if one != two), None)
    if differs is not None:
        one, two = (show(value) if not isinstance(value, (list, dict)) else "another" for value in compared[differs])
        raise UserError(
            f"Runs of one table must have the same {differs}, got {one} ({run.path}) and {two} ({other.path}). Export "
            "them one by one."
        )


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
    measured = np.zeros(shape[:2], dtype=np.uint16)
    columns = {seed: place for place, seed in enumerate(seeds)}
    diverged = {trial.number for trial in ended if trial.user_attrs.get("stop_reason") == "diverged"}
    for row in run.rounds.to_dict("records"):
        if row["trial"] not in numbers:
            continue
        at = numbers[row["trial"]], columns[int(row["seed"])]
        for metric, values in curves.items():
            values[(*at, int(row["round"]) - 1)] = row.get(metric, np.nan)
        seconds.setdefault(at, []).append(row.get("seconds", np.nan))
        measured[at] = experiment.rounds if row["trial"] in diverged else max(measured[at], int(row["round"]))
    taken = np.full(shape[:2], np.nan, dtype=np.float32)
    for at, several_rounds in seconds.items():
        taken[at] = statistics.fmean(several_rounds)
    card = _card(run, experiment, on_test, len(ended))
    return CurveTable(card, configurations, seeds, curves[name], curves[on_test], taken, measured=measured)


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
