"""One box per searched parameter, or per value of it: how much it moves global and local accuracy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from analysis import style
from analysis.figure import Figure
from analysis.labels import Labels, number
from analysis.runs import Run

#: Global accuracies, the first one measured is drawn; then the local one.
GLOBAL = ("global_accuracy", "g_acc_virtual", "p_acc_global")
LOCAL = ("local_accuracy", "p_acc")
LIMIT = 6

FIGURE = Figure(
    "Spread by parameter",
    (
        "A dot is a completed trial with one seed, measured on test data in its last round; a box spans the middle half of its dots, its line is the median.",
        "Where parameters were varied one at a time, a box holds all values of one parameter with the others at their defaults, and a flat box is a "
        "parameter that hardly matters; otherwise a box holds all trials with one value.",
    ),
    order=65,
)


def needs(runs: Sequence[Run]) -> str | None:
    run = runs[0]
    if not _metrics(run):
        return "Boxes need a global or local accuracy; this run has measured none yet."
    if _boxes(run):
        return None
    return "Boxes need completed trials that vary one parameter at a time, or a parameter with a list of values (a choice, a flag or a grid)."


def data(runs: Sequence[Run]) -> pd.DataFrame:
    """One row per dot: panel (0, 1, … a parameter, or all of them), metric, box (its label's key or value), key, value (the parameter's),
    number (trial), seed, y. attrs: metrics, keys (of the panels; None: all side by side), boxes (in order, by panel), note."""
    run = runs[0]
    metrics, boxes = _metrics(run), _boxes(run)
    rows = [
        {"panel": panel, "metric": metric, "box": box, "key": key, "value": run.parameters(trial)[key], "number": trial, "seed": seed, "y": y}
        for panel, (_, groups) in enumerate(boxes) for key, box, trials in groups for trial in trials
        for metric in metrics for seed, y in run.last(trial, metric).items()
    ]
    frame = pd.DataFrame(rows, columns=["panel", "metric", "box", "key", "value", "number", "seed", "y"])
    shown = len(boxes) if len(boxes) <= LIMIT else LIMIT
    frame = frame[frame["panel"] < shown].reset_index(drop=True)
    frame.attrs = {
        "metrics": metrics,
        "keys": [key for key, _ in boxes[:shown]],
        "boxes": [[box for _, box, _ in groups] for _, groups in boxes[:shown]],
        "note": f"The first {LIMIT} of {len(boxes)} parameters are drawn." if len(boxes) > LIMIT else "",
    }
    return frame


def plot(df: pd.DataFrame, labels: Labels) -> go.Figure:
    figure = go.Figure()
    titles: list[str] = []
    metrics: list[str] = df.attrs["metrics"]
    for row, key in enumerate(df.attrs["keys"]):
        names = [labels.symbol(b) if key is None else number(b) for b in df.attrs["boxes"][row]]
        for column, metric in enumerate(metrics):
            panel = row * len(metrics) + column + 1
            colour = (style.BLUE, style.GREEN)[column % 2]
            title = labels.metric(metric, split=True)
            titles.append(title if key is None or len(df.attrs["keys"]) == 1 else f"{labels.parameter(key)}: {title}")
            part = df[(df["panel"] == row) & (df["metric"] == metric)]
            for name, box in zip(names, df.attrs["boxes"][row], strict=True):
                dots = part[part["box"] == box]
                figure.add_trace(
                    go.Box(
                        x=[name] * len(dots),
                        y=dots["y"] * labels.scale(metric),
                        name=name,
                        boxpoints="all",
                        jitter=0.4,
                        pointpos=0,
                        width=0.6,
                        whiskerwidth=0.5,
                        line={"color": colour, "width": 1.5},
                        fillcolor=style.faded(colour, 0.15),
                        marker={"color": colour, "size": 5, "opacity": 0.7},
                        hoveron="points",
                        text=[f"trial {n}, seed {s}<br>{labels.symbol(k)} = {number(v)}" for n, s, k, v in
                              zip(dots["number"], dots["seed"], dots["key"], dots["value"], strict=True)],
                        hovertemplate="%{text}: %{y:.2f}<extra></extra>",
                        showlegend=False,
                        **style.axes(panel),
                    )
                )
            style.title_axes(figure, panel, "" if key is None else labels.parameter(key), "",
                             xaxis={"type": "category", "categoryorder": "array", "categoryarray": names, "showgrid": False})
    return style.panels(figure, titles, columns=len(metrics), height=300, note=df.attrs["note"])


def _metrics(run: Run) -> list[str]:
    """A global and a local accuracy on test data, as far as the run measured them."""
    measured = {name for name in run.rounds.columns if run.rounds[name].notna().any()} if not run.rounds.empty else set()
    return [name for names in (GLOBAL, LOCAL) for name in [n for n in names if n in measured][:1]]


def _boxes(run: Run) -> list[tuple[str | None, list[tuple[str, Any, list[int]]]]]:
    """Panels, each the key it belongs to (None: all keys side by side) and its boxes: key, label or value, trials."""
    done = [t for t in run.frozen if t.state.name == "COMPLETE"]
    if run.space.get("one_at_a_time"):
        start = {item["key"]: item.get("declared", {}).get("default") for item in run.searched}
        lines = [(key, key, [t.number for t in done if all(v == start.get(k) for k, v in t.params.items() if k != key)]) for key in run.keys]
        lines = [line for line in lines if len(line[2]) > 1]
        if lines:
            return [(None, lines)]
    panels: list[tuple[str | None, list[tuple[str, Any, list[int]]]]] = []
    for item in run.searched:
        key = item["key"]
        values = {"choice": item.get("options"), "flag": [False, True]}.get(str(item.get("kind")), item.get("grid")) or []
        groups = [(key, value, [t.number for t in done if key in t.params and t.params[key] == value]) for value in values]
        groups = [group for group in groups if group[2]]
        if groups and sum(len(g[2]) for g in groups) == sum(key in t.params for t in done):
            panels.append((key, groups))
    return panels
