"""The pictures of a figure of a paper, drawn of the runs that make it up: which ones, its declaration says (`figures`).

Curves, lines and boxes are drawn of the cells of the table: a line or box for each row. Partitions, and images of
generators and attacks, are drawn of the runs themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from analysis.figures import box, figure
from analysis.labels import Labels
from analysis.reproduce.folder import Made
from analysis.reproduce.joint_table import joined
from analysis.runs import Run

if TYPE_CHECKING:
    import plotly.graph_objects as go

#: Of a picture that needs something which no run has yet.
NO_RESULT = "No cell has a result yet."
NOT_MEASURED = "None of the figure's metrics was measured."
#: Of a figure of the same name in reports of runs, what does not hold of a reproduction.
_READ = {
    "box": (
        "A box holds all cells of its row: a dot is one cell and seed, in the round that the paper reports. A box "
        "spans the middle half of its dots, its line is the median.",
        "A flat box is a row that hardly changes over its cells.",
    )
}


@dataclass(frozen=True)
class Picture:
    """One card of the page: figures under headings, or why there is none."""

    name: str
    title: str
    read: Sequence[str]
    #: Without a heading where there is one alone.
    figures: Sequence[tuple[str, go.Figure]] = ()
    missing: str = ""


def pictures(made: Made) -> list[Picture]:
    """All that the declaration asks for, in its order."""
    return [_picture(made, name) for name in made.reproduction.figures]


def _picture(made: Made, name: str) -> Picture:
    card = figure(name)
    empty = Picture(name, card.title, _READ.get(name, card.read))
    if not made.cells.cells:
        return replace(empty, missing=NO_RESULT)
    found = _KINDS[name](made, name)
    return replace(empty, missing=found) if isinstance(found, str) else replace(empty, figures=found)


#: Figures under their headings, or why there are none.
_Drawn = list[tuple[str, "go.Figure"]] | str


def _of_cells(made: Made, name: str) -> _Drawn:
    if name == "factor" and len(made.cells.conditions) < 2:
        return "A metric against a condition needs two conditions that have been run; there is one."
    measured = _measured(made)
    return [("", joined([made]).figure(name, metrics=measured))] if measured else NOT_MEASURED


def _boxes(made: Made, name: str) -> _Drawn:
    measured = _measured(made)
    drawing = box.drawing(made.cells, measured, made.values)
    return [("", box.plot(drawing, replace(made.labels, markup=True)))] if measured else NOT_MEASURED


def _measured(made: Made) -> list[str]:
    """Those of the figure's metrics that any cell has."""
    return [metric for metric in made.reproduction.metrics if any(cell.values(metric) for cell in made.cells.cells)]


def _of_runs(made: Made, name: str) -> _Drawn:
    """One figure of all runs, such as a panel for every partition."""
    card, runs = figure(name), _runs(made)
    return card.needs(runs) or [("", card.draw(runs, Labels.of(runs)))]


def _of_each_run(made: Made, name: str) -> _Drawn:
    """A figure for every cell, under its name."""
    card, found, reasons = figure(name), list[tuple[str, "go.Figure"]](), dict[str, None]()
    for cell in made.cells.cells:
        reason = card.needs([cell.part])
        if reason is None:
            heading = ", ".join(filter(None, (cell.row, made.named(cell.condition))))
            found.append((heading, card.draw([cell.part], Labels.of([cell.part]))))
        else:
            reasons[reason] = None
    return found or " ".join(reasons)


def _runs(made: Made) -> list[Run]:
    """Every run with a result, once."""
    return list({cell.part.path: cell.part for cell in made.cells.cells}.values())


_KINDS: dict[str, Callable[[Made, str], _Drawn]] = {
    "rounds": _of_cells,
    "factor": _of_cells,
    "box": _boxes,
    "partition": _of_runs,
    "attack": _of_runs,
    "images": _of_each_run,
    "averages": _of_each_run,
}
