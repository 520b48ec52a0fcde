"""Learning curves: every trial's metric over its rounds, the chosen one with its spread over seeds."""

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

#: Lines drawn at most; the others are in the trials table.
LIMIT = 150


@dataclass(frozen=True)
class Drawing:
    """What `plot` needs to know; `data` says what the columns of `table` are."""

    table: pd.DataFrame
    #: Panels side by side.
    columns: int
    #: What the strong line is called.
    chosen: str
    note: str


def needs(runs: Sequence[Run]) -> str | None:
    return "Learning curves need a trial with a measured round; there is none yet." if runs[0].curves.empty else None


def data(runs: Sequence[Run]) -> Drawing:
    """One row per trial, round and metric: trial, round, metric, mean, std (over seeds; nan for one seed), seeds,
    state, best (whether it is the chosen trial). At most `LIMIT` trials, evenly spread over their numbers, and always
    the chosen one."""
    run = runs[0]
    numbers = sorted(int(n) for n in run.curves["trial"].unique())
    best = run.best
    kept = sample(numbers, LIMIT, keep=[] if best is None else [best])
    curves = run.curves[run.curves["trial"].isin(kept)]
    measured = {m for m in curves.columns if curves[m].notna().any()}
    rows = metric_rows(runs, lambda m: m in measured and not run.only_at_end(m))
    if len(run.chosen) > 1 or (run.kind == "run" and run.chosen):
        curves, best = pd.concat([curves, _over_seeds(run)], ignore_index=True), MEAN
    shared = curves[["trial", "round", "seeds"]]
    parts = [shared.assign(metric=m, mean=curves[m], std=curves[f"{m}:std"]) for row in rows for m in row]
    empty = pd.DataFrame(columns=["trial", "round", "seeds", "metric", "mean", "std"])
    table = pd.concat(parts, ignore_index=True) if parts else empty
    table = table[table["mean"].notna()]
    table["state"] = table["trial"].map(run.trials.set_index("number")["state"])
    table["best"] = table["trial"] == best
    note = (
        f"{len(kept)} of {len(numbers)} trials are drawn, evenly spread over the search."
        if len(kept) < len(numbers)
        else ""
    )
    if int(curves["seeds"].max()) == 1:
        note = f"{note} One seed per trial, so there is no band.".strip()
    if any(run.only_at_end(metric) for metric in measured):
        note = f"{note} {NO_CURVE}".strip()
    return Drawing(table, max((len(r) for r in rows), default=1), _chosen_words(run), note)


def _chosen_words(run: Run) -> str:
    if run.kind == "run":
        return "mean of the seeds"
    return f"chosen: mean of {len(run.chosen)} seeds" if len(run.chosen) > 1 else f"chosen: trial {run.best}"


def _over_seeds(run: Run) -> pd.DataFrame:
    """The curve of a final run, or of a race's chosen configuration: the mean of its trials, each of which is one
    seed."""
    rounds = run.rounds[run.rounds["trial"].isin(run.chosen)]
    names = [c for c in rounds.columns if c not in ("trial", "round", "seed")]
    groups = rounds.groupby("round")[names]
    return (
        pd.concat([groups.mean(), groups.std().add_suffix(":std")], axis=1)
        .assign(seeds=rounds["seed"].nunique(), trial=MEAN)
        .reset_index()
    )


def plot(drawing: Drawing, labels: Labels) -> go.Figure:
    df = drawing.table
    figure = go.Figure()
    titles: list[str] = []
    opacity = faint(df["trial"].nunique())
    for panel, (metric, part) in enumerate(df.groupby("metric", sort=False), start=1):
        name = str(metric)
        part = part.assign(mean=part["mean"] * labels.scale(name), std=part["std"].fillna(0) * labels.scale(name))
        titles.append(labels.metric(name, split=True) + (" · selected on" if name in labels.selected else ""))
        for stopped in (False, True):
            lines = part[~part["best"] & (part["state"].isin(["PRUNED", "FAIL"]) == stopped)]
            figure.add_trace(_others(lines, panel, opacity, stopped=stopped))
        best = part[part["best"]].sort_values("round")
        if not best.empty:
            figure.add_traces(_chosen(best, panel, drawing.chosen))
        style.title_axes(figure, panel, "round", "", xaxis=style.rounds_axis(float(df["round"].max())))
    return style.panels(figure, titles, columns=drawing.columns, height=260, legend=3, left=48, note=drawing.note)


def _others(lines: pd.DataFrame, panel: int, opacity: float, *, stopped: bool) -> go.Scatter:
    """The faint lines of all trials but the chosen one: those that were stopped or failed, or the others."""
    words = "stopped or failed" if stopped else "completed or running"
    colour, dash = (style.MUTED, "dot") if stopped else (style.BLUE, "solid")
    return go.Scatter(
        **trial_lines(lines, "round", "mean"),
        mode="lines",
        name=words,
        legendgroup=words,
        showlegend=panel == 1 and not lines.empty,
        opacity=opacity,
        meta={"trial": "customdata"},
        line={"width": 1, "color": colour, "dash": dash},
        hovertemplate="trial %{customdata}, round %{x}: %{y:.2f}<extra></extra>",
        **style.axes(panel),
    )


def _chosen(best: pd.DataFrame, panel: int, name: str) -> list[go.Scatter]:
    """The chosen configuration's line and, where it has several seeds, the band around it."""
    rounds, mean, std = best["round"].tolist(), best["mean"].to_numpy(), best["std"].to_numpy()
    number = int(best["trial"].iloc[0])
    line = go.Scatter(
        x=rounds,
        y=mean,
        mode="lines+markers" if len(rounds) <= 30 else "lines",
        name=name,
        legendgroup="best",
        showlegend=panel == 1,
        line={"width": 3, "color": style.ORANGE},
        marker={"size": 6},
        customdata=std,
        meta={"trial": None if number == MEAN else number},
        hovertemplate=f"{name}, round %{{x}}: %{{y:.2f}} ± %{{customdata:.2f}}<extra></extra>",
        **style.axes(panel),
    )
    return [style.band(rounds, mean, std, style.faded(style.ORANGE, 0.18), panel), line] if std.any() else [line]


FIGURE = Figure(
    title="Learning curves",
    read=(
        "Every faint line is one trial, the mean of its seeds; a dotted one was stopped early or failed.",
        "The strong line is the chosen configuration, its band one standard deviation over seeds to either side.",
    ),
    needs=needs,
    data=data,
    plot=plot,
    order=20,
)
