"""The pivot table of several runs: a row per method or variant, a column per condition, mean ± std over seeds.

The best mean of a column is bold, and so are means equal to it. Every other one is tested against it over the seeds
both have (paired t test, Holm's correction within the column); what cannot be told from the best at `LEVEL` is
underlined, and so is what no test was possible of: fewer than two seeds are common, or all differences are the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from analysis.labels import Labels, decimals, number, scale, unit_in_files
from analysis.stats import Summary, holm, paired, summarise
from analysis.tables.cells import Cells, Condition, condition_label, reading
from analysis.tables.table import Table
from analysis.tables.typesetting import EMPTY, TextCell, TextTable
from search_spaces.errors import UserError, unknown
from search_spaces.metrics import waits

if TYPE_CHECKING:
    from rich.table import Table as RichTable

#: Below this p (Holm) a row is told from the best of its column.
LEVEL = 0.05
#: What stands above the only column of a table without conditions.
RESULT = "result"
#: Names of what is no condition, among the keys of a sheet's labels.
METHOD, METRIC = "method", "metric"
#: What shows a cell with the best mean, and one that is not told from it: on paper and pages, in a terminal, in data.
Marks = tuple[str, str]
LOOKS: Marks = ("Bold", "Underlined")
SIGNS: Marks = ("*", "=")
FIELDS: Marks = ("best", "tied")


@dataclass(frozen=True)
class PivotCell:
    """One row under one condition."""

    summary: Summary
    #: Of the metric in brackets; None where none was asked for, or it was not measured.
    bracket: Summary | None
    best: bool
    tied: bool
    #: Of the paired test against the best, corrected; nan where there was none.
    p: float
    difference: float
    pairs: int
    run: str
    trial: int | None


@dataclass(frozen=True)
class Pivot:
    """The table of one metric."""

    metric: str
    bracket: str | None
    readout: str
    by: tuple[str, ...]
    rows: Sequence[str]
    conditions: Sequence[Condition]
    entries: dict[tuple[str, Condition], PivotCell]
    labels: Labels

    @property
    def title(self) -> str:
        """The metric, with its unit, and that in brackets."""
        return f"{self.labels.metric(self.metric, split=True)}{self.inside}, {self.readings}"

    @property
    def readings(self) -> str:
        """Which round, and what a cell holds."""
        return f"{'best' if self.readout == 'best' else 'last'} round, mean ± std over seeds"

    @property
    def inside(self) -> str:
        return f" ({self.labels.metric(self.bracket)} in brackets)" if self.bracket else ""

    def head(self, key: str) -> str:
        """What stands above labels of a key that are before the rows."""
        return key if key in (METHOD, METRIC) else "data set" if key == "dataset" else self.labels.symbol(key)

    def label(self, key: str, value: Any, *, bare: bool = False) -> str:
        """`ω = 0.1`, `FedAvg` or `AMP [%]`; `bare`: below a head that names the key."""
        if key == METHOD:
            return str(value)
        if key == METRIC:
            return self.labels.metric(value)
        return number(value) if bare else condition_label(self.labels, key, value)

    def shown(self, row: str, condition: Condition) -> TextCell:
        """What stands in the cell, and its marks."""
        value, bracket = self.parts(row, condition)
        entry = self.entries.get((row, condition))
        return TextCell(value, bracket, bool(entry and entry.best), bool(entry and entry.tied))

    def notes(self, group: str = "the column", marks: Marks = LOOKS) -> list[str]:
        """What a reader has to know. `group`: where the methods stand that are set against each other. `marks`: what
        the best cells and those not told from them have."""
        best, tied = marks
        notes = [
            f"{best}: the best mean of {group}. {tied}: not told from it at 0.05 by a paired t test over the seeds "
            f"both have, with Holm's correction within {group}."
        ]
        others = [entry for entry in self.entries.values() if not entry.best]
        if any(entry.pairs < 2 for entry in others):
            notes.append("Where fewer than two seeds are common no test is possible, and nothing is told apart.")
        if waits(self.metric) and len(self.entries) < len(self.rows) * len(self.conditions):
            notes.append(f"{EMPTY}: not run yet, or a seed did not reach the target in its rounds.")
        if self.readout == "best":
            notes.append("The best round was picked on the test data itself, as many papers do: it is optimistic.")
        return notes

    def text(self, row: str, condition: Condition) -> str:
        """`87.31 ± 0.42 (61.20 ± 1.03)`; `–` where nothing was measured."""
        return " ".join(filter(None, self.parts(row, condition)))

    def parts(self, row: str, condition: Condition) -> tuple[str, str]:
        """The same in two: the value, and what stands in brackets, with them; empty where there is nothing."""
        entry = self.entries.get((row, condition))
        if entry is None:
            return EMPTY, ""
        shown = _shown(entry.summary, self.metric)
        return shown, f"({_shown(entry.bracket, self.bracket)})" if entry.bracket and self.bracket else ""

    def printed(self) -> TextTable:
        """Its rows and columns as they are written."""
        return printed([self])

    def rich(self) -> RichTable:
        """For a terminal, without the notes."""
        return self.printed().rich()

    def frame(self) -> pd.DataFrame:
        """Tidy, a row per cell: metric, unit, row, the condition's keys, mean, std, low, high (95 % t interval), n,
        bracket, bracket_unit, bracket_mean, bracket_std, best, tied, p_holm, difference (to the best), pairs, run,
        trial. Values are as recorded, so that accuracies are fractions."""
        return pd.DataFrame(self.records())

    def records(self) -> list[dict[str, Any]]:
        """The same as plain rows."""
        found = []
        for row, condition in itertools.product(self.rows, self.conditions):
            entry = self.entries.get((row, condition))
            if entry is None:
                continue
            s, b = entry.summary, entry.bracket
            found.append(
                {"metric": self.metric, "unit": unit_in_files(self.metric), "row": row}
                | dict(zip(self.by, condition, strict=True))
                | {"mean": s.mean, "std": s.std, "low": s.low, "high": s.high, "n": s.n}
                | {"bracket": self.bracket, "bracket_unit": unit_in_files(self.bracket or "")}
                | {"bracket_mean": b.mean if b else None, "bracket_std": b.std if b else None}
                | {"best": entry.best, "tied": entry.tied}
                | {"p_holm": entry.p, "difference": entry.difference, "pairs": entry.pairs}
                | {"run": entry.run, "trial": entry.trial}
            )
        return found


def pivot(found: Cells, metric: str, bracket: str | None = None, readout: str = "last") -> Pivot:
    """The table of `metric` over these cells, with another metric in `bracket`s where one is given."""
    direction, how = reading(metric, "best"), reading(metric, readout)
    inside = (bracket, reading(bracket, readout)) if bracket else None
    entries: dict[tuple[str, Condition], PivotCell] = {}
    for condition in found.conditions:
        values = {row: cell.values(metric, how) for row in found.rows if (cell := found.of(row, condition)) is not None}
        entries |= _column(found, condition, {row: v for row, v in values.items() if v}, direction, inside)
    every = waits(metric) and bool(entries)  # that a target was not reached is a result too
    rows = [row for row in found.rows if every or any(place[0] == row for place in entries)]
    conditions = [place for place in found.conditions if every or any(place == there for _, there in entries)]
    labels = Labels.of(found.runs, markup=False)
    return Pivot(metric, bracket, readout, found.by, rows, conditions, entries, labels)


def _column(
    found: Cells,
    condition: Condition,
    values: dict[str, dict[int, float]],
    direction: str,
    bracket: tuple[str, str] | None,
) -> dict[tuple[str, Condition], PivotCell]:
    """The entries under one condition. `bracket`: the metric in brackets, and in which round it is read."""
    if not values:
        return {}
    sums = {row: summarise(list(by_seed.values())) for row, by_seed in values.items()}
    sign = 1.0 if direction == "maximize" else -1.0
    first = max(sums, key=lambda row: sign * sums[row].mean)
    others = [row for row in sums if row != first]
    tests = {row: paired(values[first], values[row]) for row in others}
    corrected = dict(zip(others, holm([tests[row].t_p for row in others]), strict=True))
    entries = {}
    for row, summary in sums.items():
        cell, test, p = found.of(row, condition), tests.get(row), corrected.get(row, float("nan"))
        assert cell is not None
        inside = summarise(list(cell.values(*bracket).values())) if bracket else None
        entries[row, condition] = PivotCell(
            summary=summary,
            bracket=inside if inside is not None and inside.n else None,
            best=summary.mean == sums[first].mean,
            tied=summary.mean != sums[first].mean and not p < LEVEL,
            p=p,
            difference=test.difference if test else 0.0,
            pairs=test.n if test else summary.n,
            run=cell.run,
            trial=None if cell.part.kind == "run" else cell.part.best,
        )
    return entries


def printed(
    tables: Sequence[Pivot], down: Sequence[str] = (METHOD,), title: str = "", notes: Sequence[str] = ()
) -> TextTable:
    """Tables of the same cells as one. `down`: what stands before the rows, of `method`, `metric` and the conditions'
    keys; the others stand above the columns: conditions in their order, then the method, then, of several tables, the
    metric. `title` and `notes` of their own come before those of the tables."""
    first = tables[0]
    keys = [*first.by, METHOD, *([METRIC] if len(tables) > 1 or METRIC in down else [])]
    wrong = [unknown("label of rows", key, keys, "--down") for key in down if key not in keys]
    if wrong:
        raise UserError(*wrong)
    across = [key for key in keys if key not in down]
    orders = _orders(tables)
    found: dict[tuple[Condition, Condition], TextCell] = {}
    for table in tables:
        for row, condition in itertools.product(table.rows, table.conditions):
            if (row, condition) in table.entries or waits(table.metric):
                values = {**dict(zip(table.by, condition, strict=True)), METHOD: row, METRIC: table.metric}
                place = tuple(values[key] for key in down), tuple(values[key] for key in across)
                found[place] = table.shown(row, condition)
    rows = sorted({row for row, _ in found}, key=lambda place: _rank(place, down, orders))
    columns = sorted({column for _, column in found}, key=lambda place: _rank(place, across, orders))
    sides = [first.head(key) for key in down]
    group = "the column" if tuple(down) == (METHOD,) else "the methods under one condition"
    labels = {row: tuple(first.label(k, v, bare=True) for k, v in zip(down, row, strict=True)) for row in rows}
    above = {c: tuple(first.label(k, v) for k, v in zip(across, c, strict=True)) or (RESULT,) for c in columns}
    return TextTable(
        title=": ".join(filter(None, (title, first.title if len(tables) == 1 else first.readings + first.inside))),
        sides=sides,
        rows=[labels[row] for row in rows],
        columns=[above[column] for column in columns],
        cells=[[found.get((row, column), TextCell(EMPTY)) for column in columns] for row in rows],
        notes=list(dict.fromkeys([*notes, *(note for table in tables for note in table.notes(group))])),
    )


def _orders(tables: Sequence[Pivot]) -> dict[str, list[Any]]:
    """Of each key its values in the order in which they stand."""
    by = tables[0].by
    places = list(dict.fromkeys(condition for table in tables for condition in table.conditions))
    orders: dict[str, list[Any]] = {key: list(dict.fromkeys(p[i] for p in places)) for i, key in enumerate(by)}
    orders[METHOD] = list(dict.fromkeys(row for table in tables for row in table.rows))
    return orders | {METRIC: [table.metric for table in tables]}


def _rank(place: Condition, keys: Sequence[str], orders: Mapping[str, Sequence[Any]]) -> tuple[int, ...]:
    return tuple(orders[key].index(value) for key, value in zip(keys, place, strict=True))


def to_csv(tables: Sequence[Pivot], settings: Mapping[str, Mapping[str, Any]] | None = None) -> str:
    """All tables as one, a row per cell and metric, unrounded, accuracies as fractions. `settings`: by key the values
    of runs, which stand in columns `config.…`."""
    of_run = {f"config.{key}": values for key, values in (settings or {}).items()}
    rows = [row for table in tables for row in table.records()]
    rows = [row | {key: values.get(row["run"]) for key, values in of_run.items()} for row in rows]
    return Table.of_records(rows).csv()


def to_json(tables: Sequence[Pivot]) -> list[dict[str, Any]]:
    """The same rows as plain values; what is not finite is null."""
    return Table.of_records([row for table in tables for row in table.records()]).json()


def _shown(summary: Summary, metric: str) -> str:
    return summary.shown(scale(metric), decimals(metric))
