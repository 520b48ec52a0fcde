"""One box per searched parameter, or per value of it: how much it moves global and local accuracy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd
import plotly.graph_objects as go

from analysis import style
from analysis.figure import Figure
from analysis.figures._common import box, named_axis, room_of
from analysis.labels import Labels, cut, number, shown
from analysis.runs import Run
from analysis.runs.conditions import show
from analysis.runs.rounds import by_seed
from analysis.tables.cells import Cells, Condition
from search_spaces.parameter import Value

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

#: Global accuracies, the first one measured is drawn; then the local one.
GLOBAL = ("global_accuracy", "g_acc_virtual", "p_acc_global")
LOCAL = ("local_accuracy", "p_acc")
#: Parameters drawn at most.
LIMIT = 6
COLUMNS = ["panel", "metric", "box", "key", "value", "number", "seed", "y"]


@dataclass(frozen=True)
class Box:
    """One box of a panel."""

    key: str
    #: A value of the parameter `key`, or the key itself where boxes stand for parameters.
    label: Value
    trials: Sequence[int]


@dataclass(frozen=True)
class BoxPanel:
    """Boxes side by side."""

    #: The parameter whose values the boxes are; None where each box is a parameter.
    key: str | None
    boxes: Sequence[Box]


@dataclass(frozen=True)
class Drawing:
    """What `plot` needs to know; `data` says what the columns of `table` are."""

    table: pd.DataFrame
    panels: Sequence[BoxPanel]
    metrics: Sequence[str]
    note: str


def needs(runs: Sequence[Run]) -> str | None:
    run = runs[0]
    if not _metrics(run):
        return "Boxes need a global or local accuracy; this run has measured none yet."
    if _panels(run):
        return None
    return (
        "Boxes need completed trials that vary one parameter at a time, or a parameter with a list of values "
        "(a choice, a flag or a grid)."
    )


def data(runs: Sequence[Run]) -> Drawing:
    """One row per dot: panel (0, 1, …, a position in `panels`), metric, box (its label), key, value (of that
    parameter), number (trial), seed, y (the metric as recorded)."""
    run = runs[0]
    metrics, found = _metrics(run), _panels(run)
    # All trials at once: to look each up among all rounds took a fifth of the report on a thousand trials.
    last = {metric: by_seed(run.lines, metric) for metric in metrics}
    rows = [
        {
            "panel": position,
            "metric": metric,
            "box": one.label,
            "key": one.key,
            "value": run.parameters(trial)[one.key],
            "number": trial,
            "seed": seed,
            "y": y,
        }
        for position, panel in enumerate(found[:LIMIT])
        for one in panel.boxes
        for trial in one.trials
        for metric in metrics
        for seed, y in last[metric].get(trial, {}).items()
    ]
    table = pd.DataFrame(rows, columns=COLUMNS)
    note = f"The first {LIMIT} of {len(found)} parameters are drawn." if len(found) > LIMIT else ""
    return Drawing(table, found[:LIMIT], metrics, note)


def drawing(
    found: Cells, metrics: Sequence[str], values: Callable[[str, Condition, str], Mapping[int, float]]
) -> Drawing:
    """The drawing of these cells: a box for each row, of all its conditions and seeds. `values` has a cell's metric by
    seed; what `data` says of the table holds."""
    rows = [
        {"panel": 0, "metric": metric, "box": cell.row, "key": cell.row}
        | {"value": ", ".join(map(show, cell.condition)), "number": trials.get(seed), "seed": seed, "y": y}
        for cell in found.cells
        for trials in [{seed: n for n in cell.part.chosen for _, seed in cell.part.lines.get(n, {})}]
        for metric in metrics
        for seed, y in values(cell.row, cell.condition, metric).items()
    ]
    panel = BoxPanel(None, [Box(row, row, ()) for row in found.rows])
    return Drawing(pd.DataFrame(rows, columns=COLUMNS), [panel], metrics, "")


def plot(drawing: Drawing, labels: Labels) -> go.Figure:
    figure = go.Figure()
    titles: list[str] = []
    for row, panel in enumerate(drawing.panels):
        key = panel.key
        names = [labels.symbol(str(one.label)) if key is None else shown(one.label) for one in panel.boxes]
        # Plotly would give long names all the height there is.
        room = room_of(len(names))
        briefs = [labels.symbol(str(b.label), room) if key is None else cut(number(b.label), room) for b in panel.boxes]
        xaxis = named_axis(names, briefs)
        for column, metric in enumerate(drawing.metrics):
            at = row * len(drawing.metrics) + column + 1
            title = labels.metric(metric, split=True)
            titles.append(title if key is None or len(drawing.panels) == 1 else f"{title} · {labels.heading(key)}")
            part = drawing.table[(drawing.table["panel"] == row) & (drawing.table["metric"] == metric)]
            part = part.assign(y=part["y"] * labels.scale(metric))
            colour = (style.BLUE, style.GREEN)[column % 2]
            for name, one in zip(names, panel.boxes, strict=True):
                figure.add_trace(_box(part[part["box"] == one.label], name, colour, at, labels))
            style.title_axes(figure, at, "" if key is None else labels.heading(key), "", xaxis=xaxis)
    return style.panels(figure, titles, columns=len(drawing.metrics), height=300, note=drawing.note)


def _box(dots: pd.DataFrame, name: str, colour: str, panel: int, labels: Labels) -> go.Box:
    texts = [
        f"trial {dot['number']}, seed {dot['seed']}<br>{labels.symbol(dot['key'])} = {shown(dot['value'])}"
        for dot in dots.to_dict("records")
    ]
    return box(dots, name, name, colour, panel, texts).update(showlegend=False)


def _metrics(run: Run) -> list[str]:
    """A global and a local accuracy on test data, as far as the run measured them."""
    measured = (
        {name for name in run.rounds.columns if run.rounds[name].notna().any()} if not run.rounds.empty else set()
    )
    return [name for names in (GLOBAL, LOCAL) for name in [n for n in names if n in measured][:1]]


def _panels(run: Run) -> list[BoxPanel]:
    """One panel of all parameters where they were varied one at a time, otherwise one per parameter."""
    return _one_at_a_time(run) or _by_value(run)


def _completed(run: Run) -> list[FrozenTrial]:
    return [trial for trial in run.frozen if trial.state.name == "COMPLETE"]


def _one_at_a_time(run: Run) -> list[BoxPanel]:
    """A box per parameter: the trials that differ from the declared defaults in nothing but it."""
    if not run.space.get("one_at_a_time"):
        return []
    start = {item["key"]: item.get("declared", {}).get("default") for item in run.searched}
    boxes = []
    for key in run.keys:
        alone = [
            trial.number
            for trial in _completed(run)
            if all(value == start.get(other) for other, value in trial.params.items() if other != key)
        ]
        if len(alone) > 1:
            boxes.append(Box(key, key, alone))
    return [BoxPanel(None, boxes)] if boxes else []


def _by_value(run: Run) -> list[BoxPanel]:
    """A box per value, for every parameter whose trials all hold one of the values that were listed for it."""
    panels = []
    for item in run.searched:
        key = item["key"]
        holding = [trial for trial in _completed(run) if key in trial.params]
        values = {"choice": item.get("options"), "flag": [False, True]}.get(
            str(item.get("kind")), item.get("grid")
        ) or []
        boxes = [Box(key, value, [t.number for t in holding if t.params[key] == value]) for value in values]
        boxes = [one for one in boxes if one.trials]
        if boxes and sum(len(one.trials) for one in boxes) == len(holding):
            panels.append(BoxPanel(key, boxes))
    return panels


FIGURE = Figure(
    title="Spread by parameter",
    read=(
        "A dot is a completed trial with one seed, measured on test data in its last round; a box spans the middle "
        "half of its dots, its line is the median.",
        "Where parameters were varied one at a time, a box holds all values of one parameter with the others at their "
        "defaults, and a flat box is a "
        "parameter that hardly matters; otherwise a box holds all trials with one value.",
    ),
    needs=needs,
    data=data,
    plot=plot,
    order=65,
)
