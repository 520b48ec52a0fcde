"""`fedtune.export`: one complete configuration of a search as a file, with a record of where it came from.

(With `table=True`: all learning curves of a run, with `study`: a database of Optuna's.)

fedtune: 1                    version of this format
method: dfrd
space: alpha_lambda
parameters: {alpha: 0.5, ...} every parameter by key, searched and fixed
searched: [alpha, lambda]
condition: {omega: 0.1}       under which it is the best, where the run varies conditions of the experiment
metric: {val_global_accuracy: 0.91}
estimate: {mean, low, high, level, seeds, noise, tied, tied_trials, gain, ...}   of the best one, see
                              `analysis.estimate.winner.Estimate`
metrics: {global_accuracy: 0.90, ...}
provenance: {run, trial, seeds, versions, git, dataset, partition, ...}

With `table` it writes every learning curve of the run as one small file, see `analysis.curve_table`.

The curves `validation` are those of the metric by which the run selects (its first), the curves `test` those of the
same metric on test data; where there is no such twin, both are the same. A trial that was stopped early has no values
after that round. Trials that have not ended yet are left out.
"""

from __future__ import annotations

import copy
import json
import os
import sqlite3
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis import curve_table
from analysis.curve_table import CurveTable
from analysis.estimate import Estimate, configuration
from analysis.runs import Run, load_run, race, shapes
from analysis.runs.conditions import means, named, show
from fedtune.api.best import Best
from fedtune.option import fields_of
from fedtune.options import ExportRequest
from fedtune.record.experiment import Experiment
from fedtune.record.journal import quiet_optuna
from fedtune.record.run_directory import as_yaml, write_document
from search_spaces import documents, files, run_folder
from search_spaces.documents import Document, Node
from search_spaces.errors import Shown, UserError, sentence, unknown
from search_spaces.files import cannot_write, given, read_text, replacing
from search_spaces.metrics import METRICS, twin
from search_spaces.parameter import Parameter, Value, canonical, convert_all
from search_spaces.shell import quote

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

VERSION = 1
_KEYS = (
    *("fedtune", "method", "space", "parameters", "searched", "condition"),
    *("metric", "estimate", "metrics", "provenance"),
)


