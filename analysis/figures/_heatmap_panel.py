"""One panel of the heat map, drawn in one of two ways.

A grid is drawn as cells: one coloured cell per pair of values, with its number in it. Cells that cannot be told from
the chosen one are hatched; cells without a value say why. Trials that were sampled freely are drawn as dots, one per
trial: what the search believes between them, `analysis.figures.surface` shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from analysis import style
from analysis.figures._common import plain, searched_axis
from analysis.labels import SHORTEST, Labels, cut, number, shown
from search_spaces.parameter import Value

AxisLayout = dict[str, Any]

#: What stands in a cell without a value, by Optuna's state of its trial: a mark, and words for it.
MARKS = {
    "PRUNED": ("×", "stopped early"),
    "FAIL": ("!", "failed"),
    "RUNNING": ("…", "running or to be resumed"),
    "WAITING": ("…", "waiting"),
}
#: The same where there is no trial yet.
PLANNED = "○"
#: A hatch is lines y = x - c across a cell of side 1 around (0, 0), from edge to edge, for these c.
HATCH, EDGE = (-0.64, -0.32, 0.0, 0.32, 0.64), 0.48
#: Half of the room, across and up, that is left free for a number.
FREE = (0.36, 0.2)
#: Numbers are drawn where there are so many columns and rows at most.
NUMBERED = (12, 20)


@dataclass(frozen=True)
class HeatmapPanel:
    """`part` holds the rows of one metric, with the columns that `heatmap.data` describes and values as displayed."""

    #: 1, 2, … in the order in which panels stand in the figure.
    number: int
    part: pd.DataFrame
    labels: Labels
    #: Keys of the parameters on the axes.
    x: str
    y: str
    #: All values of the two that were asked for, run or not.
    planned: tuple[Sequence[Value], Sequence[Value]] = ((), ())
    #: Where the panel's colours begin and end: the same for a metric on validation and on test data.
    ends: tuple[float, float] = (0.0, 1.0)

    @property
    def done(self) -> pd.DataFrame:
        """The rows of completed trials that measured the metric."""
        return self.part[(self.part["state"] == "COMPLETE") & self.part["value"].notna()]

    @property
    def axes(self) -> dict[str, str]:
        return style.axes(self.number)

    @property
    def coloraxis(self) -> str:
        return f"coloraxis{'' if self.number == 1 else self.number}"

    @property
    def at(self) -> str:
        """The number that the panel's axes carry in their names: none for the first."""
        return "" if self.number == 1 else str(self.number)

    @property
    def hover(self) -> str:
        """The two lines of a hover text that say where the pointer is."""
        return f"{self.labels.symbol(self.x)} = %{{x}}<br>{self.labels.symbol(self.y)} = %{{y}}<br>"

    def where(self, x: str, y: str) -> str:
        """The same two lines for given values."""
        return f"{self.labels.symbol(self.x)} = {x}<br>{self.labels.symbol(self.y)} = {y}"


def cell_values(done: pd.DataFrame, xs: list[Any], ys: list[Any]) -> np.ndarray:
    """What every cell shows, `(len(ys), len(xs))`: the mean of its completed trials; nan where there is none."""
    table = done.groupby(["y", "x"])["value"].mean().unstack().reindex(index=ys, columns=xs)
    return table.to_numpy(dtype=float)


def draw_cells(figure: go.Figure, panel: HeatmapPanel) -> tuple[AxisLayout, AxisLayout]:
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
    if _numbered(values):
        figure.add_trace(_numbers(panel, values))
    _marks(figure, panel, values, xs, ys)
    best = panel.part[panel.part["best"]]
    if not best.empty:
        _frame(figure, panel, xs.index(best["x"].iloc[0]), ys.index(best["y"].iloc[0]))
    return _cells_axis(xs), _cells_axis(ys)


def _trials(panel: HeatmapPanel, xs: list[Any], ys: list[Any]) -> list[list[int | None]]:
    """The first completed trial of every cell."""
    first = panel.done.groupby(["y", "x"])["trial"].min().to_dict()
    return [[int(first[y, x]) if (y, x) in first else None for x in xs] for y in ys]


def _cells_axis(values: Sequence[Any]) -> AxisLayout:
    return {
        "tickmode": "array",
        "tickvals": list(range(len(values))),
        "ticktext": [cut(number(value), SHORTEST) for value in values],
        "range": [-0.5, len(values) - 0.5],
        "showline": False,
        "ticks": "",
        "zeroline": False,
    }


def _numbers(panel: HeatmapPanel, values: np.ndarray) -> go.Scatter:
    """The cells' numbers; Plotly's own are grey on mid-tones."""
    digits = 1 if np.nanmax(np.abs(values)) >= 10 else 3
    rows, columns = np.nonzero(~np.isnan(values))
    return go.Scatter(
        x=columns.tolist(),
        y=rows.tolist(),
        mode="text",
        text=[f"{value:.{digits}f}" for value in values[rows, columns]],
        hoverinfo="skip",
        showlegend=False,
        textfont={
            "size": 12 if values.shape[1] <= 8 else 11,
            "color": style.readable(values[rows, columns], *panel.ends),
        },
        **panel.axes,
    )


def _numbered(values: np.ndarray) -> bool:
    return bool(values.shape[1] <= NUMBERED[0] and values.shape[0] <= NUMBERED[1])


