"""What a method's generator paints, class by class and round by round, beside its moving average (DFRD Figs. 13-18)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
import plotly.graph_objects as go

from analysis import style
from analysis.figure import Figure
from analysis.figures._common import sample
from analysis.figures._sheets import bare, height_of, place, sheet
from analysis.labels import Labels
from analysis.runs import Run
from analysis.runs.images import KeptImages, of_run
from search_spaces.kept_images import SOURCES, is_plane

#: Rounds drawn at most.
LIMIT = 8
#: Bytes of one panel's images at most, before they are compressed: of large images fewer classes are drawn.
LARGEST = 700_000


@dataclass(frozen=True)
class Drawing:
    """What `plot` needs to know; `data` says what the columns of `table` are."""

    table: pd.DataFrame
    note: str


def _shown(run: Run) -> tuple[KeptImages, list[int]] | None:
    """A trial with images of a generator, and rounds with them."""
    found = of_run(run)
    if found is None:
        return None
    rounds = [r for r in sample(found.rounds[found.seed], LIMIT) if _sources(found, r)]
    return (found, rounds) if rounds else None


def _sources(found: KeptImages, round_: int) -> list[str]:
    arrays = found.at(found.seed, round_)
    return [source for source in SOURCES if source in arrays and not is_plane(arrays[source].shape[2:])]


def needs(runs: Sequence[Run]) -> str | None:
    if _shown(runs[0]) is not None:
        return None
    return "Images need a run of a method with a generator of images, with --keep-images; there are none."


def data(runs: Sequence[Run]) -> Drawing:
    """One row per generator, class, round and image: source (`generator` or `ema`), class, round, place (0, 1, …),
    image (uint8 `(ch, H, W)`; None where fewer were painted)."""
    shown = _shown(runs[0])
    assert shown is not None, "needs() was not asked"
    found, rounds = shown
    each, rows, classes, most = max(1, LIMIT // len(rounds)), [], 0, 0
    for round_ in rounds:
        arrays = found.at(found.seed, round_)
        for source in _sources(found, round_):
            counts, painted = arrays[f"{source}_count"], arrays[source]
            most = max(1, LARGEST // (len(rounds) * each * painted[0, 0].size))
            classes = len(painted)
            for label, images in enumerate(painted[:most]):
                for k, image in enumerate(images[:each]):
                    rows.append((source, label, round_, k, image if k < counts[label] else None))
    table = pd.DataFrame(rows, columns=["source", "class", "round", "place", "image"])
    note = f"Trial {found.trial}, seed {found.seed}; the noise is the same in every round."
    if table["image"].isna().any():
        note += " Where a place is empty, no image was taken for that class."
    if most < classes:
        note += f" The first {most} of {classes} classes are drawn."
    return Drawing(table, note)


def plot(drawing: Drawing, labels: Labels) -> go.Figure:
    figure, titles, heights = go.Figure(), [], []
    sources = [source for source in SOURCES if source in set(drawing.table["source"])]
    for panel, source in enumerate(sources, start=1):
        own = drawing.table[drawing.table["source"] == source]
        columns = sorted(set(zip(own["round"], own["place"], strict=True)))
        classes = sorted(set(own["class"]))
        held = {(c, r, k): i for c, r, k, i in own[["class", "round", "place", "image"]].itertuples(index=False)}
        made = sheet([[held.get((label, r, k)) for r, k in columns] for label in classes])
        ticks = [str(r) if k == 0 else "" for r, k in columns]
        place(figure, panel, made, "round", ticks, "class", [str(label) for label in classes])
        titles.append(SOURCES[source])
        heights.append(height_of(made, 420 if len(sources) > 1 else 560))
    return bare(style.panels(figure, titles, columns=2, height=max(heights), left=52, note=drawing.note))


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