@fields_of(ExportRequest)
def export(request: ExportRequest) -> dict[str, Any]:
    """The configuration of `trial` (default: the best) of a search; written to `output`, YAML or JSON by its suffix. Of
    a run under several conditions of the experiment, `where` names the condition, as in `["omega=0.1"]`.

    With `table` instead every learning curve of the run, written to `output` (.npz) with a card beside it, which is
    returned; see `analysis.curve_table`.

    With `study` instead the run's trials as an Optuna study in this SQLite file (.db), each with the last value of
    every metric, mean over seeds, as the user attribute `metric:<name>`; returned is how many there are.

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
    data = _describe(found, Best.of(part, _number(part, trial)))
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
                for trial in run.frozen:
                    measured = {f"metric:{name}": value for name, value in run.ends.get(trial.number, {}).items()}
                    found = copy.copy(trial)
                    found.user_attrs = {**trial.user_attrs, **measured}
                    made.add_trial(found)
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


def _number(run: Run, trial: int | None) -> int:
    """The trial that was asked for, or the best one."""
    if trial is None:
        if run.best is None:
            raise UserError(
                f"{run.path} has no trial that ran to its end yet, so there is no best one. Look with `fedtune "
                f"status {quote(str(run.path))}`."
            )
        return run.best
    if not 0 <= trial < len(run.frozen):
        raise UserError(
            sentence("trial", f"a number in [0, {len(run.frozen) - 1}]", trial, "--trial")
            if run.frozen
            else f"{run.path} has no trial yet."
        )
    if (asked := run.trial(trial)).state.name == "FAIL":
        raise UserError(
            f"Trial {trial} failed ({asked.user_attrs.get('error', 'no reason was recorded')}). Choose another --trial."
        )
    return trial


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


def _describe(run: Run, best: Best) -> dict[str, Any]:
    experiment, origin = Experiment.of(run), run.provenance
    made = run.computed(best.number)
    partition: Any = {}
    try:
        for number in sorted(run.federations(best.number)):
            recorded = read_text(run.path / run_folder.trial_folder(number) / run_folder.PARTITION)
            partition |= json.loads(recorded)["hash"]
    except (OSError, ValueError, KeyError, TypeError):
        partition = origin.get("partition")
    return {
        "fedtune": VERSION,
        "method": experiment.method,
        "space": experiment.space,
        "parameters": run.config(best.number),
        "searched": list(best.params),
        **({"condition": dict(best.condition)} if best.condition else {}),
        "metric": best.measured,
        **({} if best.estimate is None else {"estimate": _plain(best.estimate)}),
        "metrics": {name: best.metrics[name] for name in sorted(best.metrics)},
        "provenance": {
            "run": run.name,
            "trial": best.number,
            **({"from": best.origin} if best.origin else {}),
            "seed": experiment.seed,
            "seeds": race.seeds(run.experiment, run.frozen, best.number),
            "select_on": experiment.select_on,
            "sampler": experiment.sampler,
            "scheduler": experiment.scheduler,
            "trials": experiment.trials,
            "created": made.get("created"),
            "versions": made.get("versions"),
            "git": made.get("git"),
            "dataset": _dataset(run, best.number),
            "partition": partition,
        },
    }


def _dataset(run: Run, number: int) -> Any:
    """The data set of a trial: its name and hash."""
    several = run.provenance.get("datasets")
    if not isinstance(several, Mapping):
        return run.provenance.get("dataset")
    name = str(run.config(number).get("dataset"))
    return {"name": name, "hash": several.get(name)}


def _plain(found: Estimate) -> dict[str, Any]:
    """An estimate as a file holds it; of the configurations that cannot be told from the winner how many there are,
    and their first trials."""
    rest = {key: round(value, 6) if isinstance(value, float) else value for key, value in asdict(found).items()}
    return rest | {"tied": len(found.tied), "tied_trials": list(found.tied)}


def load(path: str | Path) -> tuple[str, dict[str, Value], dict[str, Any]]:
    """An exported file: the method's name, its parameters, and all it says. Raises one `UserError` with every
    problem."""
    return _loaded(documents.read(path, "exported configuration"))


def winner_of(run: str | Path) -> tuple[str, dict[str, Value], dict[str, Any]]:
    """The best configuration of the search in a run directory, as `load` returns an exported file of it."""
    found = load_run(run)
    if found.kind == "run":
        raise UserError(
            f"{found.path} is a final run, which has no winner. Give the search that it belongs to, or the file that "
            f"it was begun with; with another --seed `fedtune run` draws other fresh seeds."
        )
    return _loaded(documents.parse(as_yaml(_describe(found, Best.of(found, _number(found, None)))), str(run)))


def _loaded(document: Document) -> tuple[str, dict[str, Value], dict[str, Any]]:
    from trainables import registry

    items = document.root.items
    problems = _unknown_format(document)
    if problems:
        raise UserError(*problems)
    name, parameters = items["method"].value, items["parameters"]
    if not parameters.is_mapping:
        problems.append(
            sentence("parameters", "a mapping of names to values", parameters.value, document.at(parameters))
        )
    if not isinstance(name, str):
        raise UserError(*problems, sentence("method", "the name of a method", name, document.at(items["method"])))
    try:
        declared = registry.declared(name)
    except UserError:
        raise UserError(*problems, unknown("method", name, registry.methods(), document.at(items["method"]))) from None
    _check_origin(document, problems)
    values = _parameters(document, parameters, declared, problems)
    if problems:
        raise UserError(*problems)
    return name, registry.resolve(name, values, document.name), dict(document.root.value)


#: What the fields of `provenance` must be that are read again.
_ORIGIN: shapes.Shape = {
    "run": ("text", shapes.is_text),
    "seeds": ("a list of whole numbers of at least 0", shapes.each(shapes.is_whole(0))),
    "dataset": ("a mapping", shapes.none_or(lambda value: isinstance(value, dict))),
}


def _check_origin(document: Document, problems: list[str]) -> None:
    """Adds a problem where what the file says of itself, beside its parameters, is of another shape."""
    items = document.root.items
    for key in ("metric", "provenance"):
        node = items.get(key)
        if node is not None and node.value is not None and not node.is_mapping:
            problems.append(sentence(key, "a mapping", node.value, document.at(node)))
    space = items.get("space")
    if space is not None and not isinstance(space.value, str):
        problems.append(sentence("space", "text", space.value, document.at(space)))
    for key, node in items["provenance"].items.items() if "provenance" in items else ():
        problems += shapes.problems({key: node.value}, _ORIGIN, document.at(node))


def _unknown_format(document: Document) -> list[str]:
    """What keeps the file from being read as an exported configuration of this version."""
    items, where = document.root.items, document.name
    if "fedtune" not in items:
        return [
            f"{where} is not an exported configuration: it lacks `fedtune: {VERSION}`. Make one with `fedtune "
            f"export RUN -o best.yaml`."
        ]
    version, at = items["fedtune"].value, document.at(items["fedtune"])
    if not shapes.is_whole(VERSION, VERSION)(version):
        return [sentence("fedtune", f"{VERSION}, the version this fedtune reads", version, at)]
    problems = [unknown("key", key, _KEYS, document.at_key(node)) for key, node in items.items() if key not in _KEYS]
    return problems + [f"{where} lacks the key `{key}`." for key in ("method", "parameters") if key not in items]


def _parameters(
    document: Document, given: Node, declared: Mapping[str, Parameter], problems: list[str]
) -> dict[str, Value]:
    """The file's parameters, each valid by itself."""
    values: dict[str, Value] = {}
    for key, node in given.items.items():
        try:
            if canonical(key) not in declared:
                problems.append(unknown("parameter", key, declared, document.at_key(node)))
            elif node.items or node.elements:
                got = Shown("a list" if node.is_list else "a mapping")
                problems.append(sentence(key, declared[canonical(key)].must(), got, document.at(node)))
            else:
                values |= convert_all(declared, {key: node.value}, document.at(node))
        except UserError as error:
            problems.extend(error.problems)
    return values


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