def _hatch_lines(numbered: bool) -> list[tuple[float, float, float]]:
    """The lines of a hatch, each as c and where it begins and ends across; with a number, none runs through it."""
    found = []
    for c in HATCH:
        low, high = max(-EDGE, c - EDGE), min(EDGE, c + EDGE)
        first, last = (max(-FREE[0], c - FREE[1]), min(FREE[0], c + FREE[1])) if numbered else (0.0, 0.0)
        found += [(c, low, first), (c, last, high)] if first < last else [(c, low, high)]
    return found


def _hatch(figure: go.Figure, panel: HeatmapPanel, values: np.ndarray, xs: list[Any], ys: list[Any]) -> None:
    """Diagonal lines over the cells that hold a configuration which cannot be told from the chosen one: one trace for
    bright cells and one for dark ones."""
    tied = panel.done[panel.done["tied"]]
    cells = sorted({(xs.index(x), ys.index(y)) for x, y in zip(tied["x"], tied["y"], strict=True)})
    lines = _hatch_lines(_numbered(values))
    colours = style.readable(np.array([values[j, i] for i, j in cells]), *panel.ends)
    for colour in dict.fromkeys(colours):
        across: list[float | None] = []
        up: list[float | None] = []
        for (i, j), own in zip(cells, colours, strict=True):
            if own == colour:
                for c, first, last in lines:
                    across += [i + first, i + last, None]
                    up += [j + first - c, j + last - c, None]
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


def _marks(figure: go.Figure, panel: HeatmapPanel, values: np.ndarray, xs: list[Any], ys: list[Any]) -> None:
    """What became of the cells without a value: a mark in each."""
    states: dict[tuple[int, int], str] = {}
    trials: dict[tuple[int, int], int] = {}
    for x, y, state, trial in zip(*(panel.part[name] for name in ("x", "y", "state", "trial")), strict=True):
        cell = (xs.index(x), ys.index(y))
        states[cell], trials[cell] = state, int(trial)
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
                customdata=[trials.get(cell) for cell in empty],
                meta={"trial": "customdata"},
                hovertext=[
                    f"{panel.where(shown(xs[i]), shown(ys[j]))}<br>{words}"
                    for (i, j), (_, words) in zip(empty, told, strict=True)
                ],
                hovertemplate="%{hovertext}<extra></extra>",
                showlegend=False,
                textfont={"size": 13, "color": style.MUTED},
                **panel.axes,
            )
        )


def _frame(figure: go.Figure, panel: HeatmapPanel, column: int, row: int) -> None:
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


def draw_dots(figure: go.Figure, panel: HeatmapPanel) -> tuple[AxisLayout, AxisLayout]:
    """Adds the panel's dots; returns what the two axes need."""
    labels, done = panel.labels, panel.done
    figure.add_trace(_stopped(panel))
    figure.add_trace(_completed(panel, done))
    if done["tied"].any():
        figure.add_traces(_tied(panel, done[done["tied"]]))
    best = done[done["best"]]
    figure.add_trace(style.star(plain(best["x"]), plain(best["y"]), panel.number))
    return searched_axis(labels, panel.x, panel.part["x"]), searched_axis(labels, panel.y, panel.part["y"])


def _stopped(panel: HeatmapPanel) -> go.Scatter:
    """A × per trial that was stopped early."""
    stopped = panel.part[panel.part["state"] == "PRUNED"]
    return go.Scatter(
        x=plain(stopped["x"]),
        y=plain(stopped["y"]),
        marker={"symbol": "x-thin", "size": 7, "line": {"width": 1.5, "color": style.MUTED}},
        customdata=stopped["trial"],
        meta={"trial": "customdata"},
        hovertemplate=f"trial %{{customdata}}, stopped early<br>{panel.hover}<extra></extra>",
        mode="markers",
        showlegend=False,
        **panel.axes,
    )


def _completed(panel: HeatmapPanel, done: pd.DataFrame) -> go.Scatter:
    """A dot per completed trial, in the colour of its value."""
    return go.Scatter(
        x=plain(done["x"]),
        y=plain(done["y"]),
        marker={
            "size": 9 if len(done) <= 150 else 5,
            "color": done["value"],
            "coloraxis": panel.coloraxis,
            "line": {"width": 1.2, "color": style.ON_DARK},
        },
        customdata=np.stack([done["trial"], done["value"]], axis=-1) if len(done) else None,
        meta={"trial": "customdata"},
        hovertemplate=f"trial %{{customdata[0]}}<br>{panel.hover}%{{customdata[1]:.2f}}<extra></extra>",
        mode="markers",
        showlegend=False,
        **panel.axes,
    )


def _tied(panel: HeatmapPanel, tied: pd.DataFrame) -> list[go.Scatter]:
    """A square around every trial that cannot be told from the chosen one, with a bright rim, which stands
    out on a dark page."""
    return [
        go.Scatter(
            x=plain(tied["x"]),
            y=plain(tied["y"]),
            marker={"symbol": "square-open", "size": 16, "color": colour, "line": {"width": width}},
            hoverinfo="skip",
            mode="markers",
            showlegend=False,
            **panel.axes,
        )
        for colour, width in ((style.ON_DARK, 5), (style.ON_BRIGHT, 2))
    ]
