"""Two searched parameters against accuracy, global and local side by side (for DFRD: α × λ, the paper's Fig. 5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from analysis import style
from analysis.estimate import configuration
from analysis.figure import Figure
from analysis.figures._common import metric_rows, of_several_seeds, two_keys
from analysis.figures._heatmap_panel import MARKS, PLANNED, HeatmapPanel, draw_cells, draw_dots
from analysis.labels import Labels
from analysis.runs import Run
from search_spaces.metrics import twin
from search_spaces.parameter import Value

#: `grid` where trials lie on a lattice, `points` where values were sampled freely.
Mode = Literal["grid", "points"]


@dataclass(frozen=True)
class Drawing:
    """What `plot` needs to know; `data` says what the columns of `table` are."""

    table: pd.DataFrame
    #: Keys of the parameters on the axes.
    x: str
    y: str
    mode: Mode
    #: Every value of the two that a grid was asked for, whether it has been run or not; empty for other samplers.
    planned: tuple[Sequence[Value], Sequence[Value]]
    #: The standard deviation by which one seed moves a configuration against the others, in the unit of the metric that
    #: was selected on, as far as the search knows it.
    noise: float | None
    #: Panels side by side.
    columns: int
    note: str


def needs(runs: Sequence[Run]) -> str | None:
    run = runs[0]
    if len(run.keys) < 2:
        found = f"only {run.keys[0]}." if run.keys else "none."
        return f"The heat map needs two searched parameters; this run searched {found}"
    if not (run.trials["state"] == "COMPLETE").any():
        return "The heat map needs a completed trial; there is none yet."
    return None


def data(runs: Sequence[Run]) -> Drawing:
    """One row per trial (or configuration) and metric: trial, x, y (parameter values), metric, value (last
    round, mean over seeds), state, best (whether it is the chosen trial), tied (whether its configuration cannot be
    told from the chosen one)."""
    run = runs[0]
    tied = _tied(run)
    x, y, note = two_keys(run)
    last = run.levelled
    rows = metric_rows(runs, lambda m: m in last.columns and bool(last[m].notna().any()))
    trials = run.trials[run.trials["number"].isin(run.first_trials)]
    trials = trials[trials[x].notna() & trials[y].notna()]
    found = [
        {
            "trial": t["number"],
            "x": t[x],
            "y": t[y],
            "metric": metric,
            "value": last[metric].get(t["number"], np.nan),
            "state": t["state"],
            "best": t["number"] == run.best,
            "tied": t["number"] in tied,
        }
        for t in trials[["number", x, y, "state"]].to_dict("records")
        for row in rows
        for metric in row
    ]
    table = pd.DataFrame(found, columns=["trial", "x", "y", "metric", "value", "state", "best", "tied"])
    mode = _mode(table, run, x, y)
    planned = _planned(run, x, y) if mode == "grid" else ((), ())
    noise = None if run.estimate is None else run.estimate.paired_noise
    columns = max((len(r) for r in rows), default=1)
    said = f"{note} {of_several_seeds(run, 'A dot' if mode == 'points' else 'What a cell shows')}".strip()
    said = f"{said}{_note(table, mode)}{_noted(run, table, mode, planned)}".strip()
    return Drawing(table, x, y, mode, planned, noise, columns, said)


def _tied(run: Run) -> set[int]:
    """The trials of configurations that cannot be told from the chosen one, that one left out."""
    if run.estimate is None:
        return set()
    known = {trial.number: configuration(trial) for trial in run.frozen}
    keys = {known[number] for number in run.estimate.tied} - {known[run.estimate.trial]}
    return {number for number, key in known.items() if key in keys}


def _planned(run: Run, x: str, y: str) -> tuple[Sequence[Value], Sequence[Value]]:
    """All values of the two parameters in a grid that is walked cell by cell; of one that goes one parameter at a time
    most cells are never run."""
    if run.record.sampler != "grid" or run.space.get("one_at_a_time"):
        return (), ()
    items = {item["key"]: item for item in run.searched}
    across, up = (_values(items[key]) for key in (x, y))
    return (across, up) if across and up else ((), ())


def _values(item: Mapping[str, Any]) -> tuple[Value, ...]:
    """The values that were listed for a parameter."""
    listed = {"choice": item.get("options"), "flag": [False, True]}.get(str(item.get("kind")), item.get("grid"))
    return tuple(listed or ())


def _noted(run: Run, table: pd.DataFrame, mode: Mode, planned: tuple[Sequence[Value], Sequence[Value]]) -> str:
    """How far a grid has come, what its marks mean, and what is not told from the chosen configuration."""
    note = ""
    asked, ended = run.experiment.get("trials"), int(run.trials["state"].isin(["COMPLETE", "PRUNED", "FAIL"]).sum())
    if mode == "grid" and isinstance(asked, int) and not run.raced and ended < asked:
        note += f" {ended} of {asked} trials have ended."
    marks = [f"{mark} {words}" for state, (mark, words) in MARKS.items() if (table["state"] == state).any()]
    if mode == "grid" and planned[0] and isinstance(asked, int) and len(run.trials) < asked:
        marks.append(f"{PLANNED} planned, not run yet")
    if mode == "grid" and marks:
        note += f" Cells without a value: {', '.join(marks)}."
    if table["tied"].any() and mode == "grid":
        note += " Hatched cells hold a configuration that cannot be told from the chosen one."
    elif table["tied"].any():
        note += " Dots in a square cannot be told from the chosen configuration."
    return note


def _completed(table: pd.DataFrame) -> pd.DataFrame:
    return table[(table["state"] == "COMPLETE") & table["value"].notna()]


def _mode(table: pd.DataFrame, run: Run, x: str, y: str) -> Mode:
    points = _completed(table).drop_duplicates(["x", "y"])
    kinds = {item["key"]: item.get("kind", "real") for item in run.searched}
    numeric = all(kinds.get(key, "real") in ("real", "integer") for key in (x, y))
    across, down = points["x"].nunique(), points["y"].nunique()
    cells = across * down
    if run.record.sampler == "grid" or (cells and cells <= 1.3 * len(points) and cells <= 900):
        return "grid"
    if not numeric and cells <= 400 and len(points) >= cells / 2:
        return "grid"
    return "points"


def _note(table: pd.DataFrame, mode: Mode) -> str:
    note = ""
    if mode == "grid" and _completed(table).groupby(["x", "y", "metric"]).size().max() > 1:
        note += " A cell holds the mean of its trials."
    if (table["state"] == "PRUNED").any() and mode == "grid":
        note += " Cells of trials stopped early stay empty: their last value is from an earlier round."
    elif (table["state"] == "PRUNED").any():
        note += " Trials stopped early are marked ×: their last value is from an earlier round."
    return note


def plot(drawing: Drawing, labels: Labels) -> go.Figure:
    x, y, mode = drawing.x, drawing.y, drawing.mode
    figure = go.Figure()
    titles = []
    for n, (metric, part) in enumerate(drawing.table.groupby("metric", sort=False), start=1):
        name = str(metric)
        titles.append(labels.metric(name, split=True) + (" · selected on" if name in labels.selected else ""))
        if drawing.noise is not None and name in labels.selected:
            titles[-1] += f" · one seed: ± {drawing.noise * labels.scale(name):.2g}"
        scaled = part.assign(value=part["value"] * labels.scale(name))
        panel = HeatmapPanel(n, scaled, labels, x, y, drawing.planned, _ends(drawing.table, name, labels.scale(name)))
        style.colour_axis(figure, n, *panel.ends)
        kinds = draw_cells(figure, panel) if mode == "grid" else draw_dots(figure, panel)
        quiet = {"showgrid": False}
        style.title_axes(
            figure, n, labels.heading(x), labels.heading(y), xaxis=quiet | kinds[0], yaxis=quiet | kinds[1]
        )
    height = 340 if mode != "grid" else 300
    return style.panels(figure, titles, columns=drawing.columns, height=height, bars=True, note=drawing.note)


def _ends(table: pd.DataFrame, metric: str, scale: float) -> tuple[float, float]:
    """Where the colours of a metric begin and end, as displayed: on validation and on test data they are the same."""
    same = table["metric"].isin([metric, twin(metric)])
    values = _completed(table[same])["value"] * scale
    return style.colour_ends(float(values.min()), float(values.max()))


FIGURE = Figure(
    title="Two parameters against accuracy",
    read=(
        "Brighter is a larger value; a metric has the same scale on validation and on test data, and what one seed "
        "alone changes stands in the title of the panel that was selected on.",
        "The configuration that was chosen carries the orange frame or star, in every panel.",
    ),
    needs=needs,
    data=data,
    plot=plot,
    order=10,
)
