"""Two searched parameters against accuracy, global and local side by side (for DFRD: α × λ, the paper's Fig. 5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from analysis import style
from analysis.figure import Figure
from analysis.figures._common import finals, metric_rows, two_keys
from analysis.labels import Labels, number
from analysis.runs import Run

FIGURE = Figure(
    "Two parameters against accuracy",
    ("Brighter is better within a panel; each panel has its own scale.", "The configuration that was chosen carries the orange frame or star, in every panel."),
    order=10,
)


def needs(runs: Sequence[Run]) -> str | None:
    run = runs[0]
    if len(run.keys) < 2:
        return "The heat map needs two searched parameters; this run searched " + (f"only {run.keys[0]}." if run.keys else "none.")
    if not (run.trials["state"] == "COMPLETE").any():
        return "The heat map needs a completed trial; there is none yet."
    return None


def data(runs: Sequence[Run]) -> pd.DataFrame:
    """One row per trial and metric: trial, x, y (parameter values), metric, value (last round, mean over seeds), state, best.

    attrs: x, y (keys), mode (`grid` where trials lie on a lattice, `surface` where numbers were sampled freely, `points`
    where that cannot be interpolated), note."""
    run = runs[0]
    x, y, note = two_keys(run)
    last = finals(run)
    rows = metric_rows(runs, lambda m: m in last.columns and bool(last[m].notna().any()))
    names = [m for row in rows for m in row]
    trials = run.trials[run.trials[x].notna() & run.trials[y].notna()]
    best = run.best
    found = [
        {"trial": t["number"], "x": t[x], "y": t[y], "metric": m, "value": last[m].get(t["number"], np.nan), "state": t["state"], "best": t["number"] == best}
        for t in trials[["number", x, y, "state"]].to_dict("records")
        for m in names
    ]
    frame = pd.DataFrame(found, columns=["trial", "x", "y", "metric", "value", "state", "best"])
    done = frame[(frame["state"] == "COMPLETE") & frame["value"].notna()]
    numeric = {k: i.get("kind", "real") in ("real", "integer") for i in run.searched for k in [i["key"]]}
    mode = _mode(done, run, numeric.get(x, True) and numeric.get(y, True))
    if mode == "grid" and done.groupby(["x", "y", "metric"]).size().max() > 1:
        note += " A cell holds the mean of its trials."
    if mode == "surface":
        note += " The surface is interpolated linearly between completed trials (dots): between dots nothing was measured."
    if (frame["state"] == "PRUNED").any():
        note += (
            " Trials stopped early are marked × and take no part in it: their last value is from an earlier round."
            if mode != "grid"
            else (" Cells of trials stopped early stay empty: their last value is from an earlier round.")
        )
    frame.attrs = {"x": x, "y": y, "mode": mode, "note": note.strip(), "columns": max((len(r) for r in rows), default=1)}
    return frame


def _mode(done: pd.DataFrame, run: Run, numeric: bool) -> str:
    points = done.drop_duplicates(["x", "y"])
    cells = points["x"].nunique() * points["y"].nunique()
    if run.sampler == "grid" or (cells and cells <= 1.3 * len(points) and cells <= 900) or (not numeric and cells <= 400 and len(points) >= cells / 2):
        return "grid"
    if not numeric or len(points) < 4 or points["x"].nunique() < 2 or points["y"].nunique() < 2:
        return "points"
    return "surface"


def plot(df: pd.DataFrame, labels: Labels) -> go.Figure:
    x, y, mode = df.attrs["x"], df.attrs["y"], df.attrs["mode"]
    figure = go.Figure()
    titles = []
    columns = df.attrs["columns"]
    for panel, (metric, part) in enumerate(df.groupby("metric", sort=False), start=1):
        part = part.assign(value=part["value"] * labels.scale(str(metric)))
        done = part[(part["state"] == "COMPLETE") & part["value"].notna()]
        chosen = " · selected on" if metric in labels.selected else ""
        titles.append(labels.metric(str(metric), split=True) + chosen)
        style.colour_axis(figure, panel, float(done["value"].min()), float(done["value"].max()))
        draw = _cells if mode == "grid" else _surface
        kinds = draw(figure, panel, part, done, labels, x, y, surface=mode == "surface")
        style.title_axes(figure, panel, labels.parameter(x), labels.parameter(y), xaxis={"showgrid": False} | kinds[0], yaxis={"showgrid": False} | kinds[1])
    return style.panels(figure, titles, columns=columns, height=340 if mode != "grid" else 300, bars=True, note=df.attrs["note"])


def _hover(labels: Labels, x: str, y: str) -> str:
    return f"{labels.symbol(x)} = %{{x}}<br>{labels.symbol(y)} = %{{y}}<br>"


def _cells(
    figure: go.Figure, panel: int, part: pd.DataFrame, done: pd.DataFrame, labels: Labels, x: str, y: str, surface: bool
) -> tuple[dict[str, Any], dict[str, Any]]:
    xs, ys = _order(part["x"]), _order(part["y"])
    table = done.groupby(["y", "x"])["value"].mean().unstack().reindex(index=ys, columns=xs)
    values = table.to_numpy(dtype=float)
    digits = 1 if np.nanmax(np.abs(values)) >= 10 else 3
    text = [["" if np.isnan(v) else f"{v:.{digits}f}" for v in row] for row in values]
    names = [number(v) for v in xs], [number(v) for v in ys]
    figure.add_trace(
        go.Heatmap(
            z=values,
            x=names[0],
            y=names[1],
            coloraxis=f"coloraxis{'' if panel == 1 else panel}",
            xgap=2,
            ygap=2,
            hovertemplate=_hover(labels, x, y) + "%{z:.2f}<extra></extra>",
            hoverongaps=False,
            **style.axes(panel),
        )
    )
    if len(xs) <= 12 and len(ys) <= 20:
        # Plotly's own cell texts are grey on mid-tones; these are near-black or near-white by the cell's brightness.
        low, high = np.nanmin(values), np.nanmax(values)
        at = [(i, j) for j in range(len(ys)) for i in range(len(xs)) if text[j][i]]
        figure.add_trace(
            go.Scatter(
                x=[names[0][i] for i, _ in at],
                y=[names[1][j] for _, j in at],
                mode="text",
                text=[text[j][i] for i, j in at],
                hoverinfo="skip",
                showlegend=False,
                textfont={
                    "size": 12 if len(xs) <= 8 else 10,
                    "color": [style.ON_BRIGHT if (values[j, i] - low) > 0.5 * (high - low) else style.ON_DARK for i, j in at],
                },
                **style.axes(panel),
            )
        )
    best = part[part["best"]]
    if not best.empty:
        i, j = xs.index(best["x"].iloc[0]), ys.index(best["y"].iloc[0])
        n = "" if panel == 1 else str(panel)
        figure.add_shape(type="rect", x0=i - 0.5, x1=i + 0.5, y0=j - 0.5, y1=j + 0.5, xref=f"x{n}", yref=f"y{n}", line={"color": style.ORANGE, "width": 3})
    shared = {"type": "category", "showline": False, "ticks": ""}
    return shared | {"categoryarray": names[0]}, shared | {"categoryarray": names[1]}


def _surface(
    figure: go.Figure, panel: int, part: pd.DataFrame, done: pd.DataFrame, labels: Labels, x: str, y: str, surface: bool
) -> tuple[dict[str, Any], dict[str, Any]]:
    axis = f"coloraxis{'' if panel == 1 else panel}"
    logs = labels.log(x), labels.log(y)
    if surface:
        grid = _interpolate(done, logs)
        if grid is not None:
            figure.add_trace(
                go.Contour(
                    x=grid[0],
                    y=grid[1],
                    z=grid[2],
                    coloraxis=axis,
                    contours={"coloring": "heatmap", "showlines": True},
                    line={"width": 0.6, "color": "rgba(255,255,255,0.35)"},
                    connectgaps=False,
                    hoverinfo="skip",
                    showlegend=False,
                    **style.axes(panel),
                )
            )
    stopped = part[part["state"] == "PRUNED"]
    shared: dict[str, Any] = {"mode": "markers", "showlegend": False} | style.axes(panel)
    figure.add_trace(
        go.Scatter(
            x=_plain(stopped["x"]),
            y=_plain(stopped["y"]),
            marker={"symbol": "x-thin", "size": 7, "line": {"width": 1.5, "color": style.MUTED}},
            customdata=stopped["trial"],
            hovertemplate=f"trial %{{customdata}}, stopped early<br>{_hover(labels, x, y)}<extra></extra>",
            **shared,
        )
    )
    small = 9 if len(done) <= 150 else 5
    figure.add_trace(
        go.Scatter(
            x=_plain(done["x"]),
            y=_plain(done["y"]),
            marker={"size": small, "color": done["value"], "coloraxis": axis, "line": {"width": 1.2, "color": style.ON_DARK}},
            customdata=np.stack([done["trial"], done["value"]], axis=-1) if len(done) else None,
            hovertemplate=f"trial %{{customdata[0]}}<br>{_hover(labels, x, y)}%{{customdata[1]:.2f}}<extra></extra>",
            **shared,
        )
    )
    best = done[done["best"]]
    figure.add_trace(
        go.Scatter(
            x=_plain(best["x"]),
            y=_plain(best["y"]),
            marker={"symbol": "star", "size": 17, "color": style.ORANGE, "line": {"width": 1.5, "color": style.ON_DARK}},
            hoverinfo="skip",
            **shared,
        )
    )
    kinds = [_axis(labels, key, part[column]) for key, column in ((x, "x"), (y, "y"))]
    return kinds[0], kinds[1]


def _axis(labels: Labels, key: str, values: pd.Series) -> dict[str, Any]:
    """An axis over all that was searched, so that unexplored corners show."""
    if not labels.numeric(key):
        return {"type": "category", "categoryorder": "array", "categoryarray": labels.options(key)}
    low, high = labels.bounds(key) or (float(values.min()), float(values.max()))
    log = labels.log(key)
    ends = np.log10([low, high]) if log else np.array([low, high])
    pad = 0.04 * float(ends[1] - ends[0]) or 0.5
    return (style.log_axis(low, high) if log else {}) | {"range": [float(ends[0]) - pad, float(ends[1]) + pad]}


def _interpolate(done: pd.DataFrame, logs: tuple[bool, bool], size: int = 80) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    from scipy.interpolate import griddata
    from scipy.spatial import QhullError

    points = done.groupby(["x", "y"], as_index=False)["value"].mean()
    raw = points[["x", "y"]].to_numpy(dtype=float)
    scaled = np.column_stack([np.log10(raw[:, i]) if logs[i] else raw[:, i] for i in (0, 1)])
    low, span = scaled.min(axis=0), np.ptp(scaled, axis=0)
    ticks = np.linspace(0, 1, size)
    try:
        z = griddata((scaled - low) / span, points["value"].to_numpy(dtype=float), tuple(np.meshgrid(ticks, ticks)), method="linear")
    except (QhullError, ValueError):  # all points on one line
        return None
    back = [10 ** (low[i] + ticks * span[i]) if logs[i] else low[i] + ticks * span[i] for i in (0, 1)]
    return back[0], back[1], z


def _order(values: pd.Series) -> list[Any]:
    return sorted(values.unique().tolist(), key=lambda v: (isinstance(v, str), v))


def _plain(values: pd.Series) -> list[Any]:
    return [number(v) if isinstance(v, bool) else v for v in values.tolist()]
