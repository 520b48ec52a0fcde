"""Each searched parameter by itself against what was selected on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from analysis import style
from analysis.figure import Figure
from analysis.figures._common import finals
from analysis.labels import Labels, number
from analysis.runs import Run
from search_spaces.metrics import twin

LIMIT = 12

FIGURE = Figure(
    "Each parameter by itself",
    (
        "Dots are completed trials, filled by what was selected on and open by the test value of the same trial.",
        "A clear slope or hill in one panel is an effect that shows through everything else that was varied; no shape means none is visible.",
    ),
    order=60,
)


def needs(runs: Sequence[Run]) -> str | None:
    run = runs[0]
    if not run.keys:
        return "Slices need a searched parameter; this run searched none."
    return None if ((run.trials["state"] == "COMPLETE") & run.trials["value"].notna()).any() else "Slices need a completed trial; there is none yet."


def data(runs: Sequence[Run]) -> pd.DataFrame:
    """One row per completed trial and parameter: number, key, x (its value), value (objective), test (twin metric), best.
    At most `LIMIT` parameters. attrs: keys, metric, twin, note."""
    run = runs[0]
    done = run.trials[(run.trials["state"] == "COMPLETE") & run.trials["value"].notna()]
    other = twin(run.metrics[0])
    last = finals(run)
    test = done["number"].map(last[other]) if other in last.columns and other != run.metrics[0] else pd.Series(np.nan, index=done.index)
    keys = run.keys[:LIMIT]
    parts = [
        pd.DataFrame(
            {"number": done["number"], "key": k, "x": done[k].astype(object), "value": done["value"], "test": test, "best": done["number"] == run.best}
        )[done[k].notna()]
        for k in keys
    ]
    frame = pd.concat(parts, ignore_index=True)
    frame.attrs = {
        "keys": keys,
        "metric": run.metrics[0],
        "twin": other,
        "note": f"The first {LIMIT} of {len(run.keys)} parameters are drawn." if len(run.keys) > LIMIT else "",
    }
    return frame


def plot(df: pd.DataFrame, labels: Labels) -> go.Figure:
    metric, other = df.attrs["metric"], df.attrs["twin"]
    scale = labels.scale(metric)
    figure = go.Figure()
    titles: list[str] = []
    for panel, key in enumerate(df.attrs["keys"], start=1):
        part = df[df["key"] == key]
        titles.append(labels.parameter(key))
        x: list[Any] = [number(v) if isinstance(v, (bool, str)) else v for v in part["x"]]
        dense = len(part) > 300
        pairs = [
            ("test", f"{labels.metric(other, split=True, unit=False)}", style.GREEN, "circle-open"),
            ("value", labels.metric(metric, split=True, unit=False) + " (selected on)", style.BLUE, "circle"),
        ]
        for column, name, colour, symbol in pairs:
            if part[column].notna().any():
                figure.add_trace(
                    go.Scatter(
                        x=x,
                        y=part[column] * scale,
                        mode="markers",
                        name=name,
                        legendgroup=column,
                        showlegend=panel == 1,
                        customdata=part["number"],
                        marker={"size": 4 if dense else 8, "color": colour, "symbol": symbol, "opacity": 0.35 if dense else 0.8},
                        hovertemplate=f"trial %{{customdata}}<br>{labels.symbol(key)} = %{{x}}: %{{y:.2f}}<extra></extra>",
                        **style.axes(panel),
                    )
                )
        best = part[part["best"]]
        if not best.empty:
            figure.add_trace(
                go.Scatter(
                    x=[number(v) if isinstance(v, (bool, str)) else v for v in best["x"]],
                    y=best["value"] * scale,
                    mode="markers",
                    name="chosen",
                    legendgroup="chosen",
                    showlegend=panel == 1,
                    marker={"symbol": "star", "size": 16, "color": style.ORANGE, "line": {"width": 1.5, "color": style.PAPER}},
                    hoverinfo="skip",
                    **style.axes(panel),
                )
            )
        kind = (
            {"type": "category", "categoryorder": "array", "categoryarray": labels.options(key)}
            if not labels.numeric(key)
            else style.log_axis(min(x), max(x))
            if labels.log(key)
            else {}
        )
        style.title_axes(figure, panel, "", labels.metric(metric).replace(" (validation)", "") if panel == 1 else "", xaxis={"showgrid": False} | kind)
    return style.panels(figure, titles, columns=2, height=240, gap=76, legend=3, below=34, note=df.attrs["note"])
