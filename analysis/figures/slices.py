"""Each searched parameter by itself against what was selected on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from analysis import style
from analysis.figure import Figure
from analysis.figures._common import has_result, most_important, of_several_seeds, options_axis, plain, results
from analysis.labels import Labels
from analysis.runs import Run
from search_spaces.metrics import twin

#: Parameters drawn at most.
LIMIT = 8


@dataclass(frozen=True)
class Drawing:
    """What `plot` needs to know; `data` says what the columns of `table` are."""

    table: pd.DataFrame
    #: The parameters, one panel each; at most `LIMIT`.
    keys: Sequence[str]
    #: The metric trials were selected on, and the same metric on the other share of the data.
    metric: str
    twin: str
    note: str


def needs(runs: Sequence[Run]) -> str | None:
    run = runs[0]
    if not run.keys:
        return "Slices need a searched parameter; this run searched none."
    return None if has_result(run) else "Slices need a completed trial; there is none yet."


def data(runs: Sequence[Run]) -> Drawing:
    """One row per completed trial (or configuration) and parameter: number, key, x (the parameter's value),
    value (of `metric`), test (of `twin`; nan where not measured), best (whether it is the chosen trial)."""
    run = runs[0]
    metric, other = run.metrics[0], twin(run.metrics[0])
    last = run.levelled
    done = results(run)
    test = done["number"].map(last[other]) if other in last.columns and other != metric else np.nan
    shared = done[["number", "value"]].assign(test=test, best=done["number"] == run.best)
    keys, note = most_important(run, LIMIT)
    parts = [shared.assign(key=key, x=done[key].astype(object))[done[key].notna()] for key in keys]
    said = f"{note} {of_several_seeds(run, 'A dot')}".strip()
    return Drawing(pd.concat(parts, ignore_index=True), keys, metric, other, said)


def plot(drawing: Drawing, labels: Labels) -> go.Figure:
    figure = go.Figure()
    title = labels.metric(drawing.metric).replace(" (validation)", "")
    for panel, key in enumerate(drawing.keys, start=1):
        part = drawing.table[drawing.table["key"] == key]
        part = part.assign(**{name: part[name] * labels.scale(drawing.metric) for name in ("value", "test")})
        figure.add_traces(_dots(part, panel, drawing, labels))
        best = part[part["best"]]
        if not best.empty:
            star = style.star(plain(best["x"]), plain(best["value"]), panel)
            figure.add_trace(star.update(name="chosen", legendgroup="chosen", showlegend=panel == 1))
        xaxis = {"showgrid": False} | _axis(plain(part["x"]), key, labels)
        style.title_axes(figure, panel, "", title if panel == 1 else "", xaxis=xaxis)
    titles = [labels.heading(key) for key in drawing.keys]
    return style.panels(figure, titles, columns=2, height=240, gap=76, legend=3, below=34, note=drawing.note)


def _dots(part: pd.DataFrame, panel: int, drawing: Drawing, labels: Labels) -> list[go.Scatter]:
    """Open dots for the test values, filled ones for what was selected on, as far as each was measured."""
    test = labels.metric(drawing.twin, split=True, unit=False)
    selected = labels.metric(drawing.metric, split=True, unit=False) + " (selected on)"
    symbol = labels.symbol(str(part["key"].iloc[0])) if len(part) else ""
    dense = len(part) > 300
    return [
        go.Scatter(
            x=plain(part["x"]),
            y=part[column],
            mode="markers",
            name=name,
            legendgroup=column,
            showlegend=panel == 1,
            customdata=part["number"],
            meta={"trial": "customdata"},
            marker={"size": 4 if dense else 8, "color": colour, "symbol": shape, "opacity": 0.35 if dense else 0.8},
            hovertemplate=f"trial %{{customdata}}<br>{symbol} = %{{x}}: %{{y:.2f}}<extra></extra>",
            **style.axes(panel),
        )
        for column, name, colour, shape in (
            ("test", test, style.GREEN, "circle-open"),
            ("value", selected, style.BLUE, "circle"),
        )
        if part[column].notna().any()
    ]


def _axis(values: Sequence[Any], key: str, labels: Labels) -> dict[str, Any]:
    if not labels.numeric(key):
        return options_axis(labels.options(key))
    return style.log_axis(min(values), max(values)) if labels.log(key) else {}


FIGURE = Figure(
    title="Each parameter by itself",
    read=(
        "Dots are completed trials, filled by what was selected on and open by the test value of the same trial.",
        "A clear slope or hill in one panel is an effect that is visible although everything else was varied too; "
        "without such a shape no effect is visible.",
    ),
    needs=needs,
    data=data,
    plot=plot,
    order=60,
)
