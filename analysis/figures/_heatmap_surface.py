"""The heat map of freely sampled trials: a dot per trial and, where possible, a surface interpolated between them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from analysis import style
from analysis.figures._common import options_axis
from analysis.figures._heatmap_panel import Panel
from analysis.labels import Labels, shown

Axis = dict[str, Any]


def draw_surface(figure: go.Figure, panel: Panel, *, interpolated: bool) -> tuple[Axis, Axis]:
    """Adds the panel's surface (where `interpolated`) and its dots; returns what the two axes need."""
    labels, done = panel.labels, panel.done
    grid = _interpolate(done, (labels.log(panel.x), labels.log(panel.y))) if interpolated else None
    if grid is not None:
        figure.add_trace(
            go.Contour(
                x=grid[0],
                y=grid[1],
                z=grid[2],
                coloraxis=panel.coloraxis,
                contours={"coloring": "heatmap", "showlines": True},
                line={"width": 0.6, "color": "rgba(255,255,255,0.35)"},
                connectgaps=False,
                hoverinfo="skip",
                showlegend=False,
                **panel.axes,
            )
        )
    figure.add_trace(_stopped(panel))
    figure.add_trace(_completed(panel, done))
    if done["tied"].any():
        figure.add_traces(_tied(panel, done[done["tied"]]))
    figure.add_trace(_chosen(panel, done))
    return _axis(labels, panel.x, panel.part["x"]), _axis(labels, panel.y, panel.part["y"])


def _stopped(panel: Panel) -> go.Scatter:
    """A × per trial that was stopped early."""
    stopped = panel.part[panel.part["state"] == "PRUNED"]
    return go.Scatter(
        x=_plain(stopped["x"]),
        y=_plain(stopped["y"]),
        marker={"symbol": "x-thin", "size": 7, "line": {"width": 1.5, "color": style.MUTED}},
        customdata=stopped["trial"],
        meta={"trial": "customdata"},
        hovertemplate=f"trial %{{customdata}}, stopped early<br>{panel.hover}<extra></extra>",
        mode="markers",
        showlegend=False,
        **panel.axes,
    )


def _completed(panel: Panel, done: pd.DataFrame) -> go.Scatter:
    """A dot per completed trial, in the colour of its value."""
    return go.Scatter(
        x=_plain(done["x"]),
        y=_plain(done["y"]),
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


def _tied(panel: Panel, tied: pd.DataFrame) -> list[go.Scatter]:
    """A square around every trial that cannot be told from the chosen one, with a bright rim: it may stand on any
    colour of the surface, or beside it on a dark page."""
    return [
        go.Scatter(
            x=_plain(tied["x"]),
            y=_plain(tied["y"]),
            marker={"symbol": "square-open", "size": 16, "color": colour, "line": {"width": width}},
            hoverinfo="skip",
            mode="markers",
            showlegend=False,
            **panel.axes,
        )
        for colour, width in ((style.ON_DARK, 5), (style.ON_BRIGHT, 2))
    ]


def _chosen(panel: Panel, done: pd.DataFrame) -> go.Scatter:
    """The star of the chosen trial."""
    best = done[done["best"]]
    return go.Scatter(
        x=_plain(best["x"]),
        y=_plain(best["y"]),
        marker={"symbol": "star", "size": 17, "color": style.ORANGE, "line": {"width": 1.5, "color": style.ON_DARK}},
        hoverinfo="skip",
        mode="markers",
        showlegend=False,
        **panel.axes,
    )


def _axis(labels: Labels, key: str, values: pd.Series) -> Axis:
    """An axis over all that was searched, so that unexplored corners show."""
    if not labels.numeric(key):
        return options_axis(labels.options(key))
    low, high = labels.bounds(key) or (float(values.min()), float(values.max()))
    log = labels.log(key)
    ends = np.log10([low, high]) if log else np.array([low, high])
    pad = 0.04 * float(ends[1] - ends[0]) or 0.5
    return (style.log_axis(low, high) if log else {}) | {"range": [float(ends[0]) - pad, float(ends[1]) + pad]}


def _interpolate(
    done: pd.DataFrame, logs: tuple[bool, bool], size: int = 80
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Values on a `size` × `size` lattice between the dots, nan outside of them: x `(size,)`, y `(size,)`, z `(size,
    size)`.

    None where all dots lie on one line, so that no triangle can be drawn between them."""
    from scipy.interpolate import griddata
    from scipy.spatial import QhullError

    points = done.groupby(["x", "y"], as_index=False)["value"].mean()
    raw = points[["x", "y"]].to_numpy(dtype=float)
    scaled = np.column_stack([np.log10(raw[:, i]) if logs[i] else raw[:, i] for i in (0, 1)])
    low, span = scaled.min(axis=0), np.ptp(scaled, axis=0)
    ticks = np.linspace(0, 1, size)
    lattice = tuple(np.meshgrid(ticks, ticks))
    try:
        z = griddata((scaled - low) / span, points["value"].to_numpy(dtype=float), lattice, method="linear")
    except (QhullError, ValueError):
        return None
    back = [10 ** (low[i] + ticks * span[i]) if logs[i] else low[i] + ticks * span[i] for i in (0, 1)]
    return back[0], back[1], z


def _plain(values: pd.Series) -> list[Any]:
    """The values as Plotly reads them: options and flags as text."""
    return [shown(v) if isinstance(v, (bool, str)) else v for v in values.tolist()]
