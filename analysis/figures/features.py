"""Generated features among those of test images, on the plane of the latter's first two principal components (FedMD-CG
Fig. 2): a panel per trial."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from numpy.typing import NDArray

from analysis import style
from analysis.figure import Figure
from analysis.figures._common import class_dots
from analysis.labels import Labels, class_title, text
from analysis.runs import Run, run_names
from analysis.runs.images import Arrays, images_of_trial
from search_spaces.kept_images import FEATURES, FIXED

#: Panels drawn at most, generated points of a class, and classes: as many as there are colours.
LIMIT, DOTS, CLASSES = 6, 24, len(style.CYCLE)
#: Sources: what they are called, the mark, its size and its opacity.
_MARKS = {"seen": ("test image", "circle", 4, 0.35), "made": ("generator", "x", 7, 1.0)}

COLUMNS = ["panel", "source", "class", "x", "y"]


@dataclass(frozen=True)
class FeaturesPanel:
    """One trial after one round: of which run, what it searched, the shares of variance of the two axes, and what was
    kept."""

    run: str
    trial: int
    params: Mapping[str, object]
    round: int
    arrays: Arrays
    #: Names of the classes; empty where they have none.
    classes: Sequence[str] = ()

    @property
    def shares(self) -> tuple[float, float]:
        first, second = self.arrays[f"{FEATURES}_share"] / FIXED
        return float(first), float(second)


@dataclass(frozen=True)
class Drawing:
    """What `plot` needs to know; `data` says what the columns of `table` are."""

    table: pd.DataFrame
    panels: Sequence[FeaturesPanel]
    note: str


def _panels(runs: Sequence[Run]) -> Iterator[FeaturesPanel]:
    """Trials with features, each after the last round that has them."""
    for name, run in zip(run_names(runs), runs, strict=True):
        for trial in run.frozen:
            found = images_of_trial(run, trial.number)
            for round_ in reversed(found.rounds[found.seed] if found.rounds else ()):
                arrays = found.at(found.seed, round_)
                if FEATURES in arrays:
                    yield FeaturesPanel(name, trial.number, trial.params, round_, arrays, run.names(trial.number)[0])
                    break


def needs(runs: Sequence[Run]) -> str | None:
    if next(_panels(runs), None) is not None:
        return None
    return "Features need a run with --set keep_images=true of a method with features: fedmdcg, fedcg or fedgen."


def data(runs: Sequence[Run]) -> Drawing:
    """One row per point: panel (0, 1, …), source (`seen`: a test image, `made`: generated), class, x, y (along the
    first and the second principal component, in the units of features)."""
    every = list(_panels(runs))
    panels, parts = every[:LIMIT], []
    for index, panel in enumerate(panels):
        made = panel.arrays[FEATURES][:, :DOTS]
        labels = np.repeat(np.arange(len(made)), made.shape[1])
        parts.append(_points(index, "seen", panel.arrays[f"{FEATURES}_labels"], panel.arrays[f"{FEATURES}_seen"]))
        parts.append(_points(index, "made", labels, made.reshape(-1, 2)))
    return Drawing(pd.concat(parts, ignore_index=True), panels, _note(every))


def _points(panel: int, source: str, labels: NDArray[np.int64], points: NDArray[np.int64]) -> pd.DataFrame:
    shown = labels < CLASSES
    x, y = (points[shown] / FIXED).T
    return pd.DataFrame({"panel": panel, "source": source, "class": labels[shown], "x": x, "y": y}, columns=COLUMNS)


def _note(every: Sequence[FeaturesPanel]) -> str:
    rounds = {panel.round for panel in every}
    note = f"After round {min(rounds)}." if len(rounds) == 1 else "After the last round of each trial."
    if any(len(panel.arrays[FEATURES]) > CLASSES for panel in every):
        note += f" The first {CLASSES} classes are drawn."
    return f"{note} Of {len(every)} trials the first {LIMIT} are drawn." if len(every) > LIMIT else note


def plot(drawing: Drawing, labels: Labels) -> go.Figure:
    df, figure = drawing.table, go.Figure()
    for index, panel in enumerate(drawing.panels):
        own = df[df["panel"] == index]
        called = partial(class_title, panel.classes)
        for source, (name, symbol, size, opacity) in _MARKS.items():
            points, told = own[own["source"] == source], f", {name}: %{{x:.2f}}, %{{y:.2f}}"
            look = {"size": size, "symbol": symbol, "opacity": opacity}
            # The legend names a class once.
            legend = index == 0 and source == "made"
            figure.add_traces(class_dots(points, index + 1, called, told, legend=legend, **look))
        first, second = (f"{100 * share:.0f} % of the variance" for share in panel.shares)
        style.title_axes(figure, index + 1, f"first component, {first}", f"second, {second}")
    entries = sum(trace.showlegend is not False for trace in figure.data)
    columns = min(2, len(drawing.panels))
    return style.panels(
        figure, _titles(drawing.panels, labels), columns=columns, height=340, legend=entries, note=drawing.note
    )


def _titles(panels: Sequence[FeaturesPanel], labels: Labels) -> list[str]:
    """What panels are called by: the run where there are several, and the parameters in which they differ."""
    several = len({panel.run for panel in panels}) > 1
    keys = [key for key in panels[0].params if len({str(panel.params.get(key)) for panel in panels}) > 1]
    titles = []
    for panel in panels:
        parts = [text(panel.run)] if several else []
        parts += [labels.setting(key, panel.params.get(key)) for key in keys]
        titles.append(", ".join(parts) or f"trial {panel.trial}")
    return titles


FIGURE = Figure(
    title="Generated features",
    read=(
        "A dot is what the extractor gives for a test image, a cross what the generator of features gives for the "
        "class of that colour, on the first two principal components of the dots.",
        "A generator is good where crosses lie among dots of their colour and are as spread out as these: crosses on "
        "one spot have no diversity.",
    ),
    needs=needs,
    data=data,
    plot=plot,
    order=83,
    across=True,
)
