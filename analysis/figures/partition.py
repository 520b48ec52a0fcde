"""How the training data is spread over clients: a bubble per client and class, a panel for each partition (DFRD Figs.
6, 7)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from analysis import style
from analysis.figure import Figure
from analysis.labels import Labels, cut, number, text
from analysis.runs import Run, run_names

#: Clients drawn at most, and panels.
LIMIT, PANELS = 100, 12
#: Letters of a name beside an axis at most.
NAME = 14
#: What a partition follows from: panels are called by those in which they differ.
KEYS = ("dataset", "partition", "omega", "classes_per_client", "clients", "validation_fraction")


@dataclass(frozen=True)
class PartitionPanel:
    """One partition: of which run and trial, how many clients and classes, and its settings of `KEYS`."""

    run: str
    trial: int
    seed: int
    counts: np.ndarray
    settings: dict[str, object]
    #: Names of the classes and of the clients; empty where they have none.
    classes: Sequence[str] = ()
    clients: Sequence[str] = ()


@dataclass(frozen=True)
class Drawing:
    """What `plot` needs to know; `data` says what the columns of `table` are."""

    table: pd.DataFrame
    panels: Sequence[PartitionPanel]
    note: str


def _trial(run: Run) -> int | None:
    """The chosen trial, or the first one that recorded its partition."""
    for trial in ([] if run.best is None else [run.best]) + [t.number for t in run.frozen]:
        if run.partition(trial):
            return trial
    return None


def _panels(runs: Sequence[Run]) -> Iterator[PartitionPanel]:
    """The partition of every run under each of its conditions; the same one once."""
    seen: list[np.ndarray] = []
    for name, run in zip(run_names(runs), runs, strict=True):
        for part in [run.within(condition) for condition in run.conditions] if run.crossed else [run]:
            number = _trial(part)
            if number is None:
                continue
            stored, config = part.partition(number), part.config(number)
            counts = stored[min(stored)]
            if not any(np.array_equal(counts, other) for other in seen):
                seen.append(counts)
                settings = {key: config[key] for key in KEYS if key in config}
                yield PartitionPanel(name, number, min(stored), counts, settings, *part.names(number))


def needs(runs: Sequence[Run]) -> str | None:
    if next(_panels(runs), None) is not None:
        return None
    return "The partition plot needs a partition.json in a trial's folder; there is none."


def data(runs: Sequence[Run]) -> Drawing:
    """One row per panel, client and class that it holds, of the chosen trial's first seed: panel (0, 1, …), client,
    class, samples."""
    every = list(_panels(runs))
    panels, tables = every[:PANELS], []
    for index, panel in enumerate(panels):
        clients, classes = np.nonzero(panel.counts[:LIMIT])
        samples = panel.counts[clients, classes]
        tables.append(pd.DataFrame({"panel": index, "client": clients, "class": classes, "samples": samples}))
    return Drawing(pd.concat(tables, ignore_index=True), panels, _note(every))


def _note(every: Sequence[PartitionPanel]) -> str:
    first = every[0]
    if len(every) == 1:
        sizes = first.counts.sum(axis=1)
        each = f"{int(sizes.min())} to {int(sizes.max())} samples"
        note = f"Trial {first.trial}, seed {first.seed}: {int(sizes.sum())} samples, {len(sizes)} clients of {each}."
    else:
        note = "Areas are on one scale in all panels."
    if any(len(panel.counts) > LIMIT for panel in every):
        note += f" The first {LIMIT} clients are drawn."
    if len(every) > PANELS:
        note += f" Of {len(every)} partitions the first {PANELS} are drawn."
    return note


def plot(drawing: Drawing, labels: Labels) -> go.Figure:
    df, panels = drawing.table, drawing.panels
    largest = float(df["samples"].max()) if len(df) else 1.0
    figure = go.Figure()
    most = min(LIMIT, max(len(panel.counts) for panel in panels))
    bubble = (30.0 if most <= 30 else 16.0) / (1.0 if len(panels) == 1 else 1.6)
    for index, panel in enumerate(panels):
        own = df[df["panel"] == index]
        clients, classes = min(LIMIT, len(panel.counts)), panel.counts.shape[1]
        figure.add_trace(_bubbles(own, 2 * largest / bubble**2, index + 1, panel))
        few = 20 if len(panels) == 1 else 12
        style.title_axes(
            figure,
            index + 1,
            "client",
            "class",
            xaxis={"range": [-0.7, clients - 0.3], "zeroline": False} | _ticks(clients, few, panel.clients),
            yaxis={"range": [-0.8, classes - 0.2], "zeroline": False} | _ticks(classes, few + 6, panel.classes),
        )
    titles = _titles(panels, labels)
    deepest = max(panel.counts.shape[1] for panel in panels)
    height = min(620, max(240, 32 * deepest)) if len(panels) == 1 else min(420, max(200, 24 * deepest))
    return style.panels(figure, titles, columns=3, height=height, note=drawing.note)


def _ticks(count: int, few: int, names: Sequence[str]) -> dict[str, object]:
    """Every one of a `few` is told by its name, or its number where that is all there is to tell; of more, some
    numbers."""
    if count > few or len(names) < count or list(names) == [str(place) for place in range(len(names))]:
        return {"dtick": 1 if count <= few else None}
    told = [cut(name, NAME) for name in names[:count]]
    return {"tickmode": "array", "tickvals": list(range(count)), "ticktext": told}


def _bubbles(own: pd.DataFrame, scale: float, panel: int, of: PartitionPanel) -> go.Scatter:
    told = [
        (text(of.clients[i]) if i < len(of.clients) else i, text(of.classes[c]) if c < len(of.classes) else c, samples)
        for i, c, samples in own[["client", "class", "samples"]].itertuples(index=False)
    ]
    return go.Scatter(
        x=own["client"],
        y=own["class"],
        mode="markers",
        showlegend=False,
        customdata=told,
        marker={
            "size": own["samples"],
            "sizemode": "area",
            "sizeref": scale,
            "sizemin": 1.5,
            "color": style.BLUE,
            "opacity": 0.8,
            "line": {"width": 0},
        },
        hovertemplate="client %{customdata[0]}, class %{customdata[1]}: %{customdata[2]} samples<extra></extra>",
        **style.axes(panel),
    )


def _titles(panels: Sequence[PartitionPanel], labels: Labels) -> list[str]:
    """What sets each panel apart: the settings in which they differ, else the run."""
    if len(panels) == 1:
        return [""]
    differ = [key for key in KEYS if len({str(panel.settings.get(key)) for panel in panels}) > 1]
    titles = [
        ", ".join(_setting(key, panel.settings[key], labels) for key in differ if key in panel.settings)
        for panel in panels
    ]
    if len(set(titles)) < len(titles):
        titles = [f"{text(p.run)}: {title}" if title else text(p.run) for p, title in zip(panels, titles, strict=True)]
    return titles


def _setting(key: str, value: object, labels: Labels) -> str:
    """`ω = 0.1`; of a text, such as a data set, the text alone. (Separate runs, that vary nothing, record no
    symbols.)"""
    if isinstance(value, str):
        return text(value)
    symbol = labels.symbol(key)
    return f"{'ω' if symbol == 'omega' else symbol} = {number(value)}"


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
    across=True,
)
