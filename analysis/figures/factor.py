"""A metric against a condition of the experiment: a line per method or variant, a panel per metric and data set."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from analysis import style
from analysis.figure import Figure
from analysis.figures._common import banded, check_measured, draw_panels, look, room_of, shared_metrics
from analysis.labels import Labels, cut, entry, number, text
from analysis.runs import Run
from analysis.stats import summarise
from analysis.tables.cells import Cells, Condition, cells, condition_label, varied

#: A searched parameter is drawn as variants where the run has at most so many configurations, else the best
#: configuration of each condition is drawn.
VARIANTS = 6
#: Of a numeric axis that is drawn on a log scale, the largest value by the smallest.
WIDE = 20.0
#: Conditions that a run of its own is often made for; runs that differ in them stand in panels of their own.
OWN = ("dataset", "clients")
#: How far apart values of one category stand, as a share of a category.
APART = 0.12

COLUMNS = ["panel", "metric", "row", "x", "at", "mean", "std", "n", "trial"]


@dataclass(frozen=True)
class Drawing:
    """What `plot` needs to know; `data` says what the columns of `table` are."""

    table: pd.DataFrame
    #: The condition on the horizontal axis, and its values in order.
    key: str
    values: Sequence[Any]
    #: Whether these are numbers; else they are names side by side.
    numeric: bool
    #: Of every panel the metric, and what else it is of, such as a data set.
    panels: Sequence[tuple[str, str]]
    rows: Sequence[str]
    note: str


def needs(runs: Sequence[Run]) -> str | None:
    if not varied(runs):
        return "A metric against a condition needs trials under two conditions of the experiment (`vary` of a space)."
    done = any(trial.state.name == "COMPLETE" for run in runs for trial in run.frozen)
    return (
        None
        if done and shared_metrics(runs)
        else "A metric against a condition needs a completed trial; there is none yet."
    )


def data(runs: Sequence[Run], metrics: Sequence[str] = ()) -> Drawing:
    """One row per panel, line and value: panel (0, 1, …), metric, row (the line's name), x (the condition's value), at
    (where it stands on the axis), mean, std (over seeds, as recorded; nan below two), n (seeds), trial (the one behind
    it; None where it is not one alone). `metrics`: by default what was selected on and a local accuracy.

    Raises `UserError` where one of the `metrics` was not measured."""
    split = variants(runs)
    left = any(set(run.keys) - set(split) for run in runs)
    note = "A line is the best configuration of each condition, by what was selected on." if left else ""
    found = drawing(cells(runs, conditions(runs), split), metrics or shared_metrics(runs), note)
    check_measured(metrics, found.panels, runs)
    return found


def conditions(runs: Sequence[Run]) -> list[str]:
    """The conditions that runs vary, and those of `OWN` of which each run has a value of its own."""
    keys = varied(runs)
    own = {key: {run.value(key) for run in runs} for key in OWN if key not in keys}
    return [*keys, *(key for key, values in own.items() if None not in values and len(values) > 1)]


def variants(runs: Sequence[Run]) -> list[str]:
    """The searched parameters whose values are drawn as lines of their own: those of all runs, where these have few
    configurations."""
    keys = [key for key in runs[0].keys if all(key in run.keys for run in runs)]
    several = {tuple(trial.params.get(key) for key in keys) for run in runs for trial in run.frozen}
    return keys if len(several) <= VARIANTS else []


def listed(runs: Sequence[Run]) -> list[str]:
    """The same of runs that walk a grid. What a sampler proposed is no variant: such a run stands by its best trial, as
    in a table of runs."""
    return variants(runs) if all(run.record.sampler == "grid" for run in runs) else []


def drawing(found: Cells, metrics: Sequence[str], note: str = "", labels: Labels | None = None) -> Drawing:
    """The drawing of these cells; what `data` says of the table holds. `labels`: by default those of the runs."""
    key = _axis(found)
    place = found.by.index(key)
    values = list(dict.fromkeys(condition[place] for condition in found.conditions))
    numeric = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values)
    values = sorted(values) if numeric else values
    labels = labels or Labels.of(found.runs)
    others = list(dict.fromkeys(_rest(condition, place) for condition in found.conditions))
    panels: list[tuple[str, str]] = []
    rows = []
    for metric in metrics:
        for other in others:
            named = zip([k for k in found.by if k != key], other, strict=True)
            of = [
                (row, c, found.of(row, c)) for c in found.conditions if _rest(c, place) == other for row in found.rows
            ]
            measured = [
                (row, condition[place], summarise(list(by_seed.values())), cell.trial)
                for row, condition, cell in of
                if cell is not None and (by_seed := cell.values(metric))
            ]
            if not measured:
                continue
            rows += [
                {"panel": len(panels), "metric": metric, "row": row, "x": x, "at": _at(found, row, x, values, numeric)}
                | {"mean": s.mean, "std": s.std, "n": s.n, "trial": trial}
                for row, x, s, trial in measured
            ]
            panels.append((metric, ", ".join(condition_label(labels, k, v) for k, v in named)))
    return Drawing(pd.DataFrame(rows, columns=COLUMNS), key, values, numeric, panels, found.rows, note)


def plot(drawing: Drawing, labels: Labels) -> go.Figure:
    def draw(part: pd.DataFrame, row: str, position: int, panel: int, scale: float) -> list[go.Scatter]:
        scaled = part.assign(mean=part["mean"] * scale, std=part["std"] * scale)
        return _line(scaled.sort_values("at"), row, position, panel, drawing, labels)

    def axis(part: pd.DataFrame) -> tuple[str, dict[str, Any]]:
        return labels.heading(drawing.key), _horizontal(drawing)

    found = drawing.table, "row", drawing.rows, drawing.panels
    return draw_panels(*found, labels, draw, axis, note=drawing.note)


def _line(
    part: pd.DataFrame, row: str, position: int, panel: int, drawing: Drawing, labels: Labels
) -> list[go.Scatter]:
    """One line with the band of its seeds; of names side by side, points with bars."""
    spread = part["std"].to_numpy()
    name = f"{labels.symbol(drawing.key)} = "
    drawn = go.Scatter(
        x=part["at"].tolist(),
        y=part["mean"].to_numpy(),
        mode="lines+markers" if drawing.numeric else "markers",
        name=entry(row),
        legendgroup=row,
        customdata=[
            [None if pd.isna(trial) else int(trial), std, n]
            for trial, std, n in zip(part["trial"], np.nan_to_num(spread).tolist(), part["n"].tolist(), strict=True)
        ],
        meta={"trial": "customdata"},
        text=[text(number(value)) for value in part["x"]],
        **look(position),
        error_y=None if drawing.numeric else {"array": np.nan_to_num(spread), "thickness": 1.5, "width": 4},
        hovertemplate=f"{text(row)}<br>{name}%{{text}}: %{{y:.2f}} ± %{{customdata[1]:.2f}} "
        "(%{customdata[2]} seeds)<extra></extra>",
        **style.axes(panel),
    )
    return banded(drawn, spread, panel, len(drawing.rows)) if drawing.numeric else [drawn]


def _horizontal(drawing: Drawing) -> dict[str, Any]:
    """The axis of the condition, labelled at its values and nowhere else."""
    labels = [cut(number(value), room_of(len(drawing.values))) for value in drawing.values]
    if not drawing.numeric:
        last = len(labels) - 1
        return {
            "tickvals": list(range(len(labels))),
            "ticktext": labels,
            "range": [-0.5, last + 0.5],
            "showgrid": False,
        }
    axis: dict[str, Any] = {"tickvals": list(drawing.values), "ticktext": labels, "showgrid": False}
    if _logarithmic(drawing.values):
        low, high = (math.log10(float(end)) for end in (drawing.values[0], drawing.values[-1]))
        return axis | {"type": "log", "range": [low - 0.06 * (high - low), high + 0.06 * (high - low)]}
    return axis


def _logarithmic(values: Sequence[Any]) -> bool:
    return bool(values) and float(values[0]) > 0 and float(values[-1]) / float(values[0]) >= WIDE


def _axis(found: Cells) -> str:
    """The condition on the horizontal axis: the first one that is a number and has several values, else the first one
    with several; a data set only where there is no other."""
    values = {key: {condition[i] for condition in found.conditions} for i, key in enumerate(found.by)}
    several = [key for key in found.by if len(values[key]) > 1] or list(found.by)
    numbers = [key for key in several if all(isinstance(v, (int, float)) for v in values[key])]
    return (numbers or [key for key in several if key != "dataset"] or several)[0]


def _rest(condition: Condition, place: int) -> Condition:
    return condition[:place] + condition[place + 1 :]


def _at(found: Cells, row: str, x: Any, values: Sequence[Any], numeric: bool) -> float:
    """Where a value stands on the axis. Names stand side by side, each line's a little apart from the others'."""
    if numeric:
        return float(x)
    rows = found.rows
    return values.index(x) + APART * (rows.index(row) - (len(rows) - 1) / 2)


FIGURE = Figure(
    title="Against the conditions",
    read=(
        "A line is one method or variant under the conditions along the axis, the mean of its seeds in the last round; "
        "the band, or the bar, is one standard deviation to either side.",
        "Compare lines at one condition: how far a line falls from one condition to the next says how hard the data "
        "are as well.",
    ),
    needs=needs,
    data=data,
    of=data,
    plot=plot,
    order=4,
    across=True,
)
