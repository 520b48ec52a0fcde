"""One panel of the heat map; how it is drawn is in `_heatmap_cells` and `_heatmap_surface`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from analysis import style
from analysis.labels import Labels
from search_spaces.parameter import Value


@dataclass(frozen=True)
class Panel:
    """`part` holds the rows of one metric, with the columns that `heatmap.data` describes and values as displayed."""

    #: 1, 2, … in the order in which panels stand in the figure.
    number: int
    part: pd.DataFrame
    labels: Labels
    #: Keys of the parameters on the axes.
    x: str
    y: str
    #: All values of the two that were asked for, run or not.
    planned: tuple[Sequence[Value], Sequence[Value]] = ((), ())

    @property
    def done(self) -> pd.DataFrame:
        """The rows of completed trials that measured the metric."""
        return self.part[(self.part["state"] == "COMPLETE") & self.part["value"].notna()]

    @property
    def ends(self) -> tuple[float, float]:
        """Where the panel's colours begin and end."""
        return style.colour_ends(float(self.done["value"].min()), float(self.done["value"].max()))

    @property
    def axes(self) -> dict[str, str]:
        return style.axes(self.number)

    @property
    def coloraxis(self) -> str:
        return f"coloraxis{'' if self.number == 1 else self.number}"

    @property
    def at(self) -> str:
        """The number that the panel's axes carry in their names: none for the first."""
        return "" if self.number == 1 else str(self.number)

    @property
    def hover(self) -> str:
        """The two lines of a hover text that say where the pointer is."""
        return f"{self.labels.symbol(self.x)} = %{{x}}<br>{self.labels.symbol(self.y)} = %{{y}}<br>"

    def where(self, x: str, y: str) -> str:
        """The same two lines for given values."""
        return f"{self.labels.symbol(self.x)} = {x}<br>{self.labels.symbol(self.y)} = {y}"
