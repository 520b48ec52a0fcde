"""Decision boundaries on two-dimensional data: of the global model and of the local models together, over the data and
what a generator paints (DFRD Fig. 2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from numpy.typing import NDArray

from analysis import style
from analysis.figure import Figure
from analysis.figures._common import class_dots, sample
from analysis.labels import Labels
from analysis.runs import Run
from analysis.runs.images import KeptImages, images_of_run
from search_spaces.kept_images import SOURCES, is_plane, plane_values

#: Rounds drawn at most, and generated points of a class.
LIMIT, DOTS = 4, 32
_BOUNDARIES = {"plane": ("global model", style.INK, "solid"), "teacher": ("local models", style.MUTED, "dot")}
#: Marks of what is painted, by source.
_MARKS = {"generator": "x", "ema": "cross"}


@dataclass(frozen=True)
class Drawing:
    """What `plot` needs to know; `data` says what the columns of `table` are."""

    table: pd.DataFrame
    #: By round and model (`plane`, `teacher`): the predicted class `(SIDE, SIDE)`.
    planes: dict[tuple[int, str], NDArray[np.int64]]
    note: str


def _shown(run: Run) -> tuple[KeptImages, list[int]] | None:
    """A trial with planes, and rounds with them: the first, the last and some between."""
    found = images_of_run(run)
    if found is None or "data_points" not in found.at(found.seed, None):
        return None
    rounds = [r for r in sample(found.rounds[found.seed], LIMIT) if set(_BOUNDARIES) & set(found.at(found.seed, r))]
    return (found, rounds) if rounds else None


def needs(runs: Sequence[Run]) -> str | None:
    if _shown(runs[0]) is not None:
        return None
    return "Decision boundaries need a run on two-dimensional data (moons, blobs) with --set keep_images=true."


def data(runs: Sequence[Run]) -> Drawing:
    """One row per point and round: round, source (`data`, `generator`, `ema`), class, x, y (pixel values, 0 … 255)."""
    shown = _shown(runs[0])
    assert shown is not None, "needs() was not asked"
    found, rounds = shown
    taken, parts = found.at(found.seed, None), []
    planes: dict[tuple[int, str], NDArray[np.int64]] = {}
    for round_ in rounds:
        arrays = found.at(found.seed, round_)
        planes |= {(round_, name): arrays[name] for name in _BOUNDARIES if name in arrays}
        parts.append(_points(round_, "data", taken["data_labels"], taken["data_points"]))
        for source in SOURCES:
            if source in arrays and is_plane(arrays[source].shape[2:]):
                kept = np.minimum(arrays[f"{source}_count"], min(DOTS, arrays[source].shape[1]))
                for label, count in enumerate(kept):
                    points = arrays[source][label, :count, :, 0, 0]
                    parts.append(_points(round_, source, np.full(count, label), points))
    note = f"Trial {found.trial}, seed {found.seed}."
    return Drawing(pd.concat(parts, ignore_index=True), planes, note)


def _points(round_: int, source: str, labels: NDArray[np.int64], points: NDArray[np.int64]) -> pd.DataFrame:
    columns = {"round": round_, "source": source, "class": labels, "x": points[:, 0], "y": points[:, 1]}
    return pd.DataFrame(columns)


def plot(drawing: Drawing, labels: Labels) -> go.Figure:
    df, figure = drawing.table, go.Figure()
    rounds = sorted(set(df["round"]))
    for panel, round_ in enumerate(rounds, start=1):
        own = df[df["round"] == round_]
        for source in ("data", *SOURCES):
            figure.add_traces(_dots(source, own[own["source"] == source], panel))
        for model in _BOUNDARIES:
            if (round_, model) in drawing.planes:
                _line(figure, panel, model, drawing.planes[round_, model])
        end = {"range": [0, 255], "showgrid": False, "constrain": "domain"}
        n = "" if panel == 1 else str(panel)
        style.title_axes(figure, panel, "first value", "second value", xaxis=end, yaxis=end | {"scaleanchor": f"x{n}"})
    entries = sum(trace.showlegend is not False for trace in figure.data)
    titles = [f"round {round_}" for round_ in rounds]
    return style.panels(figure, titles, columns=2, height=400, legend=entries, note=drawing.note)


def _dots(source: str, own: pd.DataFrame, panel: int) -> list[go.Scatter]:
    """The points of one source, a colour for each class."""
    of_data = source == "data"
    marker = {"size": 4, "opacity": 0.45, "symbol": "circle"} if of_data else {"size": 8, "symbol": _MARKS[source]}
    before = "" if of_data else f"{SOURCES[source]}, "
    called = partial("{}class {}".format, before)
    return class_dots(own, panel, called, ": %{x}, %{y}", legend=panel == 1, **marker)


def _line(figure: go.Figure, panel: int, model: str, plane: NDArray[np.int64]) -> None:
    """The boundaries of one model: around each class but the first, where it begins to be predicted."""
    name, colour, dash = _BOUNDARIES[model]
    values = plane_values()
    for k, label in enumerate(sorted(set(plane.flatten().tolist()))[1:]):
        figure.add_trace(
            go.Contour(
                z=(plane == label).astype(np.int8),
                x=values,
                y=values,
                contours={"start": 0.5, "end": 0.5, "size": 1, "coloring": "none"},
                line={"color": colour, "width": 2, "dash": dash, "smoothing": 0.6},
                showscale=False,
                name=f"boundary of the {name}",
                legendgroup=model,
                showlegend=k == 0 and not any(trace.legendgroup == model for trace in figure.data),
                hoverinfo="skip",
                **style.axes(panel),
            )
        )


FIGURE = Figure(
    title="Decision boundaries",
    read=(
        "A dot is a training sample, coloured by its class; crosses are what a generator paints for that class.",
        "The solid line is where the global model's prediction changes, the dotted one where that of the round's local "
        "models together does: where the two lie apart there is something to teach.",
    ),
    needs=needs,
    data=data,
    plot=plot,
    order=82,
)
