"""How the training data is spread over clients: a bubble per client and class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from analysis import style
from analysis.figure import Figure
from analysis.labels import Labels
from analysis.runs import Run

#: Clients drawn at most.
LIMIT = 100


@dataclass(frozen=True)
class Drawing:
    """What `plot` needs to know; `data` says what the columns of `table` are."""

    table: pd.DataFrame
    clients: int
    classes: int
    note: str


def _trial(run: Run) -> int | None:
    """The chosen trial, or the first one that recorded its partition."""
    for number in ([] if run.best is None else [run.best]) + [t.number for t in run.frozen]:
        if run.partition(number):
            return number
    return None


def needs(runs: Sequence[Run]) -> str | None:
    return (
        "The partition plot needs a partition.json in a trial's folder; there is none."
        if _trial(runs[0]) is None
        else None
    )


def data(runs: Sequence[Run]) -> Drawing:
    """One row per client and class that it holds, of the chosen trial's first seed: client, class, samples."""
    run = runs[0]
    number = _trial(run)
    assert number is not None, "needs() was not asked"
    stored = run.partition(number)
    seed = min(stored)
    counts = stored[seed]
    clients, classes = np.nonzero(counts)
    table = pd.DataFrame({"client": clients, "class": classes, "samples": counts[clients, classes]})
    sizes = counts.sum(axis=1)
    each = f"{int(sizes.min())} to {int(sizes.max())} samples"
    note = f"Trial {number}, seed {seed}: {int(sizes.sum())} samples, {len(sizes)} clients of {each}."
    if len(counts) > LIMIT:
        table = table[table["client"] < LIMIT]
        note += f" The first {LIMIT} clients are drawn."
    return Drawing(table, min(LIMIT, len(counts)), counts.shape[1], note)


def plot(drawing: Drawing, labels: Labels) -> go.Figure:
    df, clients, classes = drawing.table, drawing.clients, drawing.classes
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
    return style.panels(figure, [""], columns=1, height=min(620, max(240, 32 * classes)), note=drawing.note)


FIGURE = Figure(
    title="Partition of the data",
    read=(
        "A bubble's area is the number of training samples of that class at that client.",
        "Even columns mean similar clients; a few large bubbles per column mean strong heterogeneity.",
    ),
    needs=needs,
    data=data,
    plot=plot,
    order=80,
)
