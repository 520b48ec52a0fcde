"""What an attack on uploads rebuilt of clients' images, method by method and data set by data set (FedMD-CG Fig. 4)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from numpy.typing import NDArray

from analysis import style
from analysis.figure import Figure
from analysis.figures._image_grid import ImageGrid, height_of, image_grid, place_grid, without_axes
from analysis.labels import Labels, class_title, text
from analysis.runs import Run, run_names
from analysis.runs.images import read_arrays
from search_spaces import run_folder

#: Images drawn at most of each data set; columns of methods.
IMAGES, METHODS = 3, 12
#: Bytes of an array that is read.
_LARGEST = 2**26
#: A column's width in pixels below which a page is scrolled.
_COLUMN = 62


@dataclass(frozen=True)
class Drawing:
    """What `plot` needs to know; `data` says what the columns of `table` are."""

    table: pd.DataFrame
    #: Names of the classes by data set; empty where they have none.
    classes: Mapping[str, Sequence[str]]
    note: str


@dataclass(frozen=True)
class _Found:
    """The arrays of one run's attack, and what was attacked."""

    run: Run
    name: str
    dataset: str
    original: NDArray[Any]
    recovered: NDArray[Any]
    psnr: NDArray[Any]
    label: NDArray[Any]
    classes: Sequence[str]


def _found(runs: Sequence[Run]) -> Iterator[_Found]:
    for name, run in zip(run_names(runs), runs, strict=True):
        arrays = read_arrays(run.path / run_folder.ATTACK, _LARGEST)
        try:
            one, other, psnr, label = (arrays[key] for key in ("original", "recovered", "psnr", "label"))
            trial = int(arrays["trial"])
        except (KeyError, TypeError):
            continue
        kinds = [array.dtype for array in (one, other, psnr, label)]
        if kinds != [np.uint8, np.uint8, np.float64, np.int64] or one.ndim != 4 or 0 in one.shape:
            continue
        if one.shape != other.shape or not psnr.shape == label.shape == one.shape[:1]:
            continue
        dataset = Path(str(run.config(trial).get("dataset") or run.value("dataset", "data"))).name
        yield _Found(run, name, dataset, one, other, psnr, label, run.names(trial)[0])


def needs(runs: Sequence[Run]) -> str | None:
    if next(_found(runs), None) is not None:
        return None
    return "Rebuilt images need an attack on the run, by `fedtune attack RUN`; there is none yet."


def data(runs: Sequence[Run]) -> Drawing:
    """One row per attacked image and run: dataset, image (0, 1, … within the data set: the same image of all runs),
    label, column (the method, or the run's name where methods are the same), original, recovered (uint8 `(ch, H, W)`),
    psnr (dB)."""
    every = list(_found(runs))
    titles = [one.run.method_title for one in every]
    pairs = [(one.dataset, title) for one, title in zip(every, titles, strict=True)]
    columns = titles if len(set(pairs)) == len(pairs) else [one.name for one in every]
    places: dict[str, dict[bytes, int]] = {}
    rows = []
    for one, column in zip(every, columns, strict=True):
        known = places.setdefault(one.dataset, {})
        for k in range(len(one.original)):
            index = known.setdefault(one.original[k].tobytes(), len(known))
            pictures = one.original[k], one.recovered[k]
            rows.append((one.dataset, index, int(one.label[k]), column, *pictures, float(one.psnr[k])))
    table = pd.DataFrame(rows, columns=["dataset", "image", "label", "column", "original", "recovered", "psnr"])
    table = table[table["column"].isin(list(dict.fromkeys(columns))[:METHODS])]
    chosen = {key for dataset, own in table.groupby("dataset", sort=False) for key in _chosen(str(dataset), own)}
    keys = list(zip(table["dataset"], table["image"], strict=True))
    shown = table[[key in chosen for key in keys]].reset_index(drop=True)
    return Drawing(shown, {one.dataset: one.classes for one in every}, _note(shown, len(set(keys) - chosen)))


def _chosen(dataset: str, own: pd.DataFrame) -> set[tuple[str, int]]:
    """The images that most methods were attacked on, and of each method at least one."""
    counts = own.groupby("image")["column"].nunique().sort_values(ascending=False, kind="stable")
    images = list(counts.index[:IMAGES])
    for _, column in own.groupby("column", sort=False):
        if not set(column["image"]) & set(images):
            images.append(column["image"].iloc[0])
    return {(dataset, image) for image in images}


def _note(shown: pd.DataFrame, left: int) -> str:
    note = "Under each rebuilt image stands its PSNR in dB."
    sets = [own for _, own in shown.groupby("dataset")]
    if any(own.groupby("image")["column"].nunique().min() < own["column"].nunique() for own in sets):
        note += " Where a place is empty, the method's clients hold other images: give runs one seed and one partition."
    return note + (f" {left} further image{'s are' if left > 1 else ' is'} not drawn." if left else "")


def plot(drawing: Drawing, labels: Labels) -> go.Figure:
    df, figure = drawing.table, go.Figure()
    columns, sets = list(dict.fromkeys(df["column"])), list(dict.fromkeys(df["dataset"]))
    heights: list[int] = []
    for panel, dataset in enumerate(sets, start=1):
        made = _panel(figure, panel, df[df["dataset"] == dataset], columns, drawing.classes[dataset])
        heights.append(height_of(made, min(860, 130 * (len(columns) + 1)), most=620))
    least = _COLUMN * (len(columns) + 1) + 90
    low = height_of(made, max(280, least - 90))
    titles = [text(dataset) for dataset in sets]
    style.panels(
        figure, titles, columns=1, height=max(heights), low=low, left=76, gap=70, note=drawing.note, least=least
    )
    return without_axes(figure)


def _panel(
    figure: go.Figure, panel: int, own: pd.DataFrame, columns: Sequence[str], classes: Sequence[str]
) -> ImageGrid:
    """The images of one data set: originals first, then a column of each method."""
    numbers = sorted(set(own["image"]))
    held = {(i, c): (r, p) for i, c, r, p in own[["image", "column", "recovered", "psnr"]].itertuples(index=False)}
    first = own.drop_duplicates("image").set_index("image")
    tiles = [[first.loc[i, "original"], *(held.get((i, c), (None, 0))[0] for c in columns)] for i in numbers]
    made = image_grid(tiles, below=0.3)
    heads = ["original", *map(text, columns)]
    place_grid(figure, panel, made, "", heads, "", [class_title(classes, int(first.loc[i, "label"])) for i in numbers])
    half = 0.57 * first.iloc[0]["original"].shape[1]
    under = [
        (x, y + half, f"{held[i, c][1]:.1f}")
        for i, y in zip(numbers, made.rows, strict=True)
        for c, x in zip(columns, made.columns[1:], strict=True)
        if (i, c) in held
    ]
    figure.add_trace(
        go.Scatter(
            x=[x for x, _, _ in under],
            y=[y for _, y, _ in under],
            text=[words for *_, words in under],
            mode="text",
            textposition="bottom center",
            textfont={"size": 12, "color": style.INK},
            hoverinfo="skip",
            showlegend=False,
            **style.axes(panel),
        )
    )
    return made


FIGURE = Figure(
    title="Images rebuilt from uploads",
    read=(
        "The first column is a client's image, the others are what an attacker rebuilt of it from what clients upload.",
        "A low PSNR (in dB) means that little could be rebuilt; runs of one seed are attacked on the same images.",
    ),
    needs=needs,
    data=data,
    plot=plot,
    order=88,
    across=True,
)
