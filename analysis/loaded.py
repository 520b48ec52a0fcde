"""`fedtune.load`: a run, or several, whose figures and tables are had by name.

    found = fedtune.load("runs/dfrd-alpha_lambda")
    found.figure("heatmap").show()                 # a plotly figure
    found.table("trials")                          # a pandas DataFrame
    found.save("heatmap", "fig5.pdf")              # png, svg, pdf or html; of a table also csv, tex, md

Figures are those of a report (`analysis.figures`). Tables:

    trials       every trial: outcome, metrics, searched values
    conditions   the best under each condition of the experiment, of a run under several
    pivot        a row per method or variant and condition, see `analysis.pivots`

Frames and CSV files hold numbers as recorded, so that accuracies are fractions; a CSV file says units in its header or
in a column `unit`. What people read, a picture, a page, LaTeX or Markdown, has accuracies in per cent.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from analysis.figure import Figure
from analysis.figures import figure as figure_named
from analysis.figures import figures
from analysis.figures import names as figure_names
from analysis.labels import Labels
from analysis.pivots import Pivots, of_runs
from analysis.report.conditions import by_condition, conditions_recorded
from analysis.report.files import PICTURES, file_format, table_page, write_figure, write_picture
from analysis.report.page import escape, write
from analysis.report.table_picture import text_table_picture
from analysis.report.trials import trials
from analysis.reproduce.folder import ReproductionRecord, load_made
from analysis.reproduce.joint_table import Joined, joined
from analysis.runs import Paths, Run, load_runs
from analysis.runs.conditions import means, named, show
from analysis.tables.table import Table
from search_spaces.errors import UserError, unknown
from search_spaces.metrics import METRICS

if TYPE_CHECKING:
    import plotly.graph_objects as go

TABLES = ("trials", "conditions", "pivot")


@dataclass(frozen=True)
class Loaded:
    """One run or several."""

    runs: Sequence[Run]

    @property
    def names(self) -> list[str]:
        """Every figure and table that can be asked for."""
        return [*figure_names(), *TABLES]

    def figure(self, name: str, where: Mapping[str, Any] | None = None, metrics: Sequence[str] | str = ()) -> go.Figure:
        """The figure of that name. Of a run under several conditions of the experiment most figures are of one
        condition, which `where` chooses, as in `{"omega": 0.1}`. `metrics` are what `rounds`, `factor` and `spread`
        draw in place of the accuracies.

        Raises `UserError` where there is no such figure, or it cannot be drawn."""
        found = figure_named(name)
        asked = [metrics] if isinstance(metrics, str) else list(metrics)
        _check_metrics(name, found, asked, self.runs)
        runs = self.runs
        if not found.across and not found.many:
            runs = [_one_condition(run, where, name) for run in runs[:1]]
        elif where:
            runs = [_one_condition(run, where, name) for run in runs]
        reason = found.needs(runs)
        if reason is not None:
            raise UserError(reason)
        return found.draw(runs, Labels.of(runs), asked)

    def table(self, name: str, **options: Any) -> pd.DataFrame:
        """The table of that name; `options` of the pivot table are those of `analysis.pivots.pivots`.

        Raises `UserError` where there is no such table, or it would be empty."""
        found = self._table(name, options)
        return found.frame() if isinstance(found, Pivots) else pd.DataFrame(self._recorded(name, found).json())

    def save(self, name: str, path: str | os.PathLike[str], *, kind: str | None = None, **options: Any) -> Path:
        """Writes a figure or a table to `path` and returns it. `kind` is the format, by default the path's suffix: png,
        svg, pdf or html, of a table also csv, tex or md. `options` are those of `figure` or `table`.

        Raises `UserError` where there is no such thing or format, the file cannot be written, or, for pictures,
        kaleido or a browser is missing."""
        target = Path(path)
        if name not in self.names:
            raise UserError(unknown("figure or table", name, self.names))
        wanted = file_format(target, kind, is_table=name in TABLES)
        if name not in TABLES:
            return write_figure(self.figure(name, **options), figure_named(name), target, wanted)
        found, down = self._table(name, options), options.get("down") or ()
        if wanted in PICTURES:
            printed = found.printed(down) if isinstance(found, Pivots) else found.printed()
            return write_picture(text_table_picture(printed), target, wanted)
        if wanted == "csv":
            return write(target, found.csv() if isinstance(found, Pivots) else self._recorded(name, found).csv())
        return write(target, _text(found, wanted, down))

    def _table(self, name: str, options: Mapping[str, Any]) -> Table | Pivots:
        if name == "pivot":
            return of_runs(self.runs, **{key: value for key, value in options.items() if key != "down"})
        if name not in TABLES:
            raise UserError(unknown("table", name, TABLES))
        if options:
            raise UserError(f"The table {name} takes no options, got {', '.join(options)}.")
        run = self.runs[0]
        if name == "trials":
            return trials(run)
        found = by_condition(run, Labels.of([run], markup=False))
        if not found.rows:
            raise UserError(f"{run.path} has no table {name}: no trial has completed yet.")
        return found

    def _recorded(self, name: str, shown: Table) -> Table:
        """What `shown` says as numbers of their own."""
        run = self.runs[0]
        return conditions_recorded(run, Labels.of([run], markup=False)) if name == "conditions" else shown


def load(run: Paths) -> Loaded | Joined:
    """A run directory, or several, by figures and tables. A table of a paper that `fedtune reproduce` made again, or
    the same one on several data sets, is read as one table. Raises `UserError` where a path is neither."""
    listed = [run] if isinstance(run, (str, os.PathLike)) else list(run)
    remade = [one for one in listed if not isinstance(one, Run) and ReproductionRecord.is_in(one)]
    if not remade:
        return Loaded(load_runs(run))
    if len(remade) < len(listed):
        raise UserError(f"{remade[0]} is a table of a paper made again. Give such tables alone, or runs alone.")
    return joined([load_made(one) for one in remade])


def _check_metrics(name: str, found: Figure[Any], asked: Sequence[str], runs: Sequence[Run]) -> None:
    """Raises `UserError` where the figure takes no metrics, or one is unknown."""
    if not asked:
        return
    if found.of is None:
        able = ", ".join([one for one, each in figures().items() if each.of is not None])
        raise UserError(f"{name} chooses its metrics itself. --metric belongs to {able} and the table pivot.")
    known = dict.fromkeys([*METRICS, *(column for run in runs for column in run.rounds.columns)])
    problems = [unknown("metric", metric, known, "--metric") for metric in asked if metric not in known]
    if problems:
        raise UserError(*problems)


def _one_condition(run: Run, where: Mapping[str, Any] | None, name: str) -> Run:
    """The part of the run that a figure of one condition shows."""
    asked = {key: show(value) for key, value in (where or {}).items()}
    if not run.crossed:
        run.check_fixed(asked)
        return run
    chosen = [c for c in run.conditions if all(means(text, c.get(key)) for key, text in asked.items())]
    if len(chosen) == 1:
        return run.within(chosen[0])
    every = "; ".join(named(condition) for condition in run.conditions)
    how = " ".join(f"--where {key}={show(value)}" for key, value in run.conditions[0].items())
    raise UserError(
        f"{name} is drawn for one condition of the experiment. Choose one, such as {how}. There are: {every}."
    )


def _text(found: Table | Pivots, kind: str, down: Sequence[str]) -> str:
    """The table as LaTeX, Markdown or a page; with `down` several metrics are one table."""
    if isinstance(found, Table):
        tables = [found.printed()]
    else:
        tables = [found.printed(down)] if down else found.printed_each()
    if kind != "html":
        return "\n".join(table.latex() if kind == "tex" else table.markdown() for table in tables)
    if isinstance(found, Table):
        return table_page(found.title, found.html())
    return table_page("Table", "\n".join(f"<h2>{escape(table.title)}</h2>{table.html()}" for table in tables))
