"""What a method's generator paints, class by class and round by round, beside its moving average and original images
(DFRD Figs. 13-18)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from numpy.typing import NDArray

from analysis import style
from analysis.figure import Figure
from analysis.figures._common import sample
from analysis.figures._image_grid import height_of, image_grid, place_grid, without_axes
from analysis.labels import Labels, class_name
from analysis.runs import Run
from analysis.runs.images import Arrays, KeptImages, images_of_run
from search_spaces.kept_images import SOURCES, is_plane

#: Rounds drawn at most.
LIMIT = 8
#: Bytes of one panel's images at most, before they are compressed: of large images fewer classes are drawn.
LARGEST = 700_000
_NAMES = {"data": "original", **SOURCES}
#: A panel's width in pixels, by how many stand side by side.
_WIDTHS = {1: 560, 2: 420, 3: 270}


@dataclass(frozen=True)
class Drawing:
    """What `plot` needs to know; `data` says what the columns of `table` are."""

    table: pd.DataFrame
    #: Names of the classes; empty where they have none.
    classes: Sequence[str]
    note: str


def _shown(run: Run) -> tuple[KeptImages, list[int]] | None:
    """A trial with images of a generator, and rounds with them."""
    found = images_of_run(run)
    if found is None:
        return None
    rounds = [r for r in sample(found.rounds[found.seed], LIMIT) if _sources(found, r)]
    return (found, rounds) if rounds else None


def _sources(found: KeptImages, round_: int) -> list[str]:
    arrays = found.at(found.seed, round_)
    return [source for source in SOURCES if _is_pictured(arrays, source)]


def _is_pictured(arrays: Arrays, source: str) -> bool:
    return source in arrays and not is_plane(arrays[source].shape[2:])


def needs(runs: Sequence[Run]) -> str | None:
    if _shown(runs[0]) is not None:
        return None
    return "Images need a run with --set keep_images=true of a method with a generator of images; there are none."


def data(runs: Sequence[Run]) -> Drawing:
    """One row per source, class, round and image: source (`data` for test images, `generator` or `ema`), class, round
    (0 for the data), place (0, 1, …), image (uint8 `(ch, H, W)`; None where fewer were painted)."""
    shown = _shown(runs[0])
    assert shown is not None, "needs() was not asked"
    found, rounds = shown
    each, rows, classes, most = max(1, LIMIT // len(rounds)), [], 0, 0
    across = len(rounds) * each
    for round_ in rounds:
        arrays = found.at(found.seed, round_)
        for source in _sources(found, round_):
            counts, painted = arrays[f"{source}_count"], arrays[source]
            most = max(1, LARGEST // (across * painted[0, 0].size))
            classes = len(painted)
            for label, images in enumerate(painted[:most]):
                for k, image in enumerate(images[:each]):
                    rows.append((source, label, round_, k, image if k < counts[label] else None))
    originals = _originals(found)[:most, :across]
    rows += [("data", label, 0, k, image) for label, own in enumerate(originals) for k, image in enumerate(own)]
    table = pd.DataFrame(rows, columns=["source", "class", "round", "place", "image"])
    note = f"Trial {found.trial}, seed {found.seed}; the noise is the same in every round."
    if len(originals):
        note += " Originals are the first test images of each class."
    if table["image"].isna().any():
        note += " Where a place is empty, no image was taken for that class."
    if most < classes:
        note += f" The first {most} of {classes} classes are drawn."
    return Drawing(table, runs[0].names(found.trial)[0], note)


def _originals(found: KeptImages) -> NDArray[Any]:
    """Test images by class `(K, n, ch, H, W)`; none in a run that has kept none."""
    arrays = found.at(found.seed, None)
    return arrays["data"] if _is_pictured(arrays, "data") else np.empty((0, 0), dtype=np.uint8)


def plot(drawing: Drawing, labels: Labels) -> go.Figure:
    figure, titles, heights = go.Figure(), [], []
    sources = [source for source in _NAMES if source in set(drawing.table["source"])]
    for panel, source in enumerate(sources, start=1):
        own = drawing.table[drawing.table["source"] == source]
        columns = sorted(set(zip(own["round"], own["place"], strict=True)))
        classes = sorted(set(own["class"]))
        held = {(c, r, k): i for c, r, k, i in own[["class", "round", "place", "image"]].itertuples(index=False)}
        made = image_grid([[held.get((label, r, k)) for r, k in columns] for label in classes])
        of_data = source == "data"
        ticks = ["" if of_data or k else str(r) for r, k in columns]
        title = "test images" if of_data else "round"
        place_grid(figure, panel, made, title, ticks, "class", [class_name(drawing.classes, c) for c in classes])
        titles.append(_NAMES[source])
        heights.append(height_of(made, _WIDTHS[len(sources)]))
    return without_axes(
        style.panels(figure, titles, columns=len(sources), height=max(heights), left=52, note=drawing.note)
    )


FIGURE = Figure(
    title="Images of the generator",
    read=(
        "A row is a class, a column a round: what the generator paints of that class from the same noise.",
        "Models are fed these images, so they show what is taught without data; they need not look like the data.",
    ),
    needs=needs,
    data=data,
    plot=plot,
    order=84,
)
