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

LIMIT = 1000

FIGURE = Figure(
    "Outcomes and timeline",
    (
        "The bars count trials by how they ended and the rounds spent on them.",
        "In the timeline every line is one trial from its start to its end; where no lines overlap, nothing ran at the same time.",
    ),
    order=90,
)


def needs(runs: Sequence[Run]) -> str | None:
    return "Outcomes need a trial; the study is empty." if runs[0].trials.empty else None


def data(runs: Sequence[Run]) -> pd.DataFrame:
    """One row per trial: number, outcome (a key of `style.OUTCOMES`), rounds, start and end (minutes since the first start; nan
    where unknown; a running trial ends with the latest recorded moment). attrs: note."""
    run = runs[0]
    trials = run.trials
    kind = [style.outcome(s, r) for s, r in zip(trials["state"], trials["stop_reason"], strict=True)]
    start, end = pd.to_datetime(trials["start"]), pd.to_datetime(trials["end"])
    latest = max(start.max(), end.max()) if end.notna().any() else start.max()
    origin = start.min()
    frame = pd.DataFrame(
        {
            "number": trials["number"],
            "outcome": kind,
            "rounds": trials["rounds"],
            "start": (start - origin).dt.total_seconds() / 60,
            "end": (end.fillna(latest) - origin).dt.total_seconds() / 60,
        }
    )
    frame.attrs = {"note": f"{LIMIT} of {len(frame)} trials are drawn in the timeline." if len(frame) > LIMIT else ""}
    return frame


def plot(df: pd.DataFrame, labels: Labels) -> go.Figure:
    figure = go.Figure()
    present = [k for k in style.OUTCOMES if (df["outcome"] == k).any()]
    rounds = df.groupby("outcome")["rounds"].sum()
    kept = set(sample(df["number"].tolist(), LIMIT))
    for kind in present:
        colour, _, words = style.OUTCOMES[kind]
        count = int((df["outcome"] == kind).sum())
        figure.add_trace(
            go.Bar(
                y=[words],
                x=[count],
                orientation="h",
                width=0.62,
                marker={"color": colour},
                showlegend=False,
                name=words,
                cliponaxis=False,
                text=f"{count} trial{'s' if count != 1 else ''}, {int(rounds.get(kind, 0) or 0)} rounds",
                textposition="outside",
                textfont={"color": style.INK, "size": 12},
                hoverinfo="skip",
                **style.axes(1),
            )
        )
        x: list[Any] = []
        y: list[Any] = []
        for row in df[(df["outcome"] == kind) & df["number"].isin(kept) & df["start"].notna()].itertuples():
            x += [row.start, row.end, None]
            y += [row.number, row.number, None]
        figure.add_trace(
            go.Scatter(
                x=x,
                y=y,
                mode="lines",
                line={"color": colour, "width": 6 if len(df) <= 40 else 3 if len(df) <= 200 else 1.5},
                name=words,
                showlegend=False,
                hovertemplate=f"trial %{{y}}, {words}: %{{x:.1f}} min<extra></extra>",
                **style.axes(2),
            )
        )
    most = int(df["outcome"].value_counts().max())
    style.title_axes(
        figure,
        1,
        "",
        "",
        xaxis={"range": [0, 1.45 * most], "showgrid": False, "visible": False},
        yaxis={"ticks": "", "range": [max(len(present), 4) - 0.4, -0.6], "showline": False, "showgrid": False},
    )
    style.title_axes(
        figure,
        2,
        "minutes since the first trial started",
        "trial",
        xaxis={"rangemode": "tozero"},
        yaxis={"showgrid": False, "tickformat": "d", "dtick": 1 if len(df) <= 12 else None},
    )
    return style.panels(figure, ["How trials ended", "When they ran"], columns=2, height=260, left=120, gap=60, note=df.attrs["note"])
