"""Tables of a paper that were made again, read together: the same one on several data sets is one table and one figure.

found = fedtune.load(["runs/fedkf-table12-small", "runs/fedkf-table12-small-rotated_digits"])
found.save("pivot", "table.tex")                              # the paper's layout, data sets side by side
found.save("rounds", "amp.png", metrics=["amp"])              # a line for each row, a panel for each data set
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from analysis.figures import factor, figure, rounds
from analysis.figures._common import check_measured
from analysis.labels import Labels
from analysis.report.files import PICTURES, file_format, table_page, write_figure, write_picture
from analysis.report.page import write
from analysis.report.table_picture import text_table_picture
from analysis.reproduce.folder import Made
from analysis.runs.conditions import means, show
from analysis.tables.cells import Cells, Condition, OrderedCells
from analysis.tables.pivot import Pivot, pivot, printed, to_csv
from analysis.tables.typesetting import TextTable
from search_spaces import run_folder
from search_spaces.errors import UserError, short, unknown
from search_spaces.metrics import METRICS
from search_spaces.shell import quote

if TYPE_CHECKING:
    import plotly.graph_objects as go

FIGURES = {"rounds": rounds, "factor": factor}
NAMES = ("pivot", *FIGURES)


@dataclass(frozen=True)
class Joined:
    """One table of a paper, on one data set or several."""

    made: Sequence[Made]

    @property
    def names(self) -> list[str]:
        """Every figure and table that can be asked for."""
        return list(NAMES)

    @cached_property
    def labels(self) -> Labels:
        """With the papers' signs, for tables."""
        return self.made[0].labels

    def cells(self, where: Mapping[str, Any] | None = None) -> Cells:
        """The cells of all, the data set among their conditions. `where`: only those with these values, of a condition
        or of what a row sets."""
        keys = self.made[0].reproduction.by
        chosen = {key: show(value) for key, value in (where or {}).items()}
        found, order = [], []
        for made in self.made:
            sets = {row.name: {"method": row.method, **row.values} for row in made.reproduction.rows}
            order += [_placed(made, place, keys) for place in made.reproduction.places]
            for cell in made.cells.cells:
                values = {**sets[cell.row], **_named(made, cell.condition)}
                if all(key in values and means(text, values[key]) for key, text in chosen.items()):
                    placed = _placed(made, cell.condition, keys)
                    run = f"{made.path.name}/{cell.run}" if len(self.made) > 1 else cell.run
                    found.append(dataclasses.replace(cell, condition=placed, run=run))
        if not found:
            raise UserError(self._nothing(chosen))
        rank = {key: list(dict.fromkeys(place[i] for place in order)) for i, key in enumerate(keys)}
        order.sort(key=lambda place: [rank[key].index(value) for key, value in zip(keys, place, strict=True)])
        runs = tuple({cell.part.path: cell.part for cell in found}.values())
        return OrderedCells(runs, tuple(keys), found, tuple(order))

    def _nothing(self, chosen: Mapping[str, str]) -> str:
        if not chosen:
            folder = self.made[0].path
            return f"{folder} has no finished cell yet. Go on with `fedtune resume {quote(str(folder))}`."
        asked = ", ".join(f"{key}={value}" for key, value in chosen.items())
        return f"No finished cell of {self.made[0].path} has {short(asked)}. A condition, or what a row sets, is meant."

    def tables(
        self, metrics: Sequence[str] = (), where: Mapping[str, Any] | None = None, brackets: str | None = None
    ) -> list[Pivot]:
        """A table for each metric; by default the paper's. Raises `UserError` where one was not measured."""
        one = self.made[0].reproduction
        problems = [unknown("metric", m, METRICS, "--metric") for m in metrics if m not in METRICS]
        if problems:
            raise UserError(*problems)
        found = self.cells(where)
        asked = list(metrics) or list(one.metrics)
        measured = [metric for metric in asked if any(cell.values(metric) for cell in found.cells)]
        check_measured(asked if metrics else measured[:1] or asked, [(metric, "") for metric in measured], found.runs)
        inside = brackets or (None if metrics else one.brackets)
        return [
            dataclasses.replace(pivot(found, metric, inside, one.readout), labels=self.labels) for metric in measured
        ]

    def printed(
        self,
        metrics: Sequence[str] = (),
        where: Mapping[str, Any] | None = None,
        brackets: str | None = None,
        down: Sequence[str] = (),
    ) -> TextTable:
        """All of it as one table in the paper's layout, or with other labels `down` the rows."""
        one = self.made[0].reproduction
        return printed(self.tables(metrics, where, brackets), down or one.down, self.title, self.settings())

    @property
    def title(self) -> str:
        """Whose table it is. What the paper measured it on is no part of it."""
        return f"{self.made[0].reproduction.source}, made again"

    def settings(self) -> list[str]:
        """On what each part was measured."""
        return [f"Made again on {made.here.said(made.reproduction.columns)}." for made in self.made]

    def table(self, name: str, **options: Any) -> pd.DataFrame:
        """Every cell of the table as a row, see `Pivot.frame`."""
        if name != "pivot":
            raise UserError(unknown("table", name, ["pivot"]))
        options.pop("down", None)
        return pd.concat([table.frame() for table in self.tables(**options)], ignore_index=True)

    def figure(self, name: str, where: Mapping[str, Any] | None = None, metrics: Sequence[str] | str = ()) -> go.Figure:
        """Metrics against the round or against a condition, a line for each row of the table.

        Raises `UserError` where there is no such figure, or a metric was not measured."""
        if name not in FIGURES:
            raise UserError(unknown("figure", name, list(FIGURES)))
        found = self.cells(where)
        asked = [metrics] if isinstance(metrics, str) else list(metrics)
        labels = dataclasses.replace(self.labels, markup=True)
        if name == "factor" and all(len({place[i] for place in found.conditions}) < 2 for i in range(len(found.by))):
            raise UserError("A metric against a condition needs two conditions or data sets; there is one.")
        drawing = FIGURES[name].drawing(found, asked or self.made[0].reproduction.metrics, labels=labels)
        check_measured(asked, drawing.panels, found.runs)
        figure: go.Figure = FIGURES[name].plot(drawing, labels)
        return figure

    def save(self, name: str, path: str | os.PathLike[str], *, kind: str | None = None, **options: Any) -> Path:
        """Writes a figure or the table to `path` and returns it, see `analysis.loaded.Loaded.save`."""
        target = Path(path)
        if name not in NAMES:
            raise UserError(unknown("figure or table of a reproduction", name, NAMES))
        wanted = file_format(target, kind, is_table=name == "pivot")
        if name in FIGURES:
            return write_figure(self.figure(name, **options), figure(name), target, wanted)
        if extra := options.keys() & {"by", "variants"}:
            named = " and ".join(sorted(extra))
            raise UserError(f"A table of a paper has its own rows and columns, got {named}. --down changes its layout.")
        if wanted == "csv":
            options.pop("down", None)
            return write(target, to_csv(self.tables(**options)))
        made = self.printed(**options)
        if wanted in PICTURES:
            return write_picture(text_table_picture(made), target, wanted)
        texts = {"tex": made.latex, "md": made.markdown}
        return write(target, texts[wanted]() if wanted in texts else table_page(made.title, made.html()))


def joined(made: Sequence[Made]) -> Joined:
    """These together. Raises `UserError` where they are not the same table of a paper, or two are on the same data."""
    first = made[0].reproduction
    if len({one.reproduction.name for one in made}) > 1:
        names = ", ".join(dict.fromkeys(one.reproduction.name for one in made))
        raise UserError(f"Only one table of a paper can be read on several data sets, got several tables: {names}.")
    if first.heatmap:
        cell = made[0].path / run_folder.CELLS
        raise UserError(f"{made[0].path} is a heat map made again, not a table. Give the run below {cell}.")
    data = [one.here.data for one in made]
    if len(set(data)) < len(data):
        raise UserError(f"The same table must be on different data sets, got {', '.join(data)}.")
    return Joined(made)


def _named(made: Made, place: Condition) -> dict[str, Any]:
    return {"dataset": made.here.data, **dict(zip(made.reproduction.columns, place, strict=True))}


def _placed(made: Made, place: Condition, keys: Sequence[str]) -> Condition:
    values = _named(made, place)
    return tuple(values[key] for key in keys)
