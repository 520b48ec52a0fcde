"""Metrics against the round: a line per method or variant, a panel per metric, data set and other condition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from analysis import style
from analysis.figure import Figure
from analysis.figures import factor
from analysis.figures._common import banded, check_measured, draw_panels, look, shared_metrics
from analysis.labels import Labels, entry, text
from analysis.runs import Run, run_names
from analysis.runs.rounds import read_rounds
from analysis.tables.cells import Cell, Cells, condition_label, under
from search_spaces.metrics import twin

COLUMNS = ["panel", "metric", "row", "round", "mean", "std", "n", "trial"]


@dataclass(frozen=True)
class Drawing:
    """What `plot` needs to know; `data` says what the columns of `table` are."""

    table: pd.DataFrame
    #: Of every panel the metric, and what else it is of, such as a data set.
    panels: Sequence[tuple[str, str]]
    rows: Sequence[str]
    note: str


def needs(runs: Sequence[Run]) -> str | None:
    empty = [
        n for n, r in zip(run_names(runs), runs, strict=True) if not any(t.state.name == "COMPLETE" for t in r.frozen)
    ]
    if empty:
        have = "has" if len(empty) == 1 else "have"
        return f"Curves over rounds need a completed trial in every run; {', '.join(empty)} {have} none."
    if not data(runs).panels:
        return "Curves over rounds need a metric that was measured in a run's chosen trial; there is none."
    return None


def data(runs: Sequence[Run], metrics: Sequence[str] = ()) -> Drawing:
    """One row per panel, line and round: panel (0, 1, …), metric, row (the line's name), round, mean, std (over seeds,
    as recorded; nan below two), n (seeds), trial (the one behind the line; None where it is not one alone).
    `metrics`: by default the accuracies on test data that all runs measured, or else those that any of them did; on
    validation data where one of the runs measured the test set only at the end.

    Raises `UserError` where one of the `metrics` was not measured in every round that was evaluated."""
    split = factor.listed(runs)
    left = any(run.kind != "run" and set(run.keys) - set(split) for run in runs)
    note = "Of a search a line is the best configuration, by what was selected on." if left else ""
    standard = shared_metrics(runs) or shared_metrics(runs, any)
    standard = [twin(m) if any(run.only_at_end(m) for run in runs) else m for m in standard]
    lines = [m for m in metrics or standard if not any(run.only_at_end(m) for run in runs)]
    found = drawing(under(runs, factor.conditions(runs), split, {}), lines, note)
    check_measured(metrics, found.panels, runs)
    return found


def drawing(found: Cells, metrics: Sequence[str], note: str = "", labels: Labels | None = None) -> Drawing:
    """The drawing of these cells; what `data` says of the table holds. `labels`: by default those of the runs."""
    labels = labels or Labels.of(found.runs)
    several = [key for i, key in enumerate(found.by) if len({condition[i] for condition in found.conditions}) > 1]
    curves = {(cell.row, cell.condition): _rounds(cell) for cell in found.cells}
    trials = {(cell.row, cell.condition): cell.trial for cell in found.cells}
    panels: list[tuple[str, str]] = []
    parts = []
    for metric in metrics:
        for condition in found.conditions:
            lines = {row: _line(curves.get((row, condition)), metric) for row in found.rows}
            measured = {row: line for row, line in lines.items() if line is not None}
            if not measured:
                continue
            parts += [
                line.assign(panel=len(panels), metric=metric, row=row, trial=trials[row, condition])
                for row, line in measured.items()
            ]
            named = zip(found.by, condition, strict=True)
            panels.append((metric, ", ".join(condition_label(labels, k, v) for k, v in named if k in several)))
    table = pd.concat(parts, ignore_index=True)[COLUMNS] if parts else pd.DataFrame(columns=COLUMNS)
    return Drawing(table, panels, found.rows, note)


def _rounds(cell: Cell) -> pd.DataFrame:
    """The rounds of what stands for the cell: a search's best trial there, all trials of a final run."""
    return read_rounds(cell.part.path, cell.part.chosen)


def _line(rounds: pd.DataFrame | None, metric: str) -> pd.DataFrame | None:
    """Mean and spread of the metric by round; None where it was not measured."""
    if rounds is None or metric not in rounds.columns or not rounds[metric].notna().any():
        return None
    groups = rounds.dropna(subset=[metric]).groupby("round")[metric]
    return groups.agg(["mean", "std", "size"]).reset_index().rename(columns={"size": "n"})


def plot(drawing: Drawing, labels: Labels) -> go.Figure:
    last = float(drawing.table["round"].max())

    def draw(part: pd.DataFrame, row: str, position: int, panel: int, scale: float) -> list[go.Scatter]:
        return _drawn(part.sort_values("round"), row, position, panel, scale, len(drawing.rows))

    def axis(part: pd.DataFrame) -> tuple[str, dict[str, Any]]:
        return "round", style.rounds_axis(last)

    found = drawing.table, "row", drawing.rows, drawing.panels
    across, panels = len({of for _, of in drawing.panels}), len(drawing.panels)
    columns = across if across in (2, 3) else panels if panels == 3 else min(2, panels)
    return draw_panels(*found, labels, draw, axis, columns=columns, height=280, note=drawing.note)


def _drawn(part: pd.DataFrame, row: str, position: int, panel: int, scale: float, lines: int) -> list[go.Scatter]:
    """One line in one panel and, where it has several seeds, the band around it."""
    spread = scale * part["std"].to_numpy(dtype=float)
    digits = ".2f" if scale == 100.0 else ".4g"
    line = go.Scatter(
        x=part["round"].tolist(),
        y=scale * part["mean"].to_numpy(),
        mode="lines" if len(part) > 1 else "lines+markers",
        name=entry(row),
        legendgroup=row,
        customdata=np.column_stack([np.nan_to_num(spread), part["n"]]),
        meta={"trial": None if pd.isna(part["trial"].iloc[0]) else int(part["trial"].iloc[0])},
        **look(position),
        hovertemplate=f"{text(row)}<br>round %{{x}}: %{{y:{digits}}} ± %{{customdata[0]:{digits}}} "
        "(%{customdata[1]} seeds)<extra></extra>",
        **style.axes(panel),
    )
    return banded(line, spread, panel, lines)


FIGURE = Figure(
    title="Curves over rounds",
    read=(
        "A line is one method or variant, the mean of its seeds; the band is one standard deviation to either side.",
        "Runs that share seeds saw the same partitions and cohorts, so their difference per seed says more than their "
        "bands: see the paired tests.",
    ),
    needs=needs,
    data=data,
    of=data,
    plot=plot,
    order=5,
    many=True,
    across=True,
)
