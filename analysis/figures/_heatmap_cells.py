"""The heat map of a grid: one coloured cell per pair of values, with its number in it.

Cells that cannot be told from the chosen one are hatched; cells without a value say why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from analysis import style
from analysis.figures._heatmap_panel import Panel
from analysis.labels import shown
from search_spaces.parameter import Value

Axis = dict[str, Any]

#: What stands in a cell without a value, by Optuna's state of its trial: a mark, and words for it.
MARKS = {
    "PRUNED": ("×", "stopped early"),
    "FAIL": ("!", "failed"),
    "RUNNING": ("…", "running or to be resumed"),
    "WAITING": ("…", "waiting"),
}
#: The same where there is no trial yet.
PLANNED = "○"
#: Lines of a hatch, from one edge of a cell of side 1 around (0, 0) to another.
HATCH = tuple(
    ((max(-0.48, c - 0.48), max(-0.48, -c - 0.48)), (min(0.48, c + 0.48), min(0.48, 0.48 - c)))
    for c in (-0.64, -0.32, 0.0, 0.32, 0.64)
)


def cell_values(done: pd.DataFrame, xs: list[Any], ys: list[Any]) -> np.ndarray:
    """What every cell shows, `(len(ys), len(xs))`: the mean of its completed trials; nan where there is none."""
    table = done.groupby(["y", "x"])["value"].mean().unstack().reindex(index=ys, columns=xs)
    return table.to_numpy(dtype=float)


def draw_cells(figure: go.Figure, panel: Panel) -> tuple[Axis, Axis]:
    """Adds the panel's cells, their numbers, hatches and marks, and the frame of the chosen one; returns what the two
    axes need. Cells stand at 0, 1, 2 …, so that lines can be drawn inside of them."""
    xs, ys = _order(panel.part["x"], panel.planned[0]), _order(panel.part["y"], panel.planned[1])
    values = cell_values(panel.done, xs, ys)
    names = [shown(v) for v in xs], [shown(v) for v in ys]
    figure.add_trace(
        go.Heatmap(
            z=values,
            x=list(range(len(xs))),
            y=list(range(len(ys))),
            coloraxis=panel.coloraxis,
            xgap=2,
            ygap=2,
            text=[
                [f"{panel.where(x, y)}<br>{values[j, i]:.2f}" for i, x in enumerate(names[0])]
                for j, y in enumerate(names[1])
            ],
            hovertemplate="%{text}<extra></extra>",
            hoverongaps=False,
            customdata=_trials(panel, xs, ys),
            meta={"trial": "customdata"},
            **panel.axes,
        )
    )
    _hatch(figure, panel, values, xs, ys)
    if len(xs) <= 12 and len(ys) <= 20:
        figure.add_trace(_numbers(panel, values))
    _marks(figure, panel, values, xs, ys)
    best = panel.part[panel.part["best"]]
    if not best.empty:
        _frame(figure, panel, xs.index(best["x"].iloc[0]), ys.index(best["y"].iloc[0]))
    return _axis(names[0]), _axis(names[1])


def _trials(panel: Panel, xs: list[Any], ys: list[Any]) -> list[list[int | None]]:
    """The first completed trial of every cell."""
    first = panel.done.groupby(["y", "x"])["trial"].min().to_dict()
    return [[int(first[y, x]) if (y, x) in first else None for x in xs] for y in ys]


def _axis(names: list[str]) -> Axis:
    return {
        "tickmode": "array",
        "tickvals": list(range(len(names))),
        "ticktext": names,
        "range": [-0.5, len(names) - 0.5],
        "showline": False,
        "ticks": "",
        "zeroline": False,
    }


def _bright(values: np.ndarray) -> np.ndarray:
    """Which cells are in the bright half of the colours: what is drawn on them is near-black, else near-white."""
    low, high = np.nanmin(values), np.nanmax(values)
    found: np.ndarray = (values - low) > 0.5 * (high - low)
    return found


def _numbers(panel: Panel, values: np.ndarray) -> go.Scatter:
    """The cells' numbers; Plotly's own are grey on mid-tones."""
    digits = 1 if np.nanmax(np.abs(values)) >= 10 else 3
    rows, columns = np.nonzero(~np.isnan(values))
    bright = _bright(values)[rows, columns]
    return go.Scatter(
        x=columns.tolist(),
        y=rows.tolist(),
        mode="text",
        text=[f"{value:.{digits}f}" for value in values[rows, columns]],
        hoverinfo="skip",
        showlegend=False,
        textfont={
            "size": 12 if values.shape[1] <= 8 else 10,
            "color": [style.ON_BRIGHT if b else style.ON_DARK for b in bright],
        },
        **panel.axes,
    )


def _hatch(figure: go.Figure, panel: Panel, values: np.ndarray, xs: list[Any], ys: list[Any]) -> None:
    """Diagonal lines over the cells that hold a configuration which cannot be told from the chosen one: one trace for
    bright cells and one for dark ones."""
    tied = panel.done[panel.done["tied"]]
    cells = {(xs.index(x), ys.index(y)) for x, y in zip(tied["x"], tied["y"], strict=True)}
    bright = _bright(values)
    for on_bright, colour in ((True, style.ON_BRIGHT), (False, style.ON_DARK)):
        across: list[float | None] = []
        up: list[float | None] = []
        for i, j in sorted(cells):
            if bool(bright[j, i]) == on_bright:
                for (x0, y0), (x1, y1) in HATCH:
                    across += [i + x0, i + x1, None]
                    up += [j + y0, j + y1, None]
        if across:
            figure.add_trace(
                go.Scatter(
                    x=across,
                    y=up,
                    mode="lines",
                    line={"color": style.faded(colour, 0.5), "width": 1},
                    hoverinfo="skip",
                    showlegend=False,
                    **panel.axes,
                )
            )


def _marks(figure: go.Figure, panel: Panel, values: np.ndarray, xs: list[Any], ys: list[Any]) -> None:
    """What became of the cells without a value: a mark in each."""
    states = {
        (xs.index(x), ys.index(y)): state
        for x, y, state in zip(panel.part["x"], panel.part["y"], panel.part["state"], strict=True)
    }
    planned = {(i, j) for i in range(len(xs)) for j in range(len(ys))} if panel.planned[0] else set()
    empty = sorted((i, j) for i, j in planned | set(states) if np.isnan(values[j, i]))
    empty = [cell for cell in empty if cell not in states or states[cell] in MARKS]
    if empty:
        told = [MARKS[states[cell]] if cell in states else (PLANNED, "planned, not run yet") for cell in empty]
        figure.add_trace(
            go.Scatter(
                x=[i for i, _ in empty],
                y=[j for _, j in empty],
                mode="text",
                text=[mark for mark, _ in told],
                customdata=[words for _, words in told],
                hovertext=[panel.where(shown(xs[i]), shown(ys[j])) for i, j in empty],
                hovertemplate="%{hovertext}<br>%{customdata}<extra></extra>",
                showlegend=False,
                textfont={"size": 13, "color": style.MUTED},
                **panel.axes,
            )
        )


def _frame(figure: go.Figure, panel: Panel, column: int, row: int) -> None:
    figure.add_shape(
        type="rect",
        x0=column - 0.5,
        x1=column + 0.5,
        y0=row - 0.5,
        y1=row + 0.5,
        xref=f"x{panel.at}",
        yref=f"y{panel.at}",
        line={"color": style.ORANGE, "width": 3},
    )


def _order(values: pd.Series, planned: Sequence[Value]) -> list[Any]:
    """The distinct values and those that are planned, numbers before texts, each in rising order."""
    return sorted({*values.unique().tolist(), *planned}, key=lambda v: (isinstance(v, str), v))
