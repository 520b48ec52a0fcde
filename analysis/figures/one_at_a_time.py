"""A metric against the values of each parameter that was varied alone, the others at their defaults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from analysis import style
from analysis.figure import Figure
from analysis.figures._common import banded, check_measured, draw_panels, look, shared_metrics
from analysis.labels import Labels, number
from analysis.runs import Run, run_names
from analysis.stats import summarise

#: Lines in one panel at most.
LIMIT = 6
COLUMNS = ["panel", "metric", "key", "x", "mean", "std", "n", "trial"]


@dataclass(frozen=True)
class Drawing:
    """What `plot` needs to know; `data` says what the columns of `table` are."""

    table: pd.DataFrame
    #: Of every panel the metric, and what else it is of, such as a data set. Its parameters have the same values.
    panels: Sequence[tuple[str, str]]
    #: Every parameter, in the order in which they were searched.
    keys: Sequence[str]


def needs(runs: Sequence[Run]) -> str | None:
    if not all(_lines(run) for run in runs):
        return (
            "Parameters alone need completed trials that differ in one number only, all others being at their "
            "defaults, as a grid through the defaults has, or a space that goes one at a time."
        )
    return None if shared_metrics(runs) else "Parameters alone need a metric that every run measured."


def data(runs: Sequence[Run], metrics: Sequence[str] = ()) -> Drawing:
    """One row per panel, parameter and value: panel (0, 1, …), metric, key, x (the value), mean, std (over seeds, as
    recorded; nan below two), n (seeds), trial. `metrics`: by default what was selected on and a local accuracy.

    Raises `UserError` where one of the `metrics` was not measured."""
    several = [str(run.value("dataset")) for run in runs]
    of = [""] if len(runs) == 1 else several if len(set(several)) == len(runs) else run_names(runs)
    lines_of = [_lines(run) for run in runs]
    panels: list[tuple[str, str]] = []
    rows = []
    for metric in metrics or shared_metrics(runs):
        for name, run, lines in zip(of, runs, lines_of, strict=True):
            for keys in _groups(lines):
                found = [
                    {"panel": len(panels), "metric": metric, "key": key, "x": x, "trial": trial}
                    | {"mean": (s := summarise(list(by_seed.values()))).mean, "std": s.std, "n": s.n}
                    for key in keys
                    for x, trial in lines[key].items()
                    if (by_seed := run.last(trial, metric))
                ]
                if found:
                    rows += found
                    panels.append((metric, name))
    check_measured(metrics, panels, runs)
    every = dict.fromkeys(key for lines in lines_of for key in lines)
    return Drawing(pd.DataFrame(rows, columns=COLUMNS), panels, list(every))


def plot(drawing: Drawing, labels: Labels) -> go.Figure:
    def draw(part: pd.DataFrame, key: str, position: int, panel: int, scale: float) -> list[go.Scatter]:
        return _drawn(part.sort_values("x"), key, labels.symbol(key), position, panel, scale, len(drawing.keys))

    def axis(part: pd.DataFrame) -> tuple[str, dict[str, Any]]:
        keys, values = list(dict.fromkeys(part["key"])), sorted(part["x"].unique())
        ticks = {"tickvals": values, "ticktext": [number(value) for value in values], "showgrid": False}
        kind = {"type": "log"} if all(labels.log(key) for key in keys) and values[0] > 0 else {}
        named = labels.heading(keys[0]) if len(keys) == 1 else ", ".join(labels.symbol(key) for key in keys)
        return named, ticks | kind

    return draw_panels(drawing.table, "key", drawing.keys, drawing.panels, labels, draw, axis)


def _drawn(
    part: pd.DataFrame, key: str, symbol: str, position: int, panel: int, scale: float, lines: int
) -> list[go.Scatter]:
    """One line and, where it has several seeds, the band around it."""
    spread = scale * part["std"].to_numpy(dtype=float)
    line = go.Scatter(
        x=part["x"].tolist(),
        y=scale * part["mean"].to_numpy(),
        mode="lines+markers",
        name=symbol,
        legendgroup=key,
        customdata=np.column_stack([part["trial"], np.nan_to_num(spread), part["n"]]),
        **look(position),
        hovertemplate=f"trial %{{customdata[0]:d}}<br>{symbol} = %{{x}}: %{{y:.2f}} ± %{{customdata[1]:.2f}} "
        "(%{customdata[2]} seeds)<extra></extra>",
        **style.axes(panel),
    )
    return banded(line, spread, panel, lines)


def _lines(run: Run) -> dict[str, dict[float, int]]:
    """By parameter, of the first `LIMIT` that have several values with all others at their defaults: its values, and
    the trial that has it. Nothing of a run under several conditions."""
    if run.crossed:
        return {}
    start = {item["key"]: item.get("declared", {}).get("default") for item in run.searched}
    found: dict[str, dict[float, int]] = {
        item["key"]: {} for item in run.searched if item.get("kind") in ("real", "integer")
    }
    for trial in run.frozen:
        if trial.state.name != "COMPLETE":
            continue
        off = [key for key, value in trial.params.items() if value != start.get(key)]
        if len(off) < 2:
            for key in found.keys() & (off or trial.params):
                found[key][float(trial.params[key])] = trial.number
    return dict([(key, values) for key, values in found.items() if len(values) > 1][:LIMIT])


def _groups(lines: Mapping[str, Mapping[float, int]]) -> list[tuple[str, ...]]:
    """Parameters that share an axis, as they have the same values."""
    shared: dict[tuple[float, ...], list[str]] = {}
    for key, values in lines.items():
        shared.setdefault(tuple(sorted(values)), []).append(key)
    return [tuple(keys) for keys in shared.values()]


FIGURE = Figure(
    title="Each parameter alone",
    read=(
        "A line is one parameter with the others at their defaults, the mean of its seeds in the last round; the band "
        "is one standard deviation to either side.",
        "A line that stays within its band is a parameter that hardly matters over these values.",
    ),
    needs=needs,
    data=data,
    of=data,
    plot=plot,
    order=66,
    across=True,
)
