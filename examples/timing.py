"""Where a round's time goes: clients, server, evaluation."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import plotly.graph_objects as go

from analysis import style
from analysis.figure import Figure
from analysis.labels import Labels
from analysis.runs import Run

PARTS = ("seconds_client", "seconds_server", "seconds_evaluation")


def needs(runs: Sequence[Run]) -> str | None:
    if set(PARTS) <= set(runs[0].curves.columns):
        return None
    return "The timing needs rounds that recorded their seconds; there are none."


def data(runs: Sequence[Run]) -> pd.DataFrame:
    """One row per trial and part of a round: trial, part (a metric's name), seconds (mean per round)."""
    mean = runs[0].curves.groupby("trial")[list(PARTS)].mean().reset_index()
    return mean.melt(id_vars="trial", var_name="part", value_name="seconds")


def plot(df: pd.DataFrame, labels: Labels) -> go.Figure:
    figure = go.Figure()
    for part, colour in zip(PARTS, style.CYCLE, strict=False):
        rows = df[df["part"] == part]
        name = labels.metric(part, unit=False)
        figure.add_trace(go.Bar(x=rows["trial"], y=rows["seconds"], name=name, marker={"color": colour}))
    figure.update_layout(barmode="stack")
    style.title_axes(figure, 1, "trial", "seconds per round")
    return style.panels(figure, [""], columns=1, height=300, legend=len(PARTS))


FIGURE = Figure(
    title="Where the time goes",
    read=(
        "A bar is one trial: the mean seconds per round of its clients, of its server and of evaluation.",
        "Trials of one search differ here only where a searched parameter changes the work.",
    ),
    needs=needs,
    data=data,
    plot=plot,
    order=90,
)
