"""Tables of several runs, a row per method or variant and a column per condition."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from analysis.runs import Paths, Run, load_runs, run_names
from analysis.tables.cells import Cells, cells
from analysis.tables.differences import Values, notes_under_conditions, under_conditions
from analysis.tables.pivot import FIELDS, LOOKS, METHOD, METRIC, Marks, Pivot, pivot, printed, to_csv, to_json
from analysis.tables.typesetting import TextTable
from search_spaces.errors import UserError, unknown
from search_spaces.metrics import METRICS, twin
from search_spaces.parameter import canonical, pairs

if TYPE_CHECKING:
    import plotly.graph_objects as go


@dataclass(frozen=True)
class Pivots:
    """A table per metric, all of the same cells."""

    cells: Cells
    tables: Sequence[Pivot]

    def notes(self, marks: Marks = LOOKS) -> list[str]:
        """What the reader of all tables has to know. `marks`: what the best cells and those not told from them have."""
        notes = [note for table in self.tables for note in table.notes(marks=marks)]
        return list(dict.fromkeys([*self._on_runs, *notes]))

    @cached_property
    def _on_runs(self) -> list[str]:
        return notes_under_conditions(self.cells)

    @cached_property
    def differences(self) -> Mapping[str, Values]:
        """The settings in which the runs differ beside the conditions: by parameter, the value of every run that has
        it."""
        return under_conditions(self.cells)

    def frame(self) -> pd.DataFrame:
        """Every cell as a row, see `Pivot.frame`."""
        return pd.concat([table.frame() for table in self.tables], ignore_index=True)

    def csv(self) -> str:
        """The same as CSV."""
        return to_csv(self.tables, self.differences)

    def to_json(self) -> dict[str, Any]:
        """Plain data for --json: `results`, a row per cell, `differences` (values by parameter and run), `notes`."""
        differing = {key: dict(values) for key, values in self.differences.items()}
        return {"results": to_json(self.tables), "differences": differing, "notes": self.notes(FIELDS)}

    def printed_each(self) -> list[TextTable]:
        """Every table with all its notes."""
        return [printed([table], notes=self._on_runs) for table in self.tables]

    def latex(self) -> str:
        """All tables, one below the other."""
        return "\n".join(one.latex() for one in self.printed_each())

    def markdown(self) -> str:
        """All tables, one below the other."""
        return "\n".join(one.markdown() for one in self.printed_each())

    def printed(self, down: Sequence[str] = ()) -> TextTable:
        """All tables as one. `down`: what stands before the rows, of `method`, `metric` and the conditions' keys; by
        default the method, after the metric where there are several."""
        default = (METRIC, METHOD) if len(self.tables) > 1 else (METHOD,)
        return printed(self.tables, tuple(map(canonical, down)) or default, notes=self._on_runs)

    def figure(self) -> go.Figure:
        """The metrics against a condition, a line per row."""
        from analysis.figures import factor
        from analysis.labels import Labels

        return factor.plot(
            factor.drawing(self.cells, [table.metric for table in self.tables]), Labels.of(self.cells.runs)
        )

    def page(self, output: str | os.PathLike[str]) -> Path:
        """Writes one offline page with figures and tables; returns its path."""
        from analysis.report.comparison import write_page

        return write_page(self.cells, self.tables, output)


def pivots(
    runs: Paths,
    *,
    metrics: Sequence[str] = (),
    by: Sequence[str] = (),
    variants: Sequence[str] = (),
    where: Mapping[str, str] | Sequence[str] = (),
    brackets: str | None = None,
    readout: str = "last",
) -> Pivots:
    """The tables of these runs, one per metric.

    metrics: by default what the runs selected on, on test data. by: the conditions of the columns, by default those
    that a run varies. variants: searched parameters whose values get rows of their own. where: only trials with these
    values, as `name=value`. brackets: a second metric beside each value. readout: last or best round.

    Raises `UserError` for a folder that is no run, an unknown metric or parameter, and where a varied condition is
    neither in `by` nor chosen."""
    return of_runs(load_runs(runs), metrics, by, variants, where, brackets, readout)


def of_runs(
    loaded: Sequence[Run],
    metrics: Sequence[str] = (),
    by: Sequence[str] = (),
    variants: Sequence[str] = (),
    where: Mapping[str, str] | Sequence[str] = (),
    brackets: str | None = None,
    readout: str = "last",
) -> Pivots:
    """The same of runs that were read."""
    asked = list(metrics) or list(dict.fromkeys(twin(m) if m.startswith("val_") else m for m in loaded[0].metrics))
    problems = [unknown("metric", m, METRICS, "--metric") for m in asked if m not in METRICS]
    if brackets is not None and brackets not in METRICS:
        problems.append(unknown("metric", brackets, METRICS, "--brackets"))
    if readout not in ("last", "best"):
        problems.append(unknown("readout", readout, ("last", "best"), "--readout"))
    chosen = {name: str(value) for name, value in pairs(where, "--where", problems)}
    if problems:
        raise UserError(*problems)
    found = cells(loaded, by, variants, chosen)
    missing = [m for m in asked if not any(cell.values(m) for cell in found.cells)]
    if missing:
        raise UserError(
            f"{' and '.join(missing)} was not measured in {', '.join(run_names(loaded))}. Choose another --metric."
        )
    return Pivots(found, [pivot(found, metric, brackets, readout) for metric in asked])
