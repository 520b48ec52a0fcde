"""What a person sees while `fedtune reproduce` runs: which cells are trained. None of them is the best."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fedtune.console.progress import ProgressDisplay, Style
from fedtune.record.experiment import Experiment
from search_spaces.parameter import Value


class CellsDisplay(ProgressDisplay):
    """The display of several final runs, or of a grid, that make up one table or figure."""

    def __init__(self, experiment: Experiment, style: Style, cell_of: Callable[[int], str]) -> None:
        """cell_of: the name of the cell that a federation belongs to."""
        self.cell_of = cell_of
        super().__init__(experiment, style)

    def _consider(self, number: int, state: str, values: Sequence[float] | None, params: Mapping[str, Value]) -> None:
        """Cells are under different conditions, so no value is better than another."""

    def _counts(self) -> str:
        e, ended = self.ended, sum(self.ended.values())
        failed = f", {e['FAIL']} failed" if e["FAIL"] else ""
        return f"{ended} of {self.experiment.trials} trials ended{failed}, {len(self.running)} running"

    def _named(self, number: int) -> str:
        return f"cell {self.cell_of(number)}"
