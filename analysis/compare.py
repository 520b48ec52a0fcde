"""Runs side by side: mean ± standard deviation over seeds, and paired tests against the first run."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from analysis import machines
from analysis.labels import PERCENT, Labels
from analysis.runs import Run, load_all, names
from analysis.stats import Paired, Summary, paired, summarise
from analysis.tables import Column, Table
from search_spaces.errors import UserError, unknown
from search_spaces.metrics import METRICS

DEFAULT_METRICS = ("global_accuracy", "local_accuracy")


@dataclass(frozen=True)
class Entry:
    """One run and one metric: values by seed, their summary, the paired test against the first run (itself: None)."""

    run: str
    method: str
    metric: str
    trial: int | None
    rounds: int
    values: Mapping[int, float]
    summary: Summary
    test: Paired | None


@dataclass(frozen=True)
class Comparison:
    """What `compare` found; `entries` are ordered by metric, then run."""

    runs: Sequence[Run]
    metrics: Sequence[str]
    readout: str
    entries: Sequence[Entry]

    def table(self) -> Table:
        """One row per run and metric; accuracies in per cent."""
        rows = [_row(e) for e in self.entries]
        columns = [
            Column("run", "run", right=False),
            Column("method", "method", right=False),
            Column("metric", "metric", right=False),
            Column("shown", "mean ± std"),
            Column("n", "seeds"),
            Column("rounds", "rounds"),
            Column("difference", "Δ to first", _signed),
            Column("pairs", "pairs"),
            Column("t_p", "p (paired t)", _p),
            Column("wilcoxon_p", "p (Wilcoxon)", _p),
        ]
        return Table(
            columns, rows, f"Test results, {'best round' if self.readout == 'best' else 'last round'}", self.notes()
        )

    def records(self) -> Table:
        """The same for CSV and JSON: every number in a column of its own, with the 95 % t interval (low, high)."""
        keys = (
            "run",
            "method",
            "metric",
            "trial",
            "rounds",
            "n",
            "mean",
            "std",
            "low",
            "high",
            "difference",
            "pairs",
            "t_p",
            "wilcoxon_p",
        )
        return Table([Column(key, key) for key in keys], [_row(e) for e in self.entries], notes=self.notes())

    def to_json(self) -> dict[str, Any]:
        """Plain data for --json: `results` (accuracies in per cent), `seeds` (values as recorded, by seed), `notes`."""
        seeds = [
            {"run": e.run, "metric": e.metric, "values": {str(s): v for s, v in e.values.items()}} for e in self.entries
        ]
        return {"readout": self.readout, "results": self.records().json(), "seeds": seeds, "notes": self.notes()}

    def notes(self) -> list[str]:
        """What the reader of the table has to know."""
        first = names(self.runs)[0]
        notes = [
            f"Δ and p compare each run with {first} on the seeds both have; p-values are two-sided and not corrected "
            "for several comparisons."
        ]
        if self.readout == "best":
            notes.append("The best round was picked on the test data itself, as many papers do: it is optimistic.")
        pairs = [e.test.n for e in self.entries if e.test is not None]
        if pairs and min(pairs) < 2:
            notes.append("Where fewer than two seeds are common no paired test is possible.")
        elif pairs and min(pairs) < 6:
            notes.append(
                f"With {min(pairs)} pairs the Wilcoxon test cannot fall below p = {2.0 ** (1 - min(pairs)):.3g}."
            )
        if any(run.kind != "run" for run in self.runs):
            notes.append(
                "A search takes part with its best trial, chosen by "
                + " and ".join(Labels().metric(m, unit=False) for m in self.runs[0].metrics)
                + "; its seeds were seen while searching."
            )
        lengths = {e.rounds for e in self.entries}
        if len(lengths) > 1:
            notes.append(f"The runs are of different lengths ({', '.join(map(str, sorted(lengths)))} rounds).")
        data = {str(run.value("dataset", "")) for run in self.runs}
        if len(data) > 1:
            notes.append(
                f"The runs used different data sets ({', '.join(sorted(data))}): their numbers are not comparable."
            )
        return notes + machines.side_by_side(
            {name: run.provenance for name, run in zip(names(self.runs), self.runs, strict=True)}
        )

    def long(self) -> pd.DataFrame:
        """Tidy: run, method, metric, seed, value (as recorded)."""
        return pd.DataFrame(
            [
                {"run": e.run, "method": e.method, "metric": e.metric, "seed": s, "value": v}
                for e in self.entries
                for s, v in e.values.items()
            ]
        )


def compare(
    paths: Sequence[str | os.PathLike[str]], *, metrics: Sequence[str] = (), readout: str = "last"
) -> Comparison:
    """Two or more runs side by side. A search takes part with its best trial (by what it selected on), a `kind: run`
    directory with all its trials, each a seed.

    Raises `UserError` for a folder that is no run, an unknown metric, or a run without a result."""
    runs = load_all(paths)
    if isinstance(metrics, str):
        metrics = (metrics,)
    problems = [unknown("metric", m, METRICS, "--metric") for m in metrics if m not in METRICS]
    if readout not in ("last", "best"):
        problems.append(unknown("readout", readout, ("last", "best"), "--readout"))
    labelled = names(runs)
    problems += [
        f"The run {n!r} has no completed trial to compare. Let it finish (`fedtune resume {r.path}`)."
        for n, r in zip(labelled, runs, strict=True)
        if r.best is None
    ]
    if problems:
        raise UserError(*problems)
    asked = list(metrics) or [m for m in DEFAULT_METRICS if any(m in r.rounds.columns for r in runs)]
    entries: list[Entry] = []
    for metric in asked:
        first: Mapping[int, float] | None = None
        for name, run in zip(labelled, runs, strict=True):
            values = seed_values(run, metric, readout)
            chosen = run.rounds[run.rounds["trial"].isin(run.chosen)]
            rounds = int(chosen["round"].max()) if len(chosen) else 0
            entries.append(
                Entry(
                    name,
                    run.method,
                    metric,
                    None if run.kind == "run" else run.best,
                    rounds,
                    values,
                    summarise(list(values.values())),
                    None if first is None else paired(first, values),
                )
            )
            first = values if first is None else first
    return Comparison(runs, asked, readout, entries)


def seed_values(run: Run, metric: str, readout: str = "last") -> dict[int, float]:
    """The run's value of the metric by seed."""
    direction = METRICS[metric].direction if metric in METRICS else "maximize"
    return run.over_seeds(metric, "last" if readout == "last" else direction)


def _row(entry: Entry) -> dict[str, object]:
    scale = 100.0 if entry.metric in PERCENT else 1.0
    test = entry.test
    return {
        "run": entry.run,
        "method": entry.method,
        "metric": entry.metric,
        "shown": entry.summary.shown(scale, 2 if scale == 100 else 4),
        "mean": scale * entry.summary.mean,
        "std": scale * entry.summary.std,
        "low": scale * entry.summary.low,
        "high": scale * entry.summary.high,
        "n": entry.summary.n,
        "rounds": entry.rounds,
        "trial": entry.trial,
        "difference": scale * test.difference if test else None,
        "pairs": test.n if test else None,
        "t_p": test.t_p if test else None,
        "wilcoxon_p": test.wilcoxon_p if test else None,
    }


def _signed(value: float | None) -> str:
    return "–" if value is None or value != value else f"{value:+.2f}"


def _p(value: float | None) -> str:
    return "–" if value is None or value != value else f"{value:.3g}"
