"""What the final global model takes the samples of each class for: a confusion matrix for each part of the data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from analysis import style
from analysis.figure import Figure
from analysis.labels import Labels, cut, text
from analysis.runs import Run

#: So many classes have a name each at the axes, and a number in each cell; beside the rows names have `NAME` letters.
NAMED, NUMBERED, NAME = 24, 12, 12
#: The two parts of the data: the one that decides nothing first.
PARTS = ("test", "validation")


@dataclass(frozen=True)
class Drawing:
    """What `plot` needs to know; `data` says what the columns of `table` are."""

    table: pd.DataFrame
    #: The classes' names, numbers where they have none.
    classes: Sequence[str]
    note: str


def needs(runs: Sequence[Run]) -> str | None:
    if _counts(runs[0]):
        return None
    return "A confusion matrix needs a completed final run (`fedtune run`) of a method with a global model."


def _counts(run: Run) -> dict[str, np.ndarray]:
    """By part of the data, samples of class i that are taken for class j, summed over the seeds of the chosen
    trials."""
    found: dict[str, list[np.ndarray]] = {}
    for number in run.chosen:
        for parts in run.confusion(number).values():
            for part, counts in parts.items():
                found.setdefault(part, []).append(counts)
    same = {part: [one for one in several if one.shape == several[0].shape] for part, several in found.items()}
    return {part: np.sum(same[part], axis=0) for part in PARTS if part in same}


def data(runs: Sequence[Run]) -> Drawing:
    """One row per part of the data and pair of classes: part, of (the class of the samples, 0, 1, …), taken_for,
    samples, share (of the samples of their class; nan where there are none)."""
    run = runs[0]
    counts = _counts(run)
    tables = []
    for part, matrix in counts.items():
        total = matrix.sum(axis=1, keepdims=True)
        share = np.divide(matrix, total, out=np.full(matrix.shape, np.nan), where=total > 0)
        of, taken = (axis.ravel() for axis in np.indices(matrix.shape))
        columns = {"part": part, "of": of, "taken_for": taken, "samples": matrix.ravel(), "share": share.ravel()}
        tables.append(pd.DataFrame(columns))
    table = pd.concat(tables, ignore_index=True)
    classes = int(table["of"].max()) + 1
    known = run.names(run.chosen[0])[0]
    names = known if len(known) == classes else [str(place) for place in range(classes)]
    return Drawing(table, names, _note(run, table, names))


def _note(run: Run, table: pd.DataFrame, names: Sequence[str]) -> str:
    """Of which models it is, and what the first part's most frequent confusion is."""
    seeds = len({seed for number in run.chosen for seed in run.confusion(number)})
    models = f"The samples of {seeds} seeds, each with its own model, are added up." if seeds > 1 else ""
    part = str(table["part"].iloc[0])
    wrong = table[(table["part"] == part) & (table["of"] != table["taken_for"]) & (table["samples"] > 0)]
    if wrong.empty:
        return f"{models} No {part} sample is taken for another class.".strip()
    worst = wrong.sort_values("share", ascending=False, kind="stable").to_dict("records")[0]
    one, other = names[worst["of"]], names[worst["taken_for"]]
    return (
        f"{models} Most often {one} is taken for {other}: {100 * worst['share']:.0f} % of its {part} samples.".strip()
    )


def plot(drawing: Drawing, labels: Labels) -> go.Figure:
    figure = go.Figure()
    titles = []
    count = len(drawing.classes)
    names = [text(name) for name in drawing.classes]
    for panel, (part, own) in enumerate(drawing.table.groupby("part", sort=False), start=1):
        titles.append(f"Global model, {part} [%]")
        share = 100 * own["share"].to_numpy().reshape(count, count)
        samples = own["samples"].to_numpy().reshape(count, count)
        style.colour_axis(figure, panel, 0.0, 100.0)
        figure.add_trace(_cells(share, samples, names, panel))
        if count <= NUMBERED:
            figure.add_trace(_numbers(share, panel))
        axis = {"showgrid": False, "range": [-0.5, count - 0.5], "ticks": "", "showline": False}
        # The first class stands on top, as in a table.
        upwards = axis | {"range": [count - 0.5, -0.5]} | _ticks(drawing.classes)
        style.title_axes(
            figure,
            panel,
            "taken for",
            "class",
            xaxis=axis | _ticks(drawing.classes) | {"autotickangles": [0, 90]},
            yaxis=upwards,
        )
    height = int(np.clip(30 * count, 260, 520))
    # Below the columns names stand upright where they do not fit side by side.
    longest = 0 if count > NAMED else min(NAME, max(map(len, drawing.classes)))
    room = {"gap": 84 + 6 * longest, "below": 56 + 6 * longest}
    return style.panels(
        figure, titles, columns=2, height=height, low=height, bars=True, left=96, note=drawing.note, **room
    )


def _cells(share: np.ndarray, samples: np.ndarray, names: Sequence[str], panel: int) -> go.Heatmap:
    hover = "class %{y} taken for %{x}"
    told: list[list[str]] | None = None
    if len(names) <= NAMED:
        told, hover = [[f"{one} taken for {other}" for other in names] for one in names], "%{text}"
    return go.Heatmap(
        z=share,
        x=list(range(len(names))),
        y=list(range(len(names))),
        coloraxis=f"coloraxis{'' if panel == 1 else panel}",
        xgap=1,
        ygap=1,
        text=told,
        customdata=samples,
        hovertemplate=f"{hover}: %{{customdata}} samples, %{{z:.1f}} % of the class<extra></extra>",
        hoverongaps=False,
        **style.axes(panel),
    )


def _numbers(share: np.ndarray, panel: int) -> go.Scatter:
    """Per cent in the cells, as far as they are not nought: what is on the diagonal and what is confused stand out."""
    rows, columns = np.nonzero(np.nan_to_num(share) >= 0.5)
    values = share[rows, columns]
    return go.Scatter(
        x=columns.tolist(),
        y=rows.tolist(),
        mode="text",
        text=[f"{value:.0f}" for value in values],
        textfont={"size": 11, "color": style.readable(values, 0.0, 100.0)},
        hoverinfo="skip",
        showlegend=False,
        **style.axes(panel),
    )


def _ticks(classes: Sequence[str]) -> dict[str, object]:
    """Every class by its name where they are few, else some by their numbers."""
    count = len(classes)
    if count > NAMED:
        return {"tickmode": "auto", "nticks": 8}
    names = [cut(name, NAME) for name in classes]
    return {"tickmode": "array", "tickvals": list(range(count)), "ticktext": names}


FIGURE = Figure(
    title="Confusion of classes",
    read=(
        "A row is a class, and a cell the share of its samples that the global model of the last round takes for the "
        "class of the column.",
        "The diagonal is what is right; a bright cell beside it is a pair of classes that the model confuses.",
    ),
    needs=needs,
    data=data,
    plot=plot,
    order=75,
)
