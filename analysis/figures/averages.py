"""The mean image of every class: of the training data and of what generators paint (FedKF Figs. 2, 3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
import plotly.graph_objects as go

from analysis import style
from analysis.figure import Figure
from analysis.figures._image_grid import height_of, image_grid, place_grid, without_axes
from analysis.labels import Labels, class_name
from analysis.runs import Run
from analysis.runs.images import images_of_run
from search_spaces.kept_images import LEAST, SOURCES, is_plane

#: Classes in a row at most.
ROW = 13
_NAMES = {"data": "training data", **SOURCES}


@dataclass(frozen=True)
class Drawing:
    """What `plot` needs to know; `data` says what the columns of `table` are."""

    table: pd.DataFrame
    #: Names of the classes; empty where they have none.
    classes: Sequence[str]
    note: str


def needs(runs: Sequence[Run]) -> str | None:
    found = images_of_run(runs[0])
    if found is not None and _rows(runs[0])[0]:
        return None
    return "Mean images need a run with --set keep_images=true of a method with a generator of images; there are none."


def _rows(run: Run) -> tuple[list[tuple[object, ...]], int, int, int]:
    """The table's rows of the last round that has generated images, and its trial, seed and round."""
    found = images_of_run(run)
    assert found is not None
    data = found.at(found.seed, None)
    for round_ in reversed(found.rounds[found.seed]):
        arrays = {**data, **found.at(found.seed, round_)}
        painted = [arrays[f"{source}_mean"].shape[1:] for source in SOURCES if f"{source}_mean" in arrays]
        if painted and not is_plane(painted[0]):
            rows: list[tuple[object, ...]] = []
            for source in _NAMES:
                least = LEAST if source == "data" else 1
                counts = arrays.get(f"{source}_count", ())
                for label, (image, count) in enumerate(zip(arrays.get(f"{source}_mean", ()), counts, strict=True)):
                    rows.append((source, label, int(count), image if count >= least else None))
            return rows, found.trial, found.seed, round_
    return [], 0, 0, 0


def data(runs: Sequence[Run]) -> Drawing:
    """One row per source and class: source (`data`, `generator`, `ema`), class, images (how many the mean is of), mean
    (uint8 `(ch, H, W)`; None where there are too few)."""
    rows, trial, seed, round_ = _rows(runs[0])
    table = pd.DataFrame(rows, columns=["source", "class", "images", "mean"])
    note = f"Trial {trial}, seed {seed}, after round {round_}."
    if table["mean"].isna().any():
        note += f" A place is empty where nothing was taken for the class, or fewer than {LEAST} images train it."
    return Drawing(table, runs[0].names(trial)[0], note)


def plot(drawing: Drawing, labels: Labels) -> go.Figure:
    df, figure = drawing.table, go.Figure()
    sources, classes = [s for s in _NAMES if s in set(df["source"])], sorted(set(df["class"]))
    held = {(s, c): m for s, c, m in df[["source", "class", "mean"]].itertuples(index=False)}
    parts = [classes[i : i + ROW] for i in range(0, len(classes), ROW)]
    for panel, part in enumerate(parts, start=1):
        made = image_grid([[held.get((source, label)) for label in part] for source in sources])
        place_grid(
            figure,
            panel,
            made,
            "class",
            [class_name(drawing.classes, c) for c in part],
            "",
            [_NAMES[s] for s in sources],
        )
    high, low = height_of(made, 860, most=340), height_of(made, 240)
    return without_axes(
        style.panels(figure, [""] * len(parts), columns=1, height=high, low=low, left=110, note=drawing.note)
    )


FIGURE = Figure(
    title="Mean image of every class",
    read=(
        "A column is a class: the mean of its training images, and the mean of what a generator has painted of it.",
        "A generator without labels is sorted by the class that the global model takes an image for.",
    ),
    needs=needs,
    data=data,
    plot=plot,
    order=86,
)
