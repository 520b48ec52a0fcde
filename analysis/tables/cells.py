"""What several runs measured, as cells of a table: a row per method or variant, a column per condition.

A condition is a value of each key of `by`, such as ω = 0.1 on one data set, whether a run varies it or a run of its own
was made for each value. A search takes part in a cell with its best configuration there, chosen by what it selected on;
with `variants`, keys of searched parameters, it has a row for each of their values. Nothing is averaged over a key: a
run that varies one which is neither in `by` nor chosen by `where` is refused.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.labels import Labels, text
from analysis.runs import Run, run_names
from analysis.runs.conditions import means, show
from search_spaces.errors import UserError, unknown
from search_spaces.metrics import METRICS
from search_spaces.parameter import canonical

#: The value of each key of `by`.
Condition = tuple[Any, ...]


@dataclass(frozen=True)
class Cell:
    """One row under one condition: the part of a run that is measured there."""

    row: str
    condition: Condition
    run: str
    part: Run

    @property
    def trial(self) -> int | None:
        """The trial that is opened for it: a search's best one, or the only one of a final run."""
        chosen = self.part.chosen
        return self.part.best if self.part.kind != "run" else chosen[0] if len(chosen) == 1 else None

    def values(self, metric: str, how: str = "last") -> dict[int, float]:
        """The metric by seed, as recorded."""
        return self.part.over_seeds(metric, how)


@dataclass(frozen=True)
class Cells:
    """The cells of several runs."""

    runs: Sequence[Run]
    by: tuple[str, ...]
    cells: Sequence[Cell]

    @property
    def rows(self) -> list[str]:
        """Every row, in the order of the runs."""
        return list(dict.fromkeys(cell.row for cell in self.cells))

    @property
    def conditions(self) -> list[Condition]:
        """Every condition: of each key the values in the order in which the runs list them."""
        orders = [_order(self.runs, key, [cell.condition[i] for cell in self.cells]) for i, key in enumerate(self.by)]
        present = {cell.condition for cell in self.cells}
        return [condition for condition in itertools.product(*orders) if condition in present]

    def of(self, row: str, condition: Condition) -> Cell | None:
        """The cell at this place."""
        return next((cell for cell in self.cells if (cell.row, cell.condition) == (row, condition)), None)


@dataclass(frozen=True)
class OrderedCells(Cells):
    """Cells whose columns stand in the order given, as that of a paper."""

    order: tuple[Condition, ...] = ()

    @property
    def conditions(self) -> list[Condition]:
        present = {cell.condition for cell in self.cells}
        return [place for place in self.order if place in present]


def cells(
    runs: Sequence[Run], by: Sequence[str] = (), variants: Sequence[str] = (), where: Mapping[str, str] | None = None
) -> Cells:
    """The cells of these runs. Without `by`, the conditions that a run varies; `where` keeps the trials with these
    values, given as text.

    Raises `UserError` where a key is none of a run's, a varied one is left over, or nothing has completed."""
    chosen = {canonical(key): value for key, value in (where or {}).items()}
    left = [key for key in varied(runs) if key not in chosen] or list(chosen)
    wanted = tuple(dict.fromkeys(map(canonical, by))) or tuple(left)
    if not wanted:
        raise UserError(
            "No run varies a condition of the experiment. Name the parameter that they differ in with --by."
        )
    return under(runs, wanted, tuple(dict.fromkeys(map(canonical, variants))), chosen)


def under(runs: Sequence[Run], by: Sequence[str], variants: Sequence[str], where: Mapping[str, str]) -> Cells:
    """The cells under exactly the conditions `by`; none of them makes one column of all."""
    found: list[Cell] = []
    for name, run in zip(run_names(runs), runs, strict=True):
        found += _of_run(run, name, tuple(by), tuple(variants), where)
    if not found:
        for run in runs:
            if not run.crossed:
                run.check_fixed({key: text for key, text in where.items() if key in run.record.fixed})
        raise UserError("No trial of these runs has completed under the conditions that were asked for.")
    return Cells(runs, tuple(by), _distinct(found))


