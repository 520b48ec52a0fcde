"""Trials whose values are known before the sampler is asked: the first ones of a search, and the cells of a grid.

A trial with known values is written like a proposal, so the sampler, early stopping and all readers treat it like any
other. Where its values come from is recorded with it, as its user attribute `from`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from search_spaces import run_folder
from search_spaces.errors import Shown, UserError, sentence
from search_spaces.parameter import Value
from search_spaces.space import Space

if TYPE_CHECKING:
    from fedtune.record.experiment import Experiment


@dataclass(frozen=True)
class Point:
    """The searched values of a trial by key, and where they come from (empty: from the grid)."""

    values: Mapping[str, Value]
    origin: str = ""


class KnownPoints:
    """The known values of a search's configurations, by their number: that of the trial, where it is no further seed.

    Raises `UserError` where a point of the experiment lies outside the space (somebody edited the file)."""

    def __init__(self, experiment: Experiment, space: Space) -> None:
        self._first = [Point(dict(item["values"]), str(item["from"])) for item in experiment.first]
        self._experiment, self._space = experiment, space
        known = [point.values for point in self._first]
        cells = space.grid_points() if experiment.sampler == "grid" else []
        #: The cells of a grid that are not known from earlier runs.
        self._grid = [Point(cell) for cell in cells if cell not in known]
        # A grid's points are crossed with the conditions; what a sampler proposes is crossed later.
        inside = space.contains if experiment.sampler == "grid" else space.searches
        for point in self._first:
            if not inside(point.values):
                must = f"a point of the space that {run_folder.SPACE} describes"
                where = f"{run_folder.EXPERIMENT}, {point.origin}"
                got = Shown(", ".join(f"{key} {value}" for key, value in point.values.items()))
                raise UserError(sentence("values of first", must, got, where, "Undo the change of that file."))

    def more(self, number: int) -> bool:
        """Whether there is a configuration of that number: a grid has an end."""
        return self._experiment.sampler != "grid" or number < len(self._first) + len(self._grid)

    def of(self, number: int) -> Point | None:
        """The values of configuration `number`; None where the sampler proposes them."""
        if number < len(self._first):
            return self._first[number]
        return self._grid[number - len(self._first)] if self._grid else None
