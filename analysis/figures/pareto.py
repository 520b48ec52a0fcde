"""Several objectives: every trial by two of them, the Pareto front with its knee, and the hypervolume over time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from analysis import style
from analysis.estimate import missed_target
from analysis.figure import Figure
from analysis.labels import Labels, told
from analysis.runs import Run
from analysis.runs.pareto import signed, volumes

#: Of more objectives, the first one is drawn against each other one.
ALL_PAIRS = 3


@dataclass(frozen=True)
class Drawing:
    """What `plot` needs to know; `data` says what the columns of `table` are."""

    table: pd.DataFrame
    metrics: tuple[str, ...]
    note: str


def needs(runs: Sequence[Run]) -> str | None:
    run = runs[0]
    if len(run.metrics) < 2:
        return "The Pareto front needs a search for several metrics; this one has one."
    done = len(_complete(run))
    return None if done >= 2 else f"The Pareto front needs 2 completed trials, there {_count(done)}."


def _count(done: int) -> str:
    return "is 1" if done == 1 else f"are {done}"


def _complete(run: Run) -> list[tuple[int, tuple[float, ...]]]:
    """Trials that ran to their end and reached their targets, with a finite value of every objective; one that was
    stopped has spent less, so its rounds and bytes cannot be compared."""
    ended = [trial for trial in run.frozen if trial.state.name == "COMPLETE" and not missed_target(trial)]
    found = [(trial.number, tuple(trial.values or ())) for trial in ended]
    return [(number, values) for number, values in found if values and np.isfinite(values).all()]


def data(runs: Sequence[Run]) -> Drawing:
    """One row per completed trial, in the order of their numbers: trial, one column per metric (as recorded), front
    (whether it is Pareto-optimal), chosen (whether it is the chosen trial), volume (the share of the box between the
    worst and the best value of each metric that the front up to this trial dominates, 0 to 1)."""
    run = runs[0]
    done = _complete(run)
    values = [values for _, values in done]
    table = pd.DataFrame({"trial": [number for number, _ in done]})
    for place, metric in enumerate(run.metrics):
        table[metric] = [row[place] for row in values]
    table["front"] = table["trial"].isin(run.front)
    table["chosen"] = table["trial"] == run.best
    table["volume"] = volumes(signed(values, run.directions))
    count = int(table["front"].sum())
    one = "One of the completed trials is" if count == 1 else f"{count} of {len(table)} completed trials are"
    required = " among those that keep the requirements" if run.requirements else ""
    return Drawing(table, tuple(run.metrics), f"{one} Pareto-optimal{required}.")


def plot(drawing: Drawing, labels: Labels) -> go.Figure:
    figure, df = go.Figure(), drawing.table
    first, *others = drawing.metrics
    pairs = list(combinations(drawing.metrics, 2)) if len(others) < ALL_PAIRS else [(first, other) for other in others]
    for panel, (y, x) in enumerate(pairs, start=1):
        _pair(figure, panel, df, x, y, drawing.metrics, labels)
    last = len(pairs) + 1
    figure.add_trace(
        go.Scatter(
            x=df["trial"],
            y=100 * df["volume"],
            mode="lines",
            line={"shape": "hv", "width": 3, "color": style.BLUE},
            showlegend=False,
            meta={"trial": "x"},
            hovertemplate="up to trial %{x}: %{y:.1f} %<extra></extra>",
            **style.axes(last),
        )
    )
    style.title_axes(
        figure,
        last,
        "trial",
        "hypervolume so far [%]",
        xaxis=style.trials_axis(df["trial"].tolist()),
        yaxis={"rangemode": "tozero"},
    )
    # The axes say it all, so the panels have no titles.
    return style.panels(figure, [""] * last, columns=2, height=300, legend=3, note=drawing.note)


def _pair(
    figure: go.Figure, panel: int, df: pd.DataFrame, x: str, y: str, metrics: Sequence[str], labels: Labels
) -> None:
    """Every trial by two of the metrics: beaten ones, the front, the chosen one."""
    kinds = (
        ("beaten by another trial", ~df["front"] & ~df["chosen"], {"size": 7, "color": style.MUTED, "opacity": 0.5}),
        ("Pareto-optimal", df["front"] & ~df["chosen"], {"size": 9, "color": style.BLUE}),
        ("chosen", df["chosen"], {"size": 15, "color": style.ORANGE, "symbol": "star"}),
    )
    for name, which, marker in kinds:
        rows = df[which]
        texts = [
            f"trial {row['trial']}<br>"
            + "<br>".join(f"{labels.metric(m, unit=False)} {told(m, row[m])}" for m in metrics)
            for row in rows.to_dict("records")
        ]
        figure.add_trace(
            go.Scatter(
                x=rows[x] * labels.scale(x),
                y=rows[y] * labels.scale(y),
                mode="markers",
                name=name,
                legendgroup=name,
                showlegend=panel == 1,
                marker=marker,
                customdata=rows["trial"],
                meta={"trial": "customdata"},
                text=texts,
                hovertemplate="%{text}<extra></extra>",
                **style.axes(panel),
            )
        )
    style.title_axes(figure, panel, labels.metric(x, split=True), labels.metric(y, split=True))


FIGURE = Figure(
    title="Pareto front",
    read=(
        "A dot is a trial that ran to its end; no other trial is better in all metrics than a blue one, and the star "
        "is the knee of the front, which gives up least of one metric for what it gains in the others.",
        "The hypervolume is the share of the box between the worst and the best value of each metric that the front "
        "found so far dominates: it rises when a new trial moves the front.",
    ),
    needs=needs,
    data=data,
    plot=plot,
    order=15,
)
