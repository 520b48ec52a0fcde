"""The search over time: every completed trial's objective and the best one so far."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import plotly.graph_objects as go

from analysis import style
from analysis.figure import Figure
from analysis.figures._common import has_result, results
from analysis.labels import Labels
from analysis.runs import Run
from search_spaces.metrics import twin


def needs(runs: Sequence[Run]) -> str | None:
    if runs[0].kind == "run":
        return "A history needs trials of a search; the trials of a final run are seeds of one configuration."
    return None if has_result(runs[0]) else "The history needs a completed trial; there is none yet."


def data(runs: Sequence[Run]) -> pd.DataFrame:
    """One row per completed trial (or configuration): number, metric (the objective), value, best (best
    value so far), leader (its trial), twin (the other split's metric) and twin_value (the leader's value there; nan
    where not measured)."""
    run = runs[0]
    last = run.levelled
    done = results(run).sort_values("number")
    best = done["value"].cummax() if run.maximise else done["value"].cummin()
    leader = done["number"].where(done["value"] == best).groupby(best).transform("min").ffill()
    other = twin(run.metrics[0])
    shown = leader.map(last[other]) if other in last.columns and other != run.metrics[0] else float("nan")
    return pd.DataFrame(
        {
            "number": done["number"],
            "metric": run.metrics[0],
            "value": done["value"],
            "best": best,
            "leader": leader.astype(int),
            "twin": other,
            "twin_value": shown,
        }
    ).reset_index(drop=True)


def plot(df: pd.DataFrame, labels: Labels) -> go.Figure:
    metric, other = str(df["metric"].iloc[0]), str(df["twin"].iloc[0])
    scale = labels.scale(metric)
    figure = go.Figure()
    figure.add_trace(
        go.Scatter(
            x=df["number"],
            y=df["value"] * scale,
            mode="markers",
            meta={"trial": "x"},
            name="completed trial",
            marker={"size": 8 if len(df) < 300 else 4, "color": style.BLUE, "opacity": 0.75 if len(df) < 300 else 0.35},
            hovertemplate="trial %{x}: %{y:.2f}<extra></extra>",
        )
    )
    if df["twin_value"].notna().any():
        figure.add_trace(
            go.Scatter(
                x=df["number"],
                y=df["twin_value"] * scale,
                mode="lines",
                name=labels.metric(other, split=True, unit=False) + " of the best so far",
                line={"shape": "hv", "dash": "dash", "width": 2, "color": style.GREEN},
                customdata=df["leader"],
                hovertemplate="trial %{customdata}: %{y:.2f}<extra></extra>",
            )
        )
    figure.add_trace(
        go.Scatter(
            x=df["number"],
            y=df["best"] * scale,
            mode="lines",
            name="best so far",
            line={"shape": "hv", "width": 3, "color": style.ORANGE},
            customdata=df["leader"],
            hovertemplate="best so far %{y:.2f} (trial %{customdata})<extra></extra>",
        )
    )
    style.title_axes(figure, 1, "trial", labels.metric(metric), xaxis=style.trials_axis(df["number"].tolist()))
    return style.panels(figure, [""], columns=1, height=320, legend=3)


FIGURE = Figure(
    title="Optimisation history",
    read=(
        "Each dot is a completed trial, or a configuration over its seeds, in the order trials were proposed; "
        "the line is the best one so far.",
        "The dashed line is the test value of that best-so-far trial: it was never looked at while searching, so it "
        "may fall while the solid line rises.",
    ),
    needs=needs,
    data=data,
    plot=plot,
    order=30,
)
