"""Parallel coordinates: every trial a line through its parameters' values to its result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.colors import sample_colorscale

from analysis import style
from analysis.figure import Figure
from analysis.figures._common import finals, sample
from analysis.labels import Labels, number
from analysis.runs import Run
from search_spaces.metrics import twin

#: Lines drawn at most, and colours they are drawn in.
LIMIT, BINS = 300, 12

FIGURE = Figure(
    "Parallel coordinates",
    (
        "Every line is a completed trial; it crosses each axis at its value there and is coloured by what it was selected on.",
        "Where bright lines bundle on an axis, good trials agree on that parameter; the orange line is the chosen trial.",
    ),
    order=50,
)


def needs(runs: Sequence[Run]) -> str | None:
    run = runs[0]
    if not run.keys:
        return "Parallel coordinates need a searched parameter; this run searched none."
    done = int(((run.trials["state"] == "COMPLETE") & run.trials["value"].notna()).sum())
    return None if done >= 2 else f"Parallel coordinates need two completed trials, there {'is' if done == 1 else 'are'} {done}."


def data(runs: Sequence[Run]) -> pd.DataFrame:
    """One row per completed trial: number, best, every searched parameter under its key, and the selected metric and its
    test twin under their names. At most `LIMIT` trials, evenly spread over their results. attrs: keys, metrics, note."""
    run = runs[0]
    done = run.trials[(run.trials["state"] == "COMPLETE") & run.trials["value"].notna()].sort_values("value")
    kept = sample(list(range(len(done))), LIMIT, keep=[0, len(done) - 1])
    part = done.iloc[kept]
    last = finals(run)
    metrics = [m for m in dict.fromkeys([*run.metrics, *(twin(m) for m in run.metrics)]) if m in last.columns]
    frame = part[["number", *run.keys]].copy()
    frame["best"] = frame["number"] == run.best
    for m in metrics:
        frame[m] = frame["number"].map(last[m])
    note = f"{len(part)} of {len(done)} completed trials are drawn, evenly spread over their results." if len(part) < len(done) else ""
    frame.attrs = {"keys": run.keys, "metrics": metrics, "note": note, "kinds": {k: _kind(run, k) for k in run.keys}}
    return frame


def _kind(run: Run, key: str) -> str:
    return str(next((i.get("kind") for i in run.searched if i["key"] == key), "real") or "real")


def plot(df: pd.DataFrame, labels: Labels) -> go.Figure:
    keys, metrics = df.attrs["keys"], df.attrs["metrics"]
    columns = [*keys, *metrics]
    scaled, ticks = {}, {}
    for c in columns:
        values = df[c] * labels.scale(c) if c in metrics else df[c]
        scaled[c], ticks[c] = _scale(values, c in keys and labels.log(c), c in metrics or labels.numeric(c), labels.options(c))
    figure = go.Figure()
    objective = df[metrics[0]].to_numpy(dtype=float)
    span = np.ptp(objective) or 1.0
    bins = np.minimum((BINS * (objective - objective.min()) / span).astype(int), BINS - 1)
    colours = sample_colorscale(style.SEQUENTIAL, np.linspace(0, 1, BINS).tolist())
    positions = list(range(len(columns)))
    for b in range(BINS):
        rows = df.index[(bins == b) & ~df["best"].to_numpy()]
        x: list[Any] = []
        y: list[Any] = []
        who: list[Any] = []
        for row in rows:
            x += [*positions, None]
            y += [*(scaled[c][row] for c in columns), None]
            who += [int(df.loc[row, "number"])] * (len(columns) + 1)
        if x:
            figure.add_trace(
                go.Scatter(
                    x=x,
                    y=y,
                    mode="lines",
                    line={"color": colours[b], "width": 1.6},
                    opacity=0.75 if len(df) < 80 else 0.45,
                    customdata=who,
                    hovertemplate="trial %{customdata}<extra></extra>",
                    showlegend=False,
                )
            )
    best = df[df["best"]]
    if not best.empty:
        row = best.index[0]
        figure.add_trace(
            go.Scatter(
                x=positions,
                y=[scaled[c][row] for c in columns],
                mode="lines+markers",
                line={"color": style.ORANGE, "width": 3.5},
                marker={"size": 8},
                name=f"chosen: trial {int(best['number'].iloc[0])}",
                showlegend=True,
                hoverinfo="name",
            )
        )
    for i, c in enumerate(columns):
        figure.add_shape(type="line", x0=i, x1=i, y0=0, y1=1, line={"color": style.MUTED, "width": 1}, layer="below")
        for at, text in ticks[c]:
            figure.add_annotation(
                x=i,
                y=at,
                text=text,
                showarrow=False,
                xanchor="left",
                xshift=5,
                font={"size": 11, "color": style.INK},
                bgcolor=style.faded(style.PAPER, 0.7),
                borderpad=1,
            )
    titles = [labels.parameter(k) for k in keys] + [labels.metric(m, split=True).replace(", ", ",<br>") for m in metrics]
    style.title_axes(
        figure,
        1,
        "",
        "",
        xaxis={
            "tickmode": "array",
            "tickvals": positions,
            "ticktext": titles,
            "side": "top",
            "showgrid": False,
            "range": [-0.15, len(columns) - 0.55],
            "showline": False,
            "ticks": "",
            "zeroline": False,
            "tickangle": 0,
        },
        yaxis={"visible": False, "range": [-0.06, 1.06]},
    )
    style.panels(figure, [""], columns=1, height=360, legend=1, left=20, below=20, note=df.attrs["note"], least=105 * len(columns))
    figure.update_xaxes(showline=False, ticks="", tickfont={"color": style.INK, "size": 12})
    return figure


def _scale(values: pd.Series, log: bool, numeric: bool, declared: list[str]) -> tuple[dict[Any, float], list[tuple[float, str]]]:
    """Each row's height on the axis from 0 to 1, and the axis's ticks as (height, text)."""
    if not numeric or values.map(type).isin([str, bool]).any():
        present = {number(v) for v in values}
        options = [o for o in declared if o in present] + sorted(present - set(declared))
        at = {o: (i / (len(options) - 1) if len(options) > 1 else 0.5) for i, o in enumerate(options)}
        return {row: at[number(v)] for row, v in values.items()}, [(a, o) for o, a in at.items()]
    raw = values.astype(float)
    if log:
        raw = raw.map(np.log10)
    low, high = float(raw.min()), float(raw.max())
    span = (high - low) or 1.0
    distinct = np.unique(raw)
    stops = distinct if len(distinct) <= 8 else np.linspace(low, high, 5)
    shown = [(float((s - low) / span), number(10**s if log else float(s), 3)) for s in stops]
    return {row: float((v - low) / span) for row, v in raw.items()}, shown
