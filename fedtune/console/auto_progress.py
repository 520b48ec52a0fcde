"""What a person sees while `fedtune auto` runs: a line or a row per method, the leader first."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from fedtune.console.progress import ProgressDisplay, Style, duration
from search_spaces.errors import visible
from search_spaces.metrics import METRICS
from search_spaces.parameter import Value

if TYPE_CHECKING:
    from rich.console import RenderableType

    from fedtune.record.experiment import Experiment


class AutoDisplay(ProgressDisplay):
    """The display of a search over several methods."""

    def __init__(
        self,
        experiment: Experiment,
        style: Style,
        costs: Mapping[str, float],
        budget: float,
        method_of: Callable[[int], str],
    ) -> None:
        """costs: what a round of a trial takes of the budget, by method; method_of: the method of a trial."""
        self.costs, self.budget, self.method_of = dict(costs), budget, method_of
        self.used = 0.0
        #: By method: trials by outcome, and the best complete one.
        self.outcomes: dict[str, Counter[str]] = {method: Counter() for method in costs}
        self.leaders: dict[str, tuple[int, float]] = {}
        super().__init__(experiment, style)

    def past(
        self, number: int, state: str, values: Sequence[float] | None, params: Mapping[str, Value], rounds: int = 0
    ) -> None:
        with self._lock:
            self._ended(number, self.method_of(number), state, values, rounds)
        super().past(number, state, values, params, rounds)

    def finished(self, number: int, state: str, values: Sequence[float] | None, error: str | None) -> None:
        with self._lock:
            trial = self.running.get(number)
            if trial is not None:
                self._ended(number, self.method_of(number), state, values, trial.round)
        super().finished(number, state, values, error)

    def _ended(self, number: int, method: str, state: str, values: Sequence[float] | None, rounds: int) -> None:
        self.outcomes[method][state] += 1
        self.used += self.costs[method] * rounds
        if state != "COMPLETE" or not values:
            return
        sign, before = self.experiment.signs[0], self.leaders.get(method)
        if before is None or (sign * values[0], -number) > (sign * before[1], -before[0]):
            self.leaders[method] = (number, values[0])

    def _rounds(self) -> tuple[int, int]:
        """In thousandths of the budget."""
        live = sum(self.costs[self.method_of(number)] * trial.round for number, trial in self.running.items())
        return min(1000, int(1000 * (self.used + live) / self.budget)), 1000

    def _speed(self) -> str:
        return ""

    def _counts(self) -> str:
        e, share = self.ended, self._rounds()[0] / 10
        return (
            f"{share:.0f} % of the budget: {e['COMPLETE']} done, {e['PRUNED']} pruned, {e['FAIL']} failed, "
            f"{len(self.running)} running"
        )

    def _describe(self, number: int, values: Sequence[float], params: Mapping[str, Value]) -> str:
        ranked = self._ranked()
        return ", ".join(f"{method} {self.leaders[method][1]:.4f}" for method in ranked if method in self.leaders)

    def _ranked(self) -> list[str]:
        sign = self.experiment.signs[0]
        return sorted(
            self.costs,
            key=lambda method: (
                method not in self.leaders,
                -sign * self.leaders[method][1] if method in self.leaders else 0.0,
            ),
        )

    def _panel(self) -> RenderableType:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        with self._lock:
            elapsed = duration(time.monotonic() - self._started)
            head = Text.assemble((f"{visible(self.experiment.name)}  ", "bold"), self._counts(), f"  {elapsed}")
            if self.phase:
                return Group(head, Text(f"{self.phase} …", "dim"))
            table = Table(box=None, padding=(0, 1))
            for title in ("method", METRICS[self.experiment.metric[0]].title, "trial", "done", "pruned", "running"):
                table.add_column(title, justify="left" if title == "method" else "right", no_wrap=True)
            live = Counter(map(self.method_of, self.running))
            for place, method in enumerate(self._ranked()):
                number, value = self.leaders.get(method, (None, None))
                counts = self.outcomes[method]
                table.add_row(
                    method,
                    "" if value is None else f"{value:.4f}",
                    "" if number is None else str(number),
                    str(counts["COMPLETE"]),
                    str(counts["PRUNED"]),
                    str(live[method] or ""),
                    style="green" if place == 0 and value is not None else "",
                )
            done, total = self._rounds()
            return Group(head, ProgressBar(total=total, completed=done, width=60), table)


class FreshDisplay(ProgressDisplay):
    """The display of the fresh seeds of several methods, whose numbers go on from one method to the next."""

    def __init__(self, experiment: Experiment, style: Style, home: Callable[[int], tuple[Experiment, int]]) -> None:
        """home: the final run that a trial belongs to, and its number there."""
        self.home = home
        super().__init__(experiment, style)

    def _consider(self, number: int, state: str, values: Sequence[float] | None, params: Mapping[str, Value]) -> None:
        """No mean over several methods is told; the leaderboard has each method's."""

    def _named(self, number: int) -> str:
        experiment, own = self.home(number)
        return f"seed {experiment.seeds[own]} of {experiment.method}"