def varied(runs: Sequence[Run]) -> list[str]:
    """The conditions that one of the runs varies."""
    return list(dict.fromkeys(key for run in runs if run.crossed for key in _differing(run)))


def _differing(run: Run) -> list[str]:
    keys = [str(item["key"]) for item in run.varied]
    return [key for key in keys if len({condition.get(key) for condition in run.conditions}) > 1]


def _of_run(
    run: Run, name: str, by: tuple[str, ...], variants: tuple[str, ...], where: Mapping[str, str]
) -> list[Cell]:
    """The cells of one run. A final run has one, of all its trials."""
    done = [trial for trial in run.frozen if trial.state.name == "COMPLETE"]
    if not done:
        return []
    fixed = run.config(done[0].number)
    own = {key for trial in done for key in trial.params}
    known = dict.fromkeys([*own, *fixed])
    asked = dict.fromkeys(where, "--where") | dict.fromkeys(variants, "--variant") | dict.fromkeys(by, "--by")
    if strangers := [key for key in asked if key not in known]:
        raise UserError(*(unknown(f"parameter of {name}", key, known, asked[key]) for key in strangers))
    kept = [t for t in done if all(means(text, t.params.get(k, fixed.get(k))) for k, text in where.items())]
    for key in _differing(run):
        if key not in by and len({trial.params.get(key) for trial in kept}) > 1:
            raise UserError(
                f"{name} varies {key} too, and nothing is averaged over it. Add --by {key}, or choose a value, such as "
                f"--where {key}={show(kept[0].params[key])}."
            )
    groups: dict[tuple[Condition, tuple[Any, ...]], list[Any]] = {}
    for trial in kept:
        values = {**fixed, **trial.params}
        place = tuple(values[key] for key in by), tuple(values[key] for key in variants)
        groups.setdefault(place, []).append(trial)
    label = Labels.of([run], markup=False)
    return [
        Cell(
            ", ".join(
                [
                    run.method_title,
                    *(label.setting(k, v) for k, v in zip(variants, variant, strict=True)),
                ]
            ),
            condition,
            name,
            dataclasses.replace(run, frozen=trials),
        )
        for (condition, variant), trials in groups.items()
    ]


def _distinct(found: Sequence[Cell]) -> list[Cell]:
    """The cells with rows that no two runs share under one condition: there, the run is named."""
    owners: dict[tuple[str, Condition], set[str]] = {}
    for cell in found:
        owners.setdefault((cell.row, cell.condition), set()).add(cell.run)
    shared = {row for (row, _), runs in owners.items() if len(runs) > 1}
    return [dataclasses.replace(c, row=f"{c.row} ({c.run})") if c.row in shared else c for c in found]


def _order(runs: Sequence[Run], key: str, present: Sequence[Any]) -> list[Any]:
    """Values of a key: as a run lists them; numbers that no run lists falling, as papers order ω, whole ones rising, as
    they order numbers of clients."""
    listed: list[Any] = []
    for run in runs:
        item = next((item for item in (*run.varied, *run.searched) if item["key"] == key), {})
        listed += [v for v in item.get("grid") or item.get("options") or [] if v in present and v not in listed]
    rest = [value for value in dict.fromkeys(present) if value not in listed]
    if rest and all(isinstance(value, (int, float)) for value in [*rest, *listed]):
        every = [*rest, *listed]
        return sorted(every, reverse=any(isinstance(value, float) for value in every))
    return [*listed, *rest]


def reading(metric: str, readout: str) -> str:
    """In which round a metric is read, as `Cell.values` and `Run.over_seeds` have it: the last one, or its own best
    one."""
    return "last" if readout == "last" else METRICS[metric].direction if metric in METRICS else "maximize"


def condition_label(labels: Labels, key: str, value: Any) -> str:
    """`ω = 0.1`; of a text, such as a data set, the text alone."""
    if isinstance(value, str) and key in ("dataset", "partition", "model"):
        return text(value) if labels.markup else value
    return labels.setting(key, value)
