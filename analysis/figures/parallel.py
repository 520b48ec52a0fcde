"""Parallel coordinates: every trial a line through its parameters' values to its result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.colors import sample_colorscale

from analysis import style
from analysis.figure import Figure
from analysis.figures._common import most_important, of_several_seeds, sample
from analysis.labels import Labels, cut, number, text
from analysis.runs import Run
from search_spaces.metrics import twin

#: Lines drawn at most, and colours they are drawn in.
LIMIT, BINS = 300, 12
#: Up to so many parameters keep the order of their space.
FEW = 8


@dataclass(frozen=True)
class Drawing:
    """What `plot` needs to know; `data` says what the columns of `table` are."""

    table: pd.DataFrame
    #: The axes: what was selected on and its twin on test data, then the searched parameters.
    metrics: Sequence[str]
    keys: Sequence[str]
    note: str


#: Numbers beyond it are drawn as it.
LARGEST = 1e300
#: Letters above an axis and beside it: right of the last axis of a row there is less room than between two.
ABOVE, BESIDE = 16, 10
#: Ticks that lie closer than this part of an axis would be written over one another.
CLOSEST = 0.08


@dataclass(frozen=True)
class ParallelAxis:
    """One axis, of height 1."""

    title: str
    #: Where each trial crosses it, by row of the table.
    heights: Mapping[Any, float]
    #: Height, what is written there, and all of it.
    ticks: Sequence[tuple[float, str, str]]


def needs(runs: Sequence[Run]) -> str | None:
    run = runs[0]
    if not run.keys:
        return "Parallel coordinates need a searched parameter; this run searched none."
    done = int(((run.trials["state"] == "COMPLETE") & run.trials["value"].notna()).sum())
    return (
        None
        if done >= 2
        else f"Parallel coordinates need two completed trials, there {'is' if done == 1 else 'are'} {done}."
    )


def data(runs: Sequence[Run]) -> Drawing:
    """One row per completed trial (or configuration): number, best (whether it is the chosen one), every
    searched parameter under its key, every metric under its name. At most `LIMIT` trials, evenly spread over their
    results."""
    run = runs[0]
    done = run.trials[(run.trials["state"] == "COMPLETE") & run.trials["value"].notna()].sort_values("value")
    done = done[done["number"].isin(run.first_trials)]
    part = done.iloc[sample(list(range(len(done))), LIMIT, keep=[0, len(done) - 1])]
    last = run.levelled
    metrics = [m for m in dict.fromkeys([*run.metrics, *(twin(m) for m in run.metrics)]) if m in last.columns]
    table = part[["number", *run.keys]].copy()
    table["best"] = table["number"] == run.best
    for m in metrics:
        table[m] = table["number"].map(last[m])
    few = len(part) < len(done)
    note = f"{len(part)} of {len(done)} completed trials are drawn, evenly spread over their results." if few else ""
    keys, _ = most_important(run, len(run.keys) - 1) if len(run.keys) > FEW else (list(run.keys), "")
    keys += [key for key in run.keys if key not in keys]
    note += f" {of_several_seeds(run, 'A line')}".rstrip()
    if len(keys) > FEW:
        note += " The most important parameters come first; the figure goes on to the right, on paper below."
    return Drawing(table, metrics, keys, note.strip())


def plot(drawing: Drawing, labels: Labels) -> go.Figure:
    df = drawing.table
    axes = [_metric(df[name], name, labels) for name in drawing.metrics]
    axes += [_parameter(df[key], key, labels) for key in drawing.keys]
    figure = go.Figure()
    figure.add_traces(_others(df, axes, df[drawing.metrics[0]].to_numpy(dtype=float)))
    best = df[df["best"]]
    if not best.empty:
        figure.add_trace(_chosen(best, axes))
    # All at once: Plotly copies what it has for each one that is added alone.
    figure.update_layout(
        shapes=[_line(position) for position in range(len(axes))],
        annotations=[tick for position, axis in enumerate(axes) for tick in _ticks(position, axis)],
    )
    style.title_axes(
        figure,
        1,
        xaxis={
            "tickmode": "array",
            "tickvals": list(range(len(axes))),
            "ticktext": [axis.title for axis in axes],
            "side": "top",
            "showgrid": False,
            "range": [-0.5, len(axes) - 0.45],
            "showline": False,
            "ticks": "",
            "zeroline": False,
            "tickangle": 0,
        },
        yaxis={"visible": False, "range": [-0.06, 1.06]},
    )
    least = 120 * len(axes)
    style.panels(figure, [""], columns=1, height=360, legend=1, left=20, below=20, note=drawing.note, least=least)
    figure.layout.meta |= {"axes": len(axes)}  # on paper a page puts them into several rows
    figure.update_xaxes(showline=False, ticks="", tickfont={"color": style.INK, "size": 12})
    return figure


def _parameter(values: pd.Series, key: str, labels: Labels) -> ParallelAxis:
    title = labels.stacked(key, ABOVE)
    if not labels.numeric(key) or values.map(type).isin([str, bool]).any():
        return _of_options(title, values, labels.options(key))
    return _of_numbers(title, values, labels.log(key))


def _metric(values: pd.Series, name: str, labels: Labels) -> ParallelAxis:
    title = labels.metric(name, split=True).replace(", ", ",<br>")
    return _of_numbers(title, values * labels.scale(name), log=False)


def _of_options(title: str, values: pd.Series, declared: Sequence[str]) -> ParallelAxis:
    """Evenly spaced options, in the order of their declaration."""
    present = {number(v) for v in values}
    options = [o for o in declared if o in present] + sorted(present - set(declared))
    at = {o: (i / (len(options) - 1) if len(options) > 1 else 0.5) for i, o in enumerate(options)}
    ticks = [(height, cut(option, BESIDE), text(option)) for option, height in at.items()]
    return ParallelAxis(title, {row: at[number(v)] for row, v in values.items()}, ticks)


def _of_numbers(title: str, values: pd.Series, log: bool) -> ParallelAxis:
    """From the smallest value to the largest; ticks at the values where they are few and far enough apart to be
    read."""
    # A diverged or damaged trial may have a number so large that differences and per cent of it are infinite.
    raw = (values.astype(float).map(np.log10) if log else values.astype(float)).clip(-LARGEST, LARGEST)
    low, high = float(raw.min()), float(raw.max())
    span = (high - low) or 1.0
    distinct = np.unique(raw)
    apart = np.diff(distinct).min(initial=np.inf) >= CLOSEST * span
    stops = distinct if len(distinct) <= 8 and apart else np.linspace(low, high, 5)
    shown = [(float((s - low) / span), style.tick_text(float(f"{10**s if log else s:.3g}"))) for s in stops]
    ticks = [(height, tick, tick) for height, tick in shown]
    return ParallelAxis(title, {row: float((v - low) / span) for row, v in raw.items()}, ticks)


def _others(df: pd.DataFrame, axes: Sequence[ParallelAxis], objective: np.ndarray) -> list[go.Scatter]:
    """All trials but the chosen one, one trace per colour: a trace per trial would make the page slow."""
    span = np.ptp(objective) or 1.0
    bins = np.minimum((BINS * (objective - objective.min()) / span).astype(int), BINS - 1)
    colours = sample_colorscale(style.SEQUENTIAL, np.linspace(0, 1, BINS).tolist())
    found = []
    for b, colour in enumerate(colours):
        x: list[Any] = []
        y: list[Any] = []
        who: list[Any] = []
        for row in df.index[(bins == b) & ~df["best"].to_numpy()]:
            x += [*range(len(axes)), None]
            y += [*(axis.heights[row] for axis in axes), None]
            who += [int(df.loc[row, "number"])] * (len(axes) + 1)
        if x:
            found.append(
                go.Scatter(
                    x=x,
                    y=y,
                    mode="lines",
                    line={"color": colour, "width": 1.6},
                    opacity=0.75 if len(df) < 80 else 0.45,
                    customdata=who,
                    meta={"trial": "customdata"},
                    hovertemplate="trial %{customdata}<extra></extra>",
                    showlegend=False,
                )
            )
    return found


def _chosen(best: pd.DataFrame, axes: Sequence[ParallelAxis]) -> go.Scatter:
    return go.Scatter(
        x=list(range(len(axes))),
        y=[axis.heights[best.index[0]] for axis in axes],
        mode="lines+markers",
        line={"color": style.ORANGE, "width": 3.5},
        marker={"size": 8},
        name=f"chosen: trial {int(best['number'].iloc[0])}",
        showlegend=True,
        hoverinfo="name",
        meta={"trial": int(best["number"].iloc[0])},
    )


def _line(position: int) -> dict[str, Any]:
    line = {"color": style.MUTED, "width": 1}
    return {"type": "line", "x0": position, "x1": position, "y0": 0, "y1": 1, "line": line, "layer": "below"}


def _ticks(position: int, axis: ParallelAxis) -> list[dict[str, Any]]:
    """What is written beside an axis."""
    return [
        {
            "x": position,
            "y": height,
            "text": tick,
            "hovertext": whole if whole != tick else None,
            "showarrow": False,
            "xanchor": "left",
            "xshift": 5,
            "font": {"size": 11, "color": style.INK},
            "bgcolor": style.faded(style.PAPER, 0.7),
            "borderpad": 1,
        }
        for height, tick, whole in axis.ticks
    ]


FIGURE = Figure(
    title="Parallel coordinates",
    read=(
        "Every line is a completed trial; it crosses each axis at its value there and is coloured by what it was "
        "selected on.",
        "Where bright lines come together on an axis, good trials agree on that parameter; the orange line is the "
        "chosen trial.",
    ),
    needs=needs,
    data=data,
    plot=plot,
    order=50,
)
