"""What a figure is, and where figures are found.

A figure is one file in `analysis/figures`; its name there is its name everywhere. It holds

    data(runs)        -> DataFrame        what is drawn, tidy; columns and units in its docstring
    plot(df, labels)  -> plotly Figure    the drawing and nothing else
    needs(runs)       -> str | None       a sentence why it cannot be drawn yet
    FIGURE = Figure(title, read)          `read` are the sentences under it: how to read it

and is picked up by being there.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from search_spaces.errors import UserError, unknown

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from analysis.labels import Labels
    from analysis.runs import Run

Data = Callable[[Sequence["Run"]], "pd.DataFrame"]
Plot = Callable[["pd.DataFrame", "Labels"], "go.Figure"]
Needs = Callable[[Sequence["Run"]], "str | None"]


@dataclass(frozen=True)
class Figure:
    """The record a figure's file assigns to `FIGURE`."""

    title: str
    #: Two sentences on how to read it.
    read: tuple[str, str]
    #: Where it stands in a report whose space asks for no order; lower is earlier.
    order: int = 100
    #: One run (False) or several runs in one drawing (True).
    many: bool = False


@dataclass(frozen=True)
class Drawn:
    """A discovered figure: the record, its name and its three functions."""

    name: str
    record: Figure
    data: Data
    plot: Plot
    needs: Needs


def names() -> tuple[str, ...]:
    """Every figure's name, without loading any."""
    import analysis.figures as folder

    return tuple(module.name for module in pkgutil.iter_modules(folder.__path__) if not module.name.startswith("_"))


@cache
def figures() -> dict[str, Drawn]:
    """Every figure by name, in the order of a report."""
    found = []
    for name in names():
        file = importlib.import_module(f"analysis.figures.{name}")
        found.append(Drawn(name, file.FIGURE, file.data, file.plot, file.needs))
    return {f.name: f for f in sorted(found, key=lambda f: (f.record.order, f.name))}


def figure(name: str) -> Drawn:
    """The figure of that name. Raises `UserError` where there is none."""
    if name not in figures():
        raise UserError(unknown("figure", name, figures()))
    return figures()[name]
