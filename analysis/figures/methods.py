"""Several runs in one drawing: each run's chosen configuration over rounds."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import plotly.graph_objects as go

from analysis import style
from analysis.figure import Figure
from analysis.figures._common import metric_rows
from analysis.labels import Labels, text
from analysis.runs import Run, names


def needs(runs: Sequence[Run]) -> str | None:
    if len(runs) < 2:
        return "Runs side by side need two or more runs."
    if crossed := [n for n, r in zip(names(runs), runs, strict=True) if r.crossed]:
        was = "was" if len(crossed) == 1 else "were"
        return (
            f"Runs side by side over rounds need one chosen configuration of each, and {', '.join(crossed)} {was} made "
            "under several conditions of the experiment. Choose a condition (`where`), or draw the figure factor."
        )
    empty = [n for n, r in zip(names(runs), runs, strict=True) if r.best is None]
    if empty:
        have = "has" if len(empty) == 1 else "have"
        return f"Runs side by side need a completed trial in each; {', '.join(empty)} {have} none."
    return (
        None if shared_metrics(runs) else "Runs side by side need a metric that each of them measured; there is none."
    )


def shared_metrics(runs: Sequence[Run], asked: Sequence[str] = ()) -> list[str]:
    """Of those asked for, or of the accuracies on test data, the metrics that all runs measured."""

    def measured(metric: str) -> bool:
        return all(metric in r.rounds.columns and bool(r.rounds[metric].notna().any()) for r in runs)

    rows = metric_rows(runs, measured)
    return [m for m in asked if measured(m)] if asked else rows[-1] if rows else []


def data(runs: Sequence[Run], asked: Sequence[str] = ()) -> pd.DataFrame:
    """One row per run, round and metric: run, round, metric, mean, std (over seeds), seeds. A search gives its best
    trial, a `kind: run` directory all of its trials. `asked`: the metrics, if not the accuracies."""
    parts = []
    metrics = shared_metrics(runs, asked)
    for name, run in zip(names(runs), runs, strict=True):
        chosen = run.rounds[run.rounds["trial"].isin(run.chosen)]
        for m in metrics:
            groups = chosen.dropna(subset=[m]).groupby("round")[m]
            part = groups.agg(["mean", "std", "size"]).reset_index().rename(columns={"size": "seeds"})
            parts.append(part.assign(run=name, metric=m))
    empty = pd.DataFrame(columns=["run", "round", "metric", "mean", "std", "seeds"])
    return pd.concat(parts, ignore_index=True) if parts else empty


def plot(df: pd.DataFrame, labels: Labels) -> go.Figure:
    figure = go.Figure()
    titles = []
    runs = list(dict.fromkeys(df["run"]))
    for panel, (metric, part) in enumerate(df.groupby("metric", sort=False), start=1):
        name = str(metric)
        part = part.assign(mean=part["mean"] * labels.scale(name), std=part["std"].fillna(0) * labels.scale(name))
        titles.append(labels.metric(name, split=True))
        for i, run in enumerate(runs):
            figure.add_traces(_line(part[part["run"] == run].sort_values("round"), run, i, panel))
        style.title_axes(figure, panel, "round", "", xaxis=style.rounds_axis(float(df["round"].max())))
    return style.panels(figure, titles, columns=min(2, len(titles)), height=300, legend=len(runs), left=48)


def _line(part: pd.DataFrame, run: str, position: int, panel: int) -> list[go.Scatter]:
    """One run's line in one panel and, where it has several seeds, the band around it."""
    colour = style.CYCLE[position % len(style.CYCLE)]
    rounds, mean, std = part["round"].tolist(), part["mean"].to_numpy(), part["std"].to_numpy()
    line = go.Scatter(
        x=rounds,
        y=mean,
        mode="lines",
        name=text(run),
        legendgroup=run,
        showlegend=panel == 1,
        customdata=std,
        line={"width": 2.5, "color": colour, "dash": style.DASHES[position % len(style.DASHES)]},
        hovertemplate=f"{text(run)}, round %{{x}}: %{{y:.2f}} ± %{{customdata:.2f}}<extra></extra>",
        **style.axes(panel),
    )
    return [style.band(rounds, mean, std, style.faded(colour, 0.13), panel, run), line] if std.any() else [line]


FIGURE = Figure(
    title="Runs side by side",
    read=(
        "A line is one run's chosen configuration, the mean of its seeds; the band is one standard deviation to "
        "either side.",
        "Runs that share seeds saw the same partitions and cohorts, so their difference per seed says more than their "
        "bands: see the paired tests.",
    ),
    needs=needs,
    data=data,
    plot=plot,
    order=5,
    many=True,
)
