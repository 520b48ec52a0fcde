"""Which searched parameters matter: Optuna's PED-ANOVA, with the spread over resampled trials."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from analysis import style
from analysis.figure import Figure
from analysis.labels import Labels
from analysis.runs import Run
from analysis.runs.importance import importances

#: Fewer completed trials than this say nothing about importance.
MINIMUM = 8
RESAMPLES = 20
#: Letters of a parameter's name that leave room for its bar on a narrow screen.
LETTERS = 24
#: Below so many completed trials for each parameter a note says that the order is not settled. In made-up searches with
#: one hill among 4 or 16 parameters and noise of half its spread, the parameter with the hill came first in 48 and 80 %
#: of 40 searches at 5 trials for each parameter, in 88 and 98 % at 8.
ENOUGH = 8


def needs(runs: Sequence[Run]) -> str | None:
    run = runs[0]
    if len(run.keys) < 2:
        return "Importance compares parameters; this run searched " + (f"only {run.keys[0]}." if run.keys else "none.")
    done = int(((run.trials["state"] == "COMPLETE") & run.trials["value"].notna()).sum())
    if done < MINIMUM:
        return f"Importance needs {MINIMUM} completed trials, there {'is' if done == 1 else 'are'} {done}."
    if run.trials.loc[run.trials["state"] == "COMPLETE", "value"].nunique() < 2:
        return "Importance needs trials that differ in their result; all completed trials ended at the same value."
    return None


def data(runs: Sequence[Run]) -> pd.DataFrame:
    """One row per objective and parameter: metric, key, importance (0 to 1), low and high (5 and 95 % of resamples),
    trials (how many were completed)."""
    run = runs[0]
    done = [t for t in run.frozen if t.state.name == "COMPLETE"]
    rng = np.random.default_rng(0)
    rows = []
    for i, metric in enumerate(run.metrics):
        point = run.importances[i]
        draws = [
            importances(run.directions, [done[j] for j in rng.integers(0, len(done), len(done))], i)
            for _ in range(RESAMPLES if len(done) <= 2000 else 3)
        ]
        for key in run.keys:
            drawn = [d[key] for d in draws if key in d]
            low, high = np.quantile(drawn, [0.05, 0.95]) if drawn else (np.nan, np.nan)
            share = {"importance": point.get(key, np.nan), "low": low, "high": high}
            rows.append({"metric": metric, "key": key, **share, "trials": len(done)})
    return pd.DataFrame(rows).sort_values(["metric", "importance"], ignore_index=True)


def plot(df: pd.DataFrame, labels: Labels) -> go.Figure:
    figure = go.Figure()
    metrics = list(dict.fromkeys(df["metric"]))
    order = df[df["metric"] == metrics[0]].sort_values("importance")["key"].tolist()
    shares = df.pivot(index="key", columns="metric", values="importance")
    said = {k: " / ".join(f"{100 * shares.loc[k, m]:.0f} %" for m in metrics) for k in order}
    names = [f"{labels.heading(k, LETTERS)}  <b>{said[k]}</b> " for k in order]
    for i, metric in enumerate(metrics):
        part = df[df["metric"] == metric].set_index("key").reindex(order)
        value = 100 * part["importance"]
        figure.add_trace(
            go.Bar(
                x=value,
                y=names,
                orientation="h",
                name=labels.metric(metric, split=True, unit=False),
                marker={"color": style.CYCLE[i % len(style.CYCLE)]},
                error_x={
                    "type": "data",
                    "symmetric": False,
                    "array": (100 * part["high"] - value).clip(lower=0),
                    "arrayminus": (value - 100 * part["low"]).clip(lower=0),
                    "color": style.INK,
                    "thickness": 1.2,
                    "width": 5,
                },
                hovertemplate="%{y}<extra></extra>",
            )
        )
    figure.update_layout(barmode="group", bargap=0.35)
    style.title_axes(
        figure,
        1,
        "importance [%]",
        "",
        xaxis={"rangemode": "tozero"},
        yaxis={"showgrid": False, "ticks": ""},
    )
    return style.panels(
        figure,
        [""],
        columns=1,
        height=max(120, 46 * len(order) * len(metrics) + 30),
        legend=len(metrics) if len(metrics) > 1 else 0,
        left=150,
        note=_note(df, labels),
    )


def _note(df: pd.DataFrame, labels: Labels) -> str:
    """Which metric it is about, and a warning where trials are too few for so many parameters."""
    metrics, trials, parameters = df["metric"].unique(), int(df["trials"].iloc[0]), df["key"].nunique()
    said = f"What is explained is {labels.metric(metrics[0], split=True, unit=False)}." if len(metrics) == 1 else ""
    if trials >= ENOUGH * parameters:
        return said
    return (
        f"{said} {trials} completed trials are few for {parameters} parameters: below about {ENOUGH} for each, another "
        f"one may well come first."
    ).strip()


FIGURE = Figure(
    title="Parameter importance",
    read=(
        "A bar is the share of the difference between the best tenth of trials and the rest that a parameter explains "
        "(PED-ANOVA); "
        "bars of one colour add up to 100 %.",
        "The whisker spans nine tenths of what resampling the trials gives: where whiskers overlap, the order is not "
        "settled.",
    ),
    needs=needs,
    data=data,
    plot=plot,
    order=40,
)
