"""What became of the trials: how many ended how, and when each one ran."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from analysis import style
from analysis.figure import Figure
from analysis.figures._common import sample
from analysis.labels import Labels
from analysis.runs import Run

#: Lines of the timeline drawn at most.
LIMIT = 1000


def needs(runs: Sequence[Run]) -> str | None:
    return "Outcomes need a trial; the study is empty." if runs[0].trials.empty else None


def data(runs: Sequence[Run]) -> pd.DataFrame:
    """One row per trial: number, outcome (a key of `style.OUTCOMES`), rounds, start and end (minutes since the first
    start; nan where unknown; a running trial ends with the latest recorded moment)."""
    run = runs[0]
    trials = run.trials
    kind = [style.outcome(s, r) for s, r in zip(trials["state"], trials["stop_reason"], strict=True)]
    start, end = pd.to_datetime(trials["start"]), pd.to_datetime(trials["end"])
    latest = max(start.max(), end.max()) if end.notna().any() else start.max()
    origin = start.min()
    return pd.DataFrame(
        {
            "number": trials["number"],
            "outcome": kind,
            "rounds": trials["rounds"],
            "start": (start - origin).dt.total_seconds() / 60,
            "end": (end.fillna(latest) - origin).dt.total_seconds() / 60,
        }
    )


def plot(df: pd.DataFrame, labels: Labels) -> go.Figure:
    figure = go.Figure()
    present = [kind for kind in style.OUTCOMES if (df["outcome"] == kind).any()]
    drawn = df[df["number"].isin(set(sample(df["number"].tolist(), LIMIT)))]
    width = 6 if len(df) <= 40 else 3 if len(df) <= 200 else 1.5
    for kind in present:
        figure.add_trace(_bar(kind, df[df["outcome"] == kind]))
        figure.add_trace(_timeline(kind, drawn[drawn["outcome"] == kind], width))
    most = int(df["outcome"].value_counts().max())
    style.title_axes(
        figure,
        1,
        xaxis={"range": [0, 2.4 * most], "showgrid": False, "visible": False},
        yaxis={"ticks": "", "range": [max(len(present), 4) - 0.4, -0.6], "showline": False, "showgrid": False},
    )
    style.title_axes(
        figure,
        2,
        # Beside the longest outcomes a narrow screen has no room for "since the first trial started".
        "minutes since the start",
        "trial",
        xaxis={"rangemode": "tozero"},
        yaxis={"showgrid": False, "tickformat": "d", "dtick": 1 if len(df) <= 12 else None},
    )
    note = f"{LIMIT} of {len(df)} trials are drawn in the timeline." if len(df) > LIMIT else ""
    titles = ["How trials ended", "When they ran"]
    return style.panels(figure, titles, columns=2, height=260, left=120, gap=60, note=note)


def _bar(kind: str, trials: pd.DataFrame) -> go.Bar:
    """How many trials ended like this, and their rounds."""
    colour, _, words = style.OUTCOMES[kind]
    return go.Bar(
        y=[words],
        x=[len(trials)],
        orientation="h",
        width=0.62,
        marker={"color": colour},
        showlegend=False,
        name=words,
        cliponaxis=False,
        text=f"{len(trials)} trial{'s' if len(trials) != 1 else ''}, {int(trials['rounds'].sum())} rounds",
        textposition="outside",
        textfont={"color": style.INK, "size": 12},
        hoverinfo="skip",
        **style.axes(1),
    )


def _timeline(kind: str, trials: pd.DataFrame, width: float) -> go.Scatter:
    """One line per trial from its start to its end; all of them are one trace, separated by gaps."""
    colour, _, words = style.OUTCOMES[kind]
    x: list[Any] = []
    y: list[Any] = []
    for row in trials[trials["start"].notna()].to_dict("records"):
        x += [row["start"], row["end"], None]
        y += [row["number"], row["number"], None]
    return go.Scatter(
        x=x,
        y=y,
        mode="lines",
        line={"color": colour, "width": width},
        name=words,
        showlegend=False,
        meta={"trial": "y"},
        hovertemplate=f"trial %{{y}}, {words}: %{{x:.1f}} min<extra></extra>",
        **style.axes(2),
    )


FIGURE = Figure(
    title="Outcomes and timeline",
    read=(
        "The bars count trials by how they ended and the rounds spent on them.",
        "In the timeline every line is one trial from its start to its end; where no lines overlap, nothing ran at "
        "the same time.",
    ),
    needs=needs,
    data=data,
    plot=plot,
    across=True,
    order=90,
)
