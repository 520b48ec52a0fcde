"""What one run of a comparison has of one metric, and the two tables made of that: results, and paired tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from analysis.labels import PERCENT, decimals, unit_in_files
from analysis.stats import Paired, Summary
from analysis.tables import Column, Table


@dataclass(frozen=True)
class Entry:
    """One run and one metric: values by seed, their summary, the paired test against the first run (itself: None).

    `best` sums up every seed's best round, which `chooser` chose: a metric of the validation share, or the metric
    itself. `holm_p` is the p of the paired t test, corrected for all runs that are tested by this metric."""

    run: str
    method: str
    metric: str
    trial: int | None
    rounds: int
    values: Mapping[int, float]
    summary: Summary
    best: Summary
    chooser: str
    test: Paired | None
    holm_p: float | None

    @property
    def scale(self) -> float:
        """100 for accuracies, which are shown in per cent."""
        return 100.0 if self.metric in PERCENT else 1.0

    @property
    def digits(self) -> int:
        """Digits after the point with which the metric is shown."""
        return decimals(self.metric)

    def row(self) -> dict[str, object]:
        """By column what is shown (`shown`, `best`, `shift`: accuracies in per cent), and every number as recorded, so
        that accuracies are fractions in files; `unit` says it."""
        test, scale = self.test, self.scale
        return {
            "run": self.run,
            "method": self.method,
            "metric": self.metric,
            "unit": unit_in_files(self.metric),
            "shown": self.summary.shown(scale, self.digits),
            "mean": self.summary.mean,
            "std": self.summary.std,
            "low": self.summary.low,
            "high": self.summary.high,
            "best": self.best.shown(scale, self.digits),
            "best_mean": self.best.mean,
            "best_std": self.best.std,
            "best_by": self.chooser,
            "n": self.summary.n,
            "rounds": self.rounds,
            "trial": self.trial,
            "shift": self._shift(),
            "difference": test.difference if test else None,
            "difference_std": test.std if test else None,
            "pairs": test.n if test else None,
            "t_p": test.t_p if test else None,
            "t_p_holm": self.holm_p,
            "wilcoxon_p": test.wilcoxon_p if test else None,
            "seeds_needed": test.seeds_needed if test else None,
        }

    def _shift(self) -> str:
        """The mean difference to the first run and its standard deviation, as text."""
        if self.test is None or self.test.n == 0:
            return "–"
        mean = f"{self.scale * self.test.difference:+.{self.digits}f}"
        return mean if self.test.n < 2 else f"{mean} ± {self.scale * self.test.std:.{self.digits}f}"


def results_table(entries: Sequence[Entry], readout: str, notes: Sequence[str]) -> Table:
    """One row per run and metric: mean and spread."""
    unit = " [%]" if all(entry.metric in PERCENT for entry in entries) else ""
    columns = [
        Column("run", "run", right=False),
        Column("method", "method", right=False),
        Column("metric", "metric", right=False),
        Column("shown", f"mean ± std{unit}"),
        *([Column("best", f"best round{unit}")] if readout == "last" else []),
        Column("n", "seeds"),
        Column("rounds", "rounds"),
    ]
    title = f"Test results, {'best round' if readout == 'best' else 'last round'}"
    if not unit and any(entry.metric in PERCENT for entry in entries):
        title += ", accuracies in %"
    return Table(columns, [entry.row() for entry in entries], title, notes)


def tests_table(entries: Sequence[Entry], first: str, notes: Sequence[str]) -> Table | None:
    """One row per run and metric that was tested against the run `first`; None where none was."""
    rows = [entry.row() for entry in entries if entry.test is not None]
    columns = [
        Column("run", "run", right=False),
        Column("metric", "metric", right=False),
        Column("shift", "Δ ± std"),
        Column("pairs", "pairs"),
        Column("t_p", "p (paired t)", _p),
        Column("t_p_holm", "p (Holm)", _p),
        Column("wilcoxon_p", "p (Wilcoxon)", _p),
        Column("seeds_needed", "seeds needed"),
    ]
    return Table(columns, rows, f"Differences to {first}", notes) if rows else None


def _p(value: float | None) -> str:
    return "–" if value is None or value != value else f"{value:.3g}"
