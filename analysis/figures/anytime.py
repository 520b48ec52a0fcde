"""The best value so far against what the search had spent by then: seconds of computing, and whole federations."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd
import plotly.graph_objects as go

from analysis import style
from analysis.figure import Figure
from analysis.figures import history
from analysis.labels import Labels
from analysis.runs import Run

#: By column of the table, the title of its panel and of its axis.
AMOUNTS = {"seconds": ("Seconds of computing", "seconds"), "federations": ("Whole federations", "federations")}


def needs(runs: Sequence[Run]) -> str | None:
    why = history.needs(runs)
    if why is not None:
        return why.replace("history", "curve of the best against its cost")
    return None if runs[0].lines else "The best against its cost needs rounds that were recorded; there are none."


def data(runs: Sequence[Run]) -> pd.DataFrame:
    """One row per completed trial (or configuration), as `history.data`: number, metric, best (best value so far),
    leader (its trial), and what all trials up to it had taken, those that were stopped or failed and further seeds
    included: seconds, and federations (rounds of single seeds, divided by the rounds of a whole one). What was taken
    from earlier runs costs nothing."""
    run = runs[0]
    rows, seconds, federations = {}, 0.0, 0.0
    for trial in sorted(run.frozen, key=lambda trial: trial.number):
        lines = run.lines.get(trial.number, {}) if trial.number >= run.taken else {}
        took = [float(line.get("seconds", math.nan)) for line in lines.values()]
        seconds += math.fsum(one for one in took if math.isfinite(one))
        federations += len(lines) / int(run.experiment["rounds"])
        rows[trial.number] = (seconds, federations)
    found = history.data(runs)[["number", "metric", "best", "leader"]]
    spent = [rows[number] for number in found["number"]]
    return found.assign(seconds=[one for one, _ in spent], federations=[one for _, one in spent])


def plot(df: pd.DataFrame, labels: Labels) -> go.Figure:
    metric = str(df["metric"].iloc[0])
    figure = go.Figure()
    for panel, (name, (_, unit)) in enumerate(AMOUNTS.items(), start=1):
        figure.add_trace(
            go.Scatter(
                x=df[name],
                y=df["best"] * labels.scale(metric),
                mode="lines+markers",
                line={"shape": "hv", "width": 3, "color": style.ORANGE},
                marker={"size": 5},
                customdata=df["leader"],
                hovertemplate=f"best after %{{x:.4g}} {unit}: %{{y:.2f}} (trial %{{customdata}})<extra></extra>",
                showlegend=False,
                **style.axes(panel),
            )
        )
        style.title_axes(figure, panel, unit, labels.metric(metric))
    return style.panels(figure, [title for title, _ in AMOUNTS.values()], columns=2, height=300)


FIGURE = Figure(
    title="Best so far against its cost",
    read=(
        "The line is the best completed trial so far, against the seconds and the federations that all trials up to it "
        "took, those that were stopped early included.",
        "Where configurations cost differently the two panels differ: a steep line on the left and a flat one on the "
        "right is a gain that cheap trials made.",
    ),
    needs=needs,
    data=data,
    plot=plot,
    order=31,
)
