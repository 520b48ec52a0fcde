"""Accuracy against what crossed the wire to reach it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
import plotly.graph_objects as go

from analysis import style
from analysis.figure import Figure
from analysis.figures._common import MEAN, NO_CURVE, faint, metric_rows, sample, trial_lines
from analysis.labels import Labels
from analysis.runs import Run

#: Lines drawn at most.
LIMIT = 60


@dataclass(frozen=True)
class Drawing:
    """What `plot` needs to know; `data` says what the columns of `table` are."""

    table: pd.DataFrame
    note: str
    #: Whether the trials are the seeds of a final run, of which none is chosen.
    final: bool


def needs(runs: Sequence[Run]) -> str | None:
    curves = runs[0].curves
    if curves.empty or not {"bytes_up", "bytes_down"} <= set(curves.columns):
        return "The traffic plot needs rounds that recorded bytes_up and bytes_down; there are none."
    return None


def data(runs: Sequence[Run]) -> Drawing:
    """One row per trial, round and metric (on test data, or on validation data where only these were measured round by
    round): trial, round, sent (10^6 bytes, cumulated, both ways), metric, value, best (whether it is the chosen trial,
    or the mean of a final run's). At most `LIMIT` trials, the chosen one among them."""
    run = runs[0]
    curves = run.curves.copy()
    curves["sent"] = (curves["bytes_up"].fillna(0) + curves["bytes_down"].fillna(0)).groupby(
        curves["trial"]
    ).cumsum() / 1e6
    per_round = curves["sent"] / curves["round"]
    numbers, best = sorted(int(n) for n in curves["trial"].unique()), run.best
    if run.kind == "run" or len(run.chosen) > 1:
        best = MEAN
        means = curves[curves["trial"].isin(run.chosen)].groupby("round").mean(numeric_only=True)
        curves = pd.concat([curves, means.assign(trial=MEAN).reset_index()], ignore_index=True)
    kept = sample(numbers, LIMIT, keep=[] if best is None else [best])
    curves = curves[curves["trial"].isin([*kept, MEAN])]
    measured = [m for m in curves.columns if curves[m].notna().any()]
    rows = metric_rows(runs, lambda m: m in measured and not run.only_at_end(m))
    names = rows[-1] if rows else []
    parts = [
        curves[["trial", "round", "sent"]].assign(metric=m, value=curves[m], best=curves["trial"] == best)
        for m in names
    ]
    table = pd.concat(parts, ignore_index=True).dropna(subset=["value"])
    equal = float(per_round.max() - per_round.min()) <= 1e-9 * float(per_round.max())
    what = "seed" if run.kind == "run" else "configuration"
    note = f"Every {what} sends the same per round here, so the lines differ in accuracy only." if equal else ""
    if len(kept) < len(numbers):
        note = f"{note} {len(kept)} of {len(numbers)} trials are drawn.".strip()
    if any(run.only_at_end(metric) for metric in measured):
        note = f"{note} {NO_CURVE}".strip()
    return Drawing(table, note, run.kind == "run")


def plot(drawing: Drawing, labels: Labels) -> go.Figure:
    df = drawing.table
    figure = go.Figure()
    titles = []
    most = float(df["sent"].max())
    unit, factor = ("GB", 1e-3) if most >= 2000 else ("MB", 1.0) if most >= 2 else ("kB", 1e3)
    xaxis = {"range": [0, 1.03 * most * factor]}
    for panel, (metric, part) in enumerate(df.groupby("metric", sort=False), start=1):
        name = str(metric)
        titles.append(labels.metric(name, split=True))
        part = part.assign(sent=part["sent"] * factor, value=part["value"] * labels.scale(name))
        figure.add_traces(
            [_lines(part, best, panel, unit, drawing.final) for best in (False, True) if (part["best"] == best).any()]
        )
        style.title_axes(figure, panel, f"sent in both directions [{unit}]", "", xaxis=xaxis)
    return style.panels(figure, titles, columns=len(titles), height=260, legend=2, left=48, note=drawing.note)


def _lines(part: pd.DataFrame, best: bool, panel: int, unit: str, final: bool) -> go.Scatter:
    """The strong line, or all the others as one trace with gaps."""
    mean = final and best
    words = ("mean of the seeds" if best else "one seed each") if final else "chosen" if best else "other trials"
    return go.Scatter(
        **trial_lines(part[part["best"] == best], "sent", "value"),
        mode="lines",
        line={"color": style.ORANGE if best else style.BLUE, "width": 3 if best else 1},
        opacity=1 if best else faint(part["trial"].nunique()),
        name=words,
        legendgroup=str(best),
        showlegend=panel == 1,
        meta=None if mean else {"trial": "customdata"},
        hovertemplate=f"{words if mean else 'trial %{customdata}'}: %{{y:.2f}} after %{{x:.2f}} {unit}<extra></extra>",
        **style.axes(panel),
    )


FIGURE = Figure(
    title="Accuracy against traffic",
    read=(
        "A line is one trial: how accurate its model was once that much had been sent to and from the server, in all "
        "rounds so far (mean of seeds).",
        "Up and left is better; the orange line is the chosen trial, or in a final run the mean of its seeds, and a "
        "line that lies below and right of another one wastes traffic.",
    ),
    needs=needs,
    data=data,
    plot=plot,
    order=70,
)
