"""In which settings the configurations of several runs differ: what a comparison of their results has to know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from analysis.labels import number
from analysis.runs import Run
from analysis.tables import Column, Table

#: The value by run, of the runs that have the parameter.
Values = Mapping[str, Any]


def differences(runs: Mapping[str, Run]) -> dict[str, Values]:
    """By parameter, the values of the runs (by name) that have one of this name, where two of them are not equal.

    A run stands for its best trial. A parameter that one run alone has, as a rule its method's own, is not a
    difference in settings and left out."""
    configs = {name: run.config(run.best) for name, run in runs.items() if run.best is not None}
    keys = dict.fromkeys(key for config in configs.values() for key in config)
    found: dict[str, Values] = {}
    for key in keys:
        values = {name: config[key] for name, config in configs.items() if key in config}
        first = next(iter(values.values()))
        if any(value != first for value in values.values()):
            found[key] = values
    return found


def table(found: Mapping[str, Values], names: list[str]) -> Table:
    """One row per run, one column per parameter of `found`; a run without the parameter has none."""
    rows = [{"run": name} | {key: values.get(name) for key, values in found.items()} for name in names]
    columns = [Column("run", "run", right=False), *(Column(key, key, number) for key in found)]
    return Table(columns, rows, "Settings that differ")
