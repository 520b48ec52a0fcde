"""What a search knows of its space: the estimated mean over all seeds, and how sure that is, over the two parameters
that matter most.

It is the model behind the winner's estimate (`analysis.estimate.posterior`), asked at a lattice of configurations.
Parameters that are on no axis have the winner's values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from analysis import style
from analysis.figure import Figure
from analysis.figures._common import of_several_seeds, plain, searched_axis, two_keys
from analysis.labels import Labels
from analysis.runs import Run
from search_spaces.metrics import SHARES, is_unreached

#: Values along a number's axis.
STEPS = 33
#: So many values of parameters on no axis are named.
HELD = 6


@dataclass(frozen=True)
class Drawing:
    """What `plot` needs to know; `data` says what the columns of `table` and of `trials` are."""

    table: pd.DataFrame
    trials: pd.DataFrame
    #: Keys of the parameters on the axes; `y` is None where only one was searched.
    x: str
    y: str | None
    metric: str
    #: The chosen trial's values of the parameters that are on no axis.
    held: Mapping[str, Any]
    note: str


def needs(runs: Sequence[Run]) -> str | None:
    run = runs[0]
    if not run.keys:
        return "The search's belief needs a searched parameter; this run searched none."
    if len(run.metrics) != 1:
        return "The search's belief is of one metric; this run has several."
    if run.standing is None or run.best is None:
        return "The search's belief needs a search of which two trials ran to their end."
    if not any(key in run.trial(run.best).params for key in run.keys):
        return "The search's belief needs a parameter that the chosen trial has."
    return None


def data(runs: Sequence[Run]) -> Drawing:
    """Table: one row per place of the lattice: x, y, mean (the estimate), std (how sure that is: the standard deviation
    of the difference from the mean of all configurations that ran to their end). Trials: one row per trial (in a race
    per configuration) that ran to its end, was stopped or goes on: trial, x, y, value (its last one), state, best."""
    run = runs[0]
    assert run.best is not None
    winner = run.trial(run.best)
    x, other, note = two_keys(run, [key for key in run.keys if key in winner.params])
    y = None if other == x else other
    across = _places(winner.distributions[x])
    up = [None] if y is None else _places(winner.distributions[y])
    lattice = [(one, two) for two in up for one in across]
    asked = [winner.params | {x: one} | ({} if y is None else {y: two}) for one, two in lattice]
    found = run.believed([(values, winner.distributions) for values in asked])
    assert found is not None
    at = list(found.candidates)
    mean = found.sign * found.belief.mean[at]
    if run.metrics[0] in SHARES:
        mean = np.clip(mean, 0.0, 1.0)
    table = pd.DataFrame(lattice, columns=["x", "y"]).assign(mean=mean, std=np.sqrt(found.ended.beside[at]))
    curves = {t.number: t.intermediate_values for t in run.frozen if t.intermediate_values}
    last = {number: value for number, curve in curves.items() if not is_unreached(value := curve[max(curve)])}
    kept = run.trials[run.trials["number"].isin(run.first_trials) & (run.trials["state"] != "FAIL")]
    kept = kept.assign(value=kept["value"].fillna(kept["number"].map(last)))
    kept = kept[kept[x].notna() & (kept["value"].notna() | kept["state"].isin(["COMPLETE", "PRUNED"]))]
    if y is not None:
        kept = kept[kept[y].notna()]
    if run.single:
        kept = kept.assign(value=kept["number"].map(run.levelled[run.metrics[0]]).fillna(kept["value"]))
    trials = pd.DataFrame(
        {
            "trial": kept["number"],
            "x": kept[x],
            "y": None if y is None else kept[y],
            "value": kept["value"],
            "state": kept["state"],
            "best": kept["number"] == run.best,
        }
    ).reset_index(drop=True)
    held = {key: value for key, value in winner.params.items() if key not in (x, y)}
    return Drawing(table, trials, x, y, run.metrics[0], held, f"{note} {of_several_seeds(run, 'A dot')}".strip())


def _places(distribution: Any) -> list[Any]:
    """The values of a parameter at which the model is asked, in order."""
    if hasattr(distribution, "choices"):
        numbers = [c for c in distribution.choices if isinstance(c, (int, float)) and not isinstance(c, bool)]
        return sorted(numbers) if len(numbers) == len(distribution.choices) else list(distribution.choices)
    low, high = float(distribution.low), float(distribution.high)
    values = np.geomspace(low, high, STEPS) if distribution.log else np.linspace(low, high, STEPS)
    values[0], values[-1] = low, high
    if isinstance(distribution.low, int):
        return sorted({round(value) for value in values.tolist()})
    return list(dict.fromkeys(values.tolist()))


def _note(drawing: Drawing, labels: Labels) -> str:
    """Which parameters are drawn, and what the others are held at. It is text, of which Plotly reads nothing."""
    plain_labels = replace(labels, markup=False)
    named = ", ".join(plain_labels.setting(key, value) for key, value in list(drawing.held.items())[:HELD])
    more = f" and {len(drawing.held) - HELD} more" if len(drawing.held) > HELD else ""
    others = f"All others have the chosen trial's values: {named}{more}." if named else ""
    return " ".join(filter(None, [drawing.note, others]))


def plot(drawing: Drawing, labels: Labels) -> go.Figure:
    figure = go.Figure()
    scale = labels.scale(drawing.metric)
    title = f"Estimate · {labels.metric(drawing.metric, split=True)}"
    if drawing.y is None:
        _line(figure, drawing, labels, scale)
        return style.panels(figure, [title], columns=1, note=_note(drawing, labels))
    unit = "points" if scale == 100 else ""
    for panel, column in ((1, "mean"), (2, "std")):
        values = (drawing.table[column] * scale).round(6)  # of one trial all are the same but for their last digits
        ends = style.colour_ends(float(values.min()), float(values.max()))
        style.colour_axis(figure, panel, *ends, scale=style.SEQUENTIAL if panel == 1 else style.UNSURE)
        figure.add_trace(_area(drawing, values, panel, labels, unit))
        figure.add_traces(_marks(drawing, panel, labels, scale))
        figure.update_layout(
            {f"{axis}axis{'' if panel == 1 else 2}": {"showgrid": False} for axis in ("x", "y")},
        )
        style.title_axes(
            figure,
            panel,
            labels.heading(drawing.x),
            labels.heading(drawing.y),
            xaxis={"showgrid": False} | searched_axis(labels, drawing.x, drawing.trials["x"]),
            yaxis={"showgrid": False} | searched_axis(labels, drawing.y, drawing.trials["y"]),
        )
    unsure = f"How unsure · standard deviation{f' [{unit}]' if unit else ''}"
    return style.panels(figure, [title, unsure], columns=2, height=320, bars=True, gap=100, note=_note(drawing, labels))


def _area(drawing: Drawing, values: pd.Series, panel: int, labels: Labels, unit: str) -> go.Contour | go.Heatmap:
    """The lattice in colours: with lines of equal value where both axes are numbers."""
    assert drawing.y is not None
    across, up = list(dict.fromkeys(drawing.table["x"])), list(dict.fromkeys(drawing.table["y"]))
    told = f"{labels.symbol(drawing.x)} = %{{x:.4g}}, {labels.symbol(drawing.y)} = %{{y:.4g}}: %{{z:.2f}} {unit}"
    shared: dict[str, Any] = {
        "x": plain(pd.Series(across)),
        "y": plain(pd.Series(up)),
        "z": values.to_numpy().reshape(len(up), len(across)),
        "coloraxis": "coloraxis" if panel == 1 else "coloraxis2",
        **style.axes(panel),
    }
    if labels.numeric(drawing.x) and labels.numeric(drawing.y):
        return go.Contour(
            **shared,
            contours={"coloring": "heatmap", "showlines": True},
            line={"width": 0.6, "color": "rgba(255,255,255,0.35)"},
            hovertemplate=f"{told}<extra></extra>",
            showlegend=False,
        )
    return go.Heatmap(**shared, xgap=2, ygap=2, hovertemplate="%{x}, %{y}: %{z:.2f}<extra></extra>")


def _marks(drawing: Drawing, panel: int, labels: Labels, scale: float) -> list[go.Scatter]:
    """A dot per trial that ran to its end, a × per trial that was stopped, a white dot per trial that goes on, and the
    star of the chosen one."""
    assert drawing.y is not None
    trials = drawing.trials
    where = f"{labels.symbol(drawing.x)} = %{{x}}, {labels.symbol(drawing.y)} = %{{y}}"
    dark, bright = style.ON_BRIGHT, style.ON_DARK
    kinds = (
        ("PRUNED", ", stopped early", {"symbol": "x-thin", "size": 7, "line": {"width": 2, "color": bright}}),
        ("RUNNING", ", not ended", {"size": 8, "color": bright, "line": {"width": 1.5, "color": dark}}),
        ("COMPLETE", "", {"size": 8, "color": dark, "line": {"width": 1.5, "color": bright}}),
    )
    found = []
    for state, words, marker in kinds:
        part = trials[trials["state"] == state]
        found.append(
            go.Scatter(
                x=plain(part["x"]),
                y=plain(part["y"]),
                mode="markers",
                marker=marker,
                customdata=np.stack([part["trial"], part["value"] * scale], axis=-1) if len(part) else None,
                meta={"trial": "customdata"},
                hovertemplate=f"trial %{{customdata[0]}}{words}<br>{where}: %{{customdata[1]:.2f}}<extra></extra>",
                showlegend=False,
                **style.axes(panel),
            )
        )
    best = trials[trials["best"]]
    found.append(style.star(plain(best["x"]), plain(best["y"]), panel))
    return found


def _line(figure: go.Figure, drawing: Drawing, labels: Labels, scale: float) -> None:
    """One parameter: the mean as a line in its band, and the trials that ran to their end."""
    table, trials = drawing.table, drawing.trials
    mean, std = (scale * table[name].to_numpy() for name in ("mean", "std"))
    places = plain(table["x"])
    figure.add_trace(style.band(places, mean, std, style.faded(style.BLUE, 0.16), 1))
    figure.add_trace(
        go.Scatter(
            x=places,
            y=mean,
            mode="lines" if labels.numeric(drawing.x) else "lines+markers",
            line={"color": style.BLUE, "width": 2.5},
            hovertemplate=f"{labels.symbol(drawing.x)} = %{{x}}: %{{y:.2f}}<extra></extra>",
            showlegend=False,
        )
    )
    done = trials[trials["state"] == "COMPLETE"]
    figure.add_trace(
        go.Scatter(
            x=plain(done["x"]),
            y=done["value"] * scale,
            mode="markers",
            marker={"size": 8, "color": style.ORANGE},
            customdata=done["trial"],
            meta={"trial": "customdata"},
            hovertemplate="trial %{customdata}: %{y:.2f}<extra></extra>",
            showlegend=False,
        )
    )
    axis = searched_axis(labels, drawing.x, trials["x"])
    style.title_axes(figure, 1, labels.heading(drawing.x), labels.metric(drawing.metric), xaxis=axis)


FIGURE = Figure(
    title="What the search knows of its space",
    read=(
        "The estimate is of the mean over all seeds; beside it, darker where it is surer, is the standard deviation of "
        "its difference from the average configuration (of a single parameter: the band).",
        "Dots ran to their end, crosses were stopped early, white dots have not ended, the star was chosen: far from "
        "all of them little is known.",
    ),
    needs=needs,
    data=data,
    plot=plot,
    order=5,
)
