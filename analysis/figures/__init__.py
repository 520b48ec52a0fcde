"""One file per figure; see `analysis.figure` for what a file holds. A new file here is a new figure in every report: no
list is edited to add one."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from pathlib import Path
from typing import Any

from analysis.figure import Figure
from search_spaces.errors import UserError, unknown


def names() -> tuple[str, ...]:
    """Every figure's name, without loading any."""
    folder = Path(__file__).parent
    return tuple(module.name for module in pkgutil.iter_modules([str(folder)]) if not module.name.startswith("_"))


@cache
def figures() -> dict[str, Figure[Any]]:
    """Every figure by name, in the order of a report. Each has its own type of drawing, which `Figure.draw` hides."""
    found: dict[str, Figure[Any]] = {
        name: importlib.import_module(f"analysis.figures.{name}").FIGURE for name in names()
    }
    return dict(sorted(found.items(), key=lambda item: (item[1].order, item[0])))


def figure(name: str) -> Figure[Any]:
    """The figure of that name. Raises `UserError` where there is none."""
    if name not in figures():
        raise UserError(unknown("figure", name, figures()))
    return figures()[name]
