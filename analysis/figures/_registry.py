"""Finds the figures: every file in `analysis/figures` that assigns `FIGURE`. No list is edited to add one."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.figure import Figure
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
class Drawn:
    """A discovered figure: the record, its name and its three functions."""

    name: str
    record: Figure
    data: Data
    plot: Plot
    needs: Needs


def names() -> tuple[str, ...]:
    """Every figure's name, without loading any."""
    folder = Path(__file__).parent
    return tuple(module.name for module in pkgutil.iter_modules([str(folder)]) if not module.name.startswith("_"))


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
