"""Regret by wall-clock: who has been told of what by when, and on how many slots."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from benchmarks.replay import clock
from benchmarks.replay.measures import over
from benchmarks.replay.searcher import Job, Result, Verdict
from search_spaces.parameter import Value

ROUNDS = 2


class Episode:
    """A round of configuration x takes x seconds; its value is x."""

    def curve(self, values: Mapping[str, Value], seed: int) -> np.ndarray:
        return np.full(ROUNDS, float(str(values["x"])))

    def truth_curve(self, values: Mapping[str, Value]) -> np.ndarray:
        return self.curve(values, 0)

    def seconds(self, values: Mapping[str, Value], seed: int) -> float:
        return float(str(values["x"]))


class InOrder:
    """Whole federations of x = 5, 3, 4, 1, 1, 1, …; the winner is the one that it was told of last."""

    def __init__(self) -> None:
        self.asked, self.told = 0, 0.0

    def ask(self) -> Job:
        self.asked += 1
        x = [5.0, 3.0, 4.0][self.asked - 1] if self.asked < 4 else 1.0
        return Job(self.asked, {"x": x}, (0,), ROUNDS)

    def tell(self, result: Result) -> None:
        self.told = float(str(result.job.values["x"]))

    def winner(self) -> Verdict:
        return Verdict({}, self.told)


@pytest.mark.parametrize(
    ("slots", "told"),
    [
        (1, [0.0, 5.0, 5.0, 3.0]),  # ends at 10, 16, 24, 26 …
        (2, [3.0, 5.0, 1.0, 1.0]),  # ends at 6 and 10; from 6 on 4 until 14, from 10 on 1 every 2 seconds
        (3, [1.0, 1.0, 1.0, 1.0]),  # ends at 6, 8 (two), 10 (three, the first of which is the longest) …
    ],
)
def test_a_winner_is_judged_by_what_was_told_at_that_time(slots: int, told: list[float]) -> None:
    """A job that ends at a time is told by then."""
    found = clock.ByClock(Episode(), InOrder(), slots=slots, seconds=[8.5, 10.0, 13.5, 16.0]).run()  # type: ignore[arg-type]
    assert [one.verdict.estimate for one in found if isinstance(one.verdict, Verdict)] == told


def test_a_table_has_a_row_for_each_number_of_slots() -> None:
    median = over([0.25, 0.5, 0.75], np.median)
    text = clock.told({"fedavg": [clock.Column(8, "fedtune-1", (median,) * len(clock.parts(8)))]})
    assert clock.parts(1) == clock.PARTS and clock.parts(32) == (20, 10)  # 12 · 32 ÷ 10 = 38.4 federations
    assert "| 8 | fedtune-1 | 0.500 (0.250 to 0.750) |" in text and text.endswith("| - | - |")
