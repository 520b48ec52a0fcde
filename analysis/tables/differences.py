"""In which settings the configurations of several runs differ: what a comparison of their results has to know."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from analysis.labels import number
from analysis.runs import Run
from analysis.tables.cells import Cells
from analysis.tables.table import Column, Table

#: The value by run, of the runs that have the parameter.
Values = Mapping[str, Any]


def differences(runs: Mapping[str, Run]) -> dict[str, Values]:
    """By parameter, the values of the runs (by name) that have one of this name, where two of them are not equal.

    A run stands for its best trial. A parameter that one run alone has, as a rule its method's own, is not a
    difference in settings and left out; so is how often a run measured the test set."""
    configs = {name: run.config(run.best) for name, run in runs.items() if run.best is not None}
    keys = dict.fromkeys(key for config in configs.values() for key in config if key != "eval_test")
    found: dict[str, Values] = {}
    for key in keys:
        values = {name: config[key] for name, config in configs.items() if key in config}
        first = next(iter(values.values()))
        if any(value != first for value in values.values()):
            found[key] = values
    return found


def under_conditions(found: Cells) -> dict[str, Values]:
    """The same of runs whose cells stand side by side: in what they differ beside the conditions of the columns. What a
    run searches has no one value, as every cell has its own best trial, and is left out."""
    searched = {key.rsplit(".", 1)[-1] for run in found.runs for key in run.keys}
    parts = {cell.run: cell.part for cell in reversed(found.cells)}
    named = {cell.run: parts[cell.run] for cell in found.cells}
    return {key: values for key, values in differences(named).items() if key not in {*found.by, *searched}}


def notes_under_conditions(found: Cells) -> list[str]:
    """What a reader of these cells has to know of the runs: how searches take part, and what makes runs unequal."""
    differing = [f"{key} = {_by_value(values)}" for key, values in under_conditions(found).items()]
    notes = [f"Settings that differ: {'; '.join(differing)}."] if differing else []
    parts = [cell.part for cell in found.cells]
    if "rounds" not in found.by:
        notes += lengths(int(part.rounds["round"].max()) for part in parts if not part.rounds.empty)
    if "dataset" not in found.by:
        notes += data_sets(part.config(part.best).get("dataset", "") for part in parts if part.best is not None)
    by = {metric: None for run in found.runs if run.kind != "run" and run.keys for metric in run.metrics[:1]}
    if by:
        notes.append(
            "A search takes part with its best configuration under each condition, chosen by "
            f"{' and '.join(by)}; its seeds were seen while searching."
        )
    return notes


def lengths(rounds: Iterable[int]) -> list[str]:
    """A sentence where runs of so many rounds are not equally long."""
    found = sorted(set(rounds))
    if len(found) < 2:
        return []
    return [f"The runs are of different lengths ({', '.join(map(str, found))} rounds)."]


def data_sets(used: Iterable[object]) -> list[str]:
    """A sentence where runs used more than one data set."""
    found = sorted({str(one) for one in used})
    if len(found) < 2:
        return []
    return [f"The runs used different data sets ({', '.join(found)}): their numbers are not comparable."]


def _by_value(values: Values) -> str:
    """`10 (a, b), 20 (c)`: every value with the runs that have it."""
    runs: dict[str, list[str]] = {}
    for name, value in values.items():
        runs.setdefault(number(value), []).append(name)
    return ", ".join(f"{value} ({', '.join(names)})" for value, names in runs.items())


def differences_table(found: Mapping[str, Values], names: list[str]) -> Table:
    """One row per run, one column per parameter of `found`; a run without the parameter has none."""
    rows = [{"run": name} | {key: values.get(name) for key, values in found.items()} for name in names]
    columns = [Column("run", "run", right=False), *(Column(key, key, number) for key in found)]
    return Table(columns, rows, "Settings that differ")
