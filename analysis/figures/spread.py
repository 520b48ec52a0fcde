"""Box plots of one or several runs: a box per method or variant, a panel per metric and condition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from analysis import style
from analysis.figure import Figure
from analysis.figures import factor
from analysis.figures._common import box, check_measured, draw_panels, shared_metrics
from analysis.labels import Labels, text
from analysis.runs import Run
from analysis.tables.cells import Cells, condition_label, under

COLUMNS = ["panel", "metric", "row", "number", "seed", "y"]


@dataclass(frozen=True)
class Drawing:
    """What `plot` needs to know; `data` says what the columns of `table` are."""

    table: pd.DataFrame
    #: Of every panel the metric, and the condition in words.
    panels: Sequence[tuple[str, str]]
    rows: Sequence[str]


def needs(runs: Sequence[Run]) -> str | None:
    if not any(trial.state.name == "COMPLETE" for run in runs for trial in run.frozen):
        return "Boxes of methods and variants need a completed trial; there is none yet."
    if not data(runs).panels:
        return "Boxes of methods and variants need a metric that all runs measured; there is none."
    return None


def data(runs: Sequence[Run], metrics: Sequence[str] = ()) -> Drawing:
    """One row per dot: panel (0, 1, …), metric, row (the box's name), number (trial), seed, y (the metric in the last
    round, as recorded). `metrics`: by default what was selected on and accuracies, on test data.

    Raises `UserError` where one of the `metrics` was not measured."""
    found = drawing(under(runs, factor.conditions(runs), factor.listed(runs), {}), metrics or shared_metrics(runs))
    check_measured(metrics, found.panels, runs)
    return found


def drawing(found: Cells, metrics: Sequence[str]) -> Drawing:
    """The drawing of these cells: of each all completed trials, each seed a dot."""
    labels = Labels.of(found.runs)
    panels: list[tuple[str, str]] = []
    dots: list[dict[str, object]] = []
    for metric in metrics:
        for condition in found.conditions:
            here = [
                {"panel": len(panels), "metric": metric, "row": row, "number": trial.number, "seed": seed, "y": value}
                for row in found.rows
                if (cell := found.of(row, condition)) is not None
                for trial in cell.part.frozen
                for seed, value in cell.part.last(trial.number, metric).items()
            ]
            if not here:
                continue
            dots += here
            named = zip(found.by, condition, strict=True)
            panels.append((metric, ", ".join(condition_label(labels, key, value) for key, value in named)))
    return Drawing(pd.DataFrame(dots, columns=COLUMNS), panels, found.rows)


def plot(drawing: Drawing, labels: Labels) -> go.Figure:
    def axis(part: pd.DataFrame) -> tuple[str, dict[str, Any]]:
        return "", {"showgrid": False, "showticklabels": False, "ticks": ""}

    found = drawing.table, "row", drawing.rows, drawing.panels
    legend = 2 * len(drawing.rows)
    return draw_panels(*found, labels, _box, axis, height=260, legend=legend, left=48, gap=64, below=24)


def _box(dots: pd.DataFrame, row: str, position: int, panel: int, scale: float) -> list[go.Box]:
    dots = dots.assign(y=dots["y"] * scale)
    texts = [f"{text(row)}<br>trial {n}, seed {s}" for n, s in zip(dots["number"], dots["seed"], strict=True)]
    drawn = box(dots, position, text(row), style.CYCLE[position % len(style.CYCLE)], panel, texts)
    return [drawn.update(legendgroup=row, marker_symbol=style.SYMBOLS[position % len(style.SYMBOLS)])]


FIGURE = Figure(
    title="Spread",
    read=(
        "A dot is a completed trial with one seed, in its last round; a box spans the middle half of its dots, its "
        "line is the median.",
        "Of a search a box holds every configuration that ran to its end there, so a long box is a method that its "
        "parameters matter to; of a final run it holds the seeds.",
    ),
    needs=needs,
    data=data,
    of=data,
    plot=plot,
    order=66,
    many=True,
    across=True,
)
