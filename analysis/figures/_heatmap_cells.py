"""The heat map of a grid: one coloured cell per pair of values, with its number in it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from analysis import style
from analysis.figures._heatmap_panel import Panel
from analysis.labels import number

Axis = dict[str, Any]


def cell_values(done: pd.DataFrame, xs: list[Any], ys: list[Any]) -> np.ndarray:
    """What every cell shows, `(len(ys), len(xs))`: the mean of its completed trials; nan where there is none."""
    table = done.groupby(["y", "x"])["value"].mean().unstack().reindex(index=ys, columns=xs)
    return table.to_numpy(dtype=float)


def draw_cells(figure: go.Figure, panel: Panel) -> tuple[Axis, Axis]:
    """Adds the panel's cells, their numbers and the frame of the chosen one; returns what the two axes need."""
    xs, ys = _order(panel.part["x"]), _order(panel.part["y"])
    values = cell_values(panel.done, xs, ys)
    names = [number(v) for v in xs], [number(v) for v in ys]
    figure.add_trace(
        go.Heatmap(
            z=values,
            x=names[0],
            y=names[1],
            coloraxis=panel.coloraxis,
            xgap=2,
            ygap=2,
            hovertemplate=panel.hover + "%{z:.2f}<extra></extra>",
            hoverongaps=False,
            **panel.axes,
        )
    )
    if len(xs) <= 12 and len(ys) <= 20:
        figure.add_trace(_numbers(panel, values, *names))
    best = panel.part[panel.part["best"]]
    if not best.empty:
        _frame(figure, panel, xs.index(best["x"].iloc[0]), ys.index(best["y"].iloc[0]))
    shared: Axis = {"type": "category", "showline": False, "ticks": ""}
    return shared | {"categoryarray": names[0]}, shared | {"categoryarray": names[1]}


def _numbers(panel: Panel, values: np.ndarray, xs: list[str], ys: list[str]) -> go.Scatter:
    """The cells' numbers, near-black or near-white by the cell's brightness; Plotly's own are grey on mid-tones."""
    digits = 1 if np.nanmax(np.abs(values)) >= 10 else 3
    low, high = np.nanmin(values), np.nanmax(values)
    at = [(i, j) for j in range(len(ys)) for i in range(len(xs)) if not np.isnan(values[j, i])]
    bright = [(values[j, i] - low) > 0.5 * (high - low) for i, j in at]
    return go.Scatter(
        x=[xs[i] for i, _ in at],
        y=[ys[j] for _, j in at],
        mode="text",
        text=[f"{values[j, i]:.{digits}f}" for i, j in at],
        hoverinfo="skip",
        showlegend=False,
        textfont={
            "size": 12 if len(xs) <= 8 else 10,
            "color": [style.ON_BRIGHT if b else style.ON_DARK for b in bright],
        },
        **panel.axes,
    )


def _frame(figure: go.Figure, panel: Panel, column: int, row: int) -> None:
    n = "" if panel.number == 1 else str(panel.number)
    figure.add_shape(
        type="rect",
        x0=column - 0.5,
        x1=column + 0.5,
        y0=row - 0.5,
        y1=row + 0.5,
        xref=f"x{n}",
        yref=f"y{n}",
        line={"color": style.ORANGE, "width": 3},
    )


def _order(values: pd.Series) -> list[Any]:
    """The distinct values, numbers before texts, each in rising order."""
    return sorted(values.unique().tolist(), key=lambda v: (isinstance(v, str), v))
