"""What a trial has measured so far: its rows, the means over its seeds round by round, and each seed's best round."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from search_spaces.metrics import UNREACHED, waits
from trainables.worker.rounds_jsonl import Row


class TrialValues:
    """The values of one trial. `metrics` are those it is judged by, `signs` +1 where a metric is maximised and -1 where
    minimised."""

    def __init__(self, metrics: Sequence[str], signs: Sequence[int]) -> None:
        self._metrics, self._signs = tuple(metrics), tuple(signs)
        self.rows: list[Row] = []
        #: Means over seeds of the metrics by round, where all were measured and are finite. A target that was not
        #: reached counts as `search_spaces.metrics.UNREACHED`.
        self.curve: dict[int, tuple[float, ...]] = {}
        #: The same with signs, so that larger is better.
        self.signed: dict[int, tuple[float, ...]] = {}
        self._best: dict[int, float] = {}

    def add(self, rows: Sequence[Row]) -> list[int]:
        """Takes a round's rows, one per seed. Returns the seeds for which this round is the best so far by the first
        metric (of two equal rounds the first)."""
        self.rows += rows
        read = [[_value(row, name) for row in rows] for name in self._metrics]
        if all(isinstance(value, (int, float)) and math.isfinite(value) for values in read for value in values):
            curve = tuple(math.fsum(values) / len(rows) for values in read)
            self.curve[rows[0]["round"]] = curve
            self.signed[rows[0]["round"]] = tuple(sign * mean for sign, mean in zip(self._signs, curve, strict=True))
        improved = []
        for row in rows:
            value = _value(row, self._metrics[0])
            if value is not None and (score := self._signs[0] * value) > self._best.get(row["seed"], -math.inf):
                self._best[row["seed"]] = score
                improved.append(row["seed"])
        return improved

    def broken(self, rows: Sequence[Row]) -> str | None:
        """The name of a value that a trial cannot do without and that is not finite in `rows`; None where all are."""
        return min((name for row in rows for name, value in row.items() if self._is_broken(name, value)), default=None)

    def _is_broken(self, name: str, value: object) -> bool:
        if name not in (*self._metrics, "train_loss"):
            return False
        if value is None:  # what a row that was read back has for a number that is not finite
            return not waits(name)
        return isinstance(value, float) and not math.isfinite(value)

    def of_last_round(self, seed: int) -> Row:
        """The newest row of a seed."""
        return next(row for row in reversed(self.rows) if row["seed"] == seed)


def _value(row: Row, name: str) -> Any:
    """What a row says of a metric that trials are judged by."""
    return UNREACHED if waits(name) and name in row and row[name] is None else row.get(name)
