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

FIGURE = Figure(
    "Runs side by side",
    (
        "A line is one run's chosen configuration, the mean of its seeds; the band is one standard deviation to either side.",
        "Runs that share seeds saw the same partitions and cohorts, so their difference per seed says more than their bands: see the paired tests.",
    ),
    order=5,
    many=True,
)


def needs(runs: Sequence[Run]) -> str | None:
    if len(runs) < 2:
        return "Runs side by side need two or more runs."
    empty = [n for n, r in zip(names(runs), runs, strict=True) if r.best is None]
    if empty:
        return f"Runs side by side need a completed trial in each; {', '.join(empty)} {'has' if len(empty) == 1 else 'have'} none."
    return None if _metrics(runs) else "Runs side by side need a metric that each of them measured; there is none."


def _metrics(runs: Sequence[Run]) -> list[str]:
    """Test metrics that all runs measured."""
    rows = metric_rows(runs, lambda m: all(m in r.rounds.columns and bool(r.rounds[m].notna().any()) for r in runs))
    return rows[-1] if rows else []


def data(runs: Sequence[Run]) -> pd.DataFrame:
    """One row per run, round and metric: run, round, metric, mean, std (over seeds), seeds. A search gives its best trial,
    a `kind: run` directory all of its trials. attrs: columns."""
    parts = []
    metrics = _metrics(runs)
    for name, run in zip(names(runs), runs, strict=True):
        chosen = run.rounds[run.rounds["trial"].isin(run.chosen)]
        for m in metrics:
            groups = chosen.dropna(subset=[m]).groupby("round")[m]
            part = groups.agg(["mean", "std", "size"]).reset_index().rename(columns={"size": "seeds"})
            parts.append(part.assign(run=name, metric=m))
    frame = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=["run", "round", "metric", "mean", "std", "seeds"])
    frame.attrs = {"columns": max(1, len(metrics))}
    return frame


def plot(df: pd.DataFrame, labels: Labels) -> go.Figure:
    figure = go.Figure()
    titles = []
    runs = list(dict.fromkeys(df["run"]))
    for panel, (metric, part) in enumerate(df.groupby("metric", sort=False), start=1):
        name = str(metric)
        scale = labels.scale(name)
        titles.append(labels.metric(name, split=True))
        for i, run in enumerate(runs):
            line = part[part["run"] == run].sort_values("round")
            colour = style.CYCLE[i % len(style.CYCLE)]
            x, mean, std = line["round"].tolist(), line["mean"].to_numpy() * scale, line["std"].fillna(0).to_numpy() * scale
            if std.any():
                figure.add_trace(
                    go.Scatter(
                        x=x + x[::-1],
                        y=[*(mean + std), *(mean - std)[::-1]],
                        fill="toself",
                        fillcolor=style.faded(colour, 0.13),
                        mode="lines",
                        line={"width": 0},
                        hoverinfo="skip",
                        showlegend=False,
                        legendgroup=run,
                        **style.axes(panel),
                    )
                )
            figure.add_trace(
                go.Scatter(
                    x=x,
                    y=mean,
                    mode="lines",
                    name=text(run),
                    legendgroup=run,
                    showlegend=panel == 1,
                    customdata=std,
                    line={"width": 2.5, "color": colour, "dash": style.DASHES[i % len(style.DASHES)]},
                    hovertemplate=f"{text(run)}, round %{{x}}: %{{y:.2f}} ± %{{customdata:.2f}}<extra></extra>",
                    **style.axes(panel),
                )
            )
        style.title_axes(figure, panel, "round", "", xaxis=style.rounds_axis(float(df["round"].max())))
    return style.panels(figure, titles, columns=df.attrs["columns"], height=300, legend=len(runs), left=48)
