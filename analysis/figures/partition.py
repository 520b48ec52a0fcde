"""How the training data is spread over clients: a bubble per client and class."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from analysis import style
from analysis.figure import Figure
from analysis.labels import Labels
from analysis.runs import Run

LIMIT = 100

FIGURE = Figure(
    "Partition of the data",
    (
        "A bubble's area is the number of training samples of that class at that client.",
        "Even columns mean similar clients; a few large bubbles per column mean strong heterogeneity.",
    ),
    order=80,
)


def _trial(run: Run) -> int | None:
    """The chosen trial, or the first one that recorded its partition."""
    for number in ([] if run.best is None else [run.best]) + [t.number for t in run.frozen]:
        if run.partition(number):
            return number
    return None


def needs(runs: Sequence[Run]) -> str | None:
    return "The partition plot needs a partition.json in a trial's folder; there is none." if _trial(runs[0]) is None else None


def data(runs: Sequence[Run]) -> pd.DataFrame:
    """One row per client and class that holds samples: client, class, samples; of the chosen trial's first seed. attrs: note, seed."""
    run = runs[0]
    number = _trial(run)
    assert number is not None, "needs() was not asked"
    stored = run.partition(number)
    seed = min(stored)
    table = stored[seed]
    clients, classes = np.nonzero(table)
    frame = pd.DataFrame({"client": clients, "class": classes, "samples": table[clients, classes]})
    sizes = table.sum(axis=1)
    note = f"Trial {number}, seed {seed}: {int(sizes.sum())} samples, {len(sizes)} clients of {int(sizes.min())} to {int(sizes.max())} samples."
    if table.shape[0] > LIMIT:
        frame = frame[frame["client"] < LIMIT]
        note += f" The first {LIMIT} clients are drawn."
    frame.attrs = {"note": note, "clients": min(LIMIT, table.shape[0]), "classes": table.shape[1]}
    return frame


def plot(df: pd.DataFrame, labels: Labels) -> go.Figure:
    clients, classes = df.attrs["clients"], df.attrs["classes"]
    largest = float(df["samples"].max()) if len(df) else 1.0
    figure = go.Figure(
        go.Scatter(
            x=df["client"],
            y=df["class"],
            mode="markers",
            customdata=df["samples"],
            marker={
                "size": df["samples"],
                "sizemode": "area",
                "sizeref": 2 * largest / (30.0 if clients <= 30 else 16.0) ** 2,
                "sizemin": 1.5,
                "color": style.BLUE,
                "opacity": 0.8,
                "line": {"width": 0},
            },
            hovertemplate="client %{x}, class %{y}: %{customdata} samples<extra></extra>",
        )
    )
    style.title_axes(
        figure,
        1,
        "client",
        "class",
        xaxis={"range": [-0.7, clients - 0.3], "zeroline": False, "dtick": 1 if clients <= 20 else None},
        yaxis={"range": [-0.8, classes - 0.2], "zeroline": False, "dtick": 1 if classes <= 26 else None},
    )
    return style.panels(figure, [""], columns=1, height=min(620, max(240, 32 * classes)), note=df.attrs["note"])
