"""One complete configuration of a method as a file (`fedtune export`), written from a search and read again.

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
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from analysis.estimate import Estimate
from analysis.runs import Run, load_run, race, shapes
from analysis.runs.best import Best
from analysis.runs.run_directory import beside
from fedtune.record.experiment import Experiment
from fedtune.record.run_directory import as_yaml
from search_spaces import documents, run_folder
from search_spaces.documents import Document, Node
from search_spaces.errors import Shown, UserError, sentence, short, unknown
from search_spaces.files import given, read_text
from search_spaces.parameter import Parameter, Value, canonical, convert_all
from search_spaces.shell import quote

VERSION = 1
#: How names of exported configurations end.
ENDINGS = (".yaml", ".yml", ".json")
_KEYS = (
    *("fedtune", "method", "space", "parameters", "searched", "condition"),
    *("metric", "estimate", "metrics", "provenance"),
)


def described(run: Run, best: Best) -> dict[str, Any]:
    """What the file of a configuration holds. It measures the test set in every round, as a final run does, whatever
    the search did."""
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
        "parameters": run.config(best.number) | {"eval_test": "every"},
        "searched": list(best.params),
        **({"condition": dict(best.condition)} if best.condition else {}),
        "metric": best.measured,
        **({} if best.estimate is None else {"estimate": _plain(best.estimate)}),
        "metrics": {name: best.metrics[name] for name in sorted(best.metrics)},
        "provenance": {
            "run": run.name,
            "trial": best.number,
            **({} if best.round is None else {"round": best.round}),
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


def trial_of(run: Run, trial: int | None) -> int:
    """The trial that was asked for, or the best one: one that is ahead of it though it has not ended, if there is."""
    if trial is None:
        if run.ahead is not None:
            return run.ahead
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


def load(path: str | Path) -> tuple[str, dict[str, Value], dict[str, Any]]:
    """An exported file: the method's name, its parameters, and all it says. Raises one `UserError` with every
    problem."""
    return _loaded(documents.read(path, "exported configuration"))


def chosen(path: str | Path) -> tuple[str, dict[str, Value], dict[str, Any]]:
    """The configuration in an exported file, or the best one of the search in a run directory, as `load` returns it."""
    place = given(path)
    if not place.is_dir():
        if place.suffix not in ENDINGS and not place.exists():
            raise UserError(
                f"There is neither a run nor an exported configuration {short(repr(str(path)))}, and no method of that "
                f"name. {beside(place)}"
            )
        return load(path)
    found = load_run(path)
    if found.kind == "run":
        raise UserError(
            f"{found.path} is a final run, which has no winner. Give the search that it belongs to, or the file that "
            f"it was begun with; with another --seed `fedtune run` draws other fresh seeds."
        )
    return _loaded(documents.parse(as_yaml(described(found, Best.of(found, trial_of(found, None)))), str(path)))


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
