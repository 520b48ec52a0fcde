"""Runs side by side: mean ± standard deviation over seeds, and paired tests against the first run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis import machines
from analysis.labels import PERCENT, Labels, decimals, scale, unit_in_files
from analysis.runs import Paths, Run, load_runs, run_names
from analysis.stats import Paired, Summary, holm, paired, summarise
from analysis.tables import partitions
from analysis.tables.cells import reading
from analysis.tables.differences import Values, data_sets, differences, differences_table, lengths
from analysis.tables.table import Column, Table
from search_spaces.errors import UserError, unknown
from search_spaces.metrics import METRICS, twin
from search_spaces.shell import quote

DEFAULT_METRICS = ("global_accuracy", "local_accuracy")


@dataclass(frozen=True)
class ComparedRun:
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
        return scale(self.metric)

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


@dataclass(frozen=True)
class Comparison:
    """What `compare` found; `entries` are ordered by metric, then run."""

    runs: Sequence[Run]
    metrics: Sequence[str]
    readout: str
    entries: Sequence[ComparedRun]

    def table(self) -> Table:
        """One row per run and metric, mean and spread; accuracies in per cent."""
        return results_table(self.entries, self.readout, self._notes_on_results())

    def tests(self) -> Table | None:
        """The paired tests against the first run, one row per other run and metric; None where there is no other."""
        first = run_names(self.runs)[0]
        return tests_table(self.entries, first, _how_tested(first, self.entries))

    def tables(self) -> list[Table]:
        """Everything there is to read: results, paired tests, and the settings that differ."""
        return [table for table in (self.table(), self.tests(), self.settings()) if table is not None]

    def records(self) -> Table:
        """The same for CSV and JSON: every number as recorded in a column of its own, its unit, with the 95 % t
        interval (low, high), and what the runs differ in (`config.…`)."""
        keys = (
            "run",
            "method",
            "metric",
            "unit",
            "trial",
            "rounds",
            "n",
            "mean",
            "std",
            "low",
            "high",
            "best_mean",
            "best_std",
            "best_by",
            "difference",
            "difference_std",
            "pairs",
            "t_p",
            "t_p_holm",
            "wilcoxon_p",
            "seeds_needed",
        )
        settings = {f"config.{key}": values for key, values in self.differences().items()}
        rows = [e.row() | {key: values.get(e.run) for key, values in settings.items()} for e in self.entries]
        return Table([Column(key, key) for key in (*keys, *settings)], rows, notes=self.notes())

    def differences(self) -> dict[str, Values]:
        """The settings in which the runs differ: by parameter, the value of every run that has it."""
        return differences(self._named())

    def settings(self) -> Table | None:
        """The same as a table, one row per run; None where they differ in nothing."""
        found = self.differences()
        return differences_table(found, list(self._named())) if found else None

    def _named(self) -> dict[str, Run]:
        return dict(zip(run_names(self.runs), self.runs, strict=True))

    def to_json(self) -> dict[str, Any]:
        """Plain data for --json: `results` and `seeds` (by seed), as recorded, so that accuracies are fractions,
        `differences` (values by parameter and run), `notes`."""
        seeds = [
            {"run": e.run, "metric": e.metric, "values": {str(s): v for s, v in e.values.items()}} for e in self.entries
        ]
        return {
            "readout": self.readout,
            "results": self.records().json(),
            "seeds": seeds,
            "differences": {key: dict(values) for key, values in self.differences().items()},
            "notes": self.notes(),
        }

    def notes(self) -> list[str]:
        """What the reader of the tables has to know."""
        return [*_how_tested(run_names(self.runs)[0], self.entries), *self._notes_on_results()]

    def _notes_on_results(self) -> list[str]:
        notes: list[str] = []
        if self.readout == "best":
            notes.append("The best round was picked on the test data itself, as many papers do: it is optimistic.")
        else:
            notes += _how_chosen({e.metric: e.chooser for e in self.entries})
        if ended := [n for n, run in self._named().items() if any(map(run.only_at_end, self.metrics))]:
            notes.append(
                f"No best round is known of {' and '.join(ended)}, which measured the test set only where a trial may "
                "end (eval_test=end)."
            )
        if not self.differences():
            notes.append("The runs have the same settings, as far as they have them in common.")
        if any(run.kind != "run" for run in self.runs):
            notes.append(
                "A search takes part with its best trial, chosen by "
                + " and ".join(Labels().metric(m, unit=False) for m in self.runs[0].metrics)
                + "; its seeds were seen while searching."
            )
        notes += lengths(e.rounds for e in self.entries)
        notes += data_sets(run.value("dataset", "") for run in self.runs)
        notes += partitions.sentences([(self._named()[e.run], e.metric, e.values) for e in self.entries])
        return notes + machines.side_by_side(
            {name: run.provenance for name, run in zip(run_names(self.runs), self.runs, strict=True)}
        )


def compare(paths: Paths, *, metrics: Sequence[str] = (), readout: str = "last") -> Comparison:
    """Two or more runs side by side. A search takes part with its best trial (by what it selected on), a `kind: run`
    directory with all its trials, each a seed.

    Raises `UserError` for a folder that is no run, an unknown metric, or a run without a result."""
    runs = load_runs(paths)
    if isinstance(metrics, str):
        metrics = (metrics,)
    problems = [unknown("metric", m, METRICS, "--metric") for m in metrics if m not in METRICS]
    if readout not in ("last", "best"):
        problems.append(unknown("readout", readout, ("last", "best"), "--readout"))
    labelled = run_names(runs)
    problems += [
        f"The run {n!r} was made under several conditions of the experiment, so it has no single configuration to "
        "compare. Use `fedtune compare` or `analysis.pivots`, which make a column for each condition."
        for n, r in zip(labelled, runs, strict=True)
        if r.crossed
    ]
    problems += [
        f"The run {n!r} has no completed trial to compare. Let it finish (`fedtune resume {quote(str(r.path))}`)."
        for n, r in zip(labelled, runs, strict=True)
        if r.best is None and not r.crossed
    ]
    if problems:
        raise UserError(*problems)
    asked = list(metrics) or [m for m in DEFAULT_METRICS if any(m in r.rounds.columns for r in runs)]
    entries = [entry for metric in asked for entry in _entries(runs, metric, readout)]
    return Comparison(runs, asked, readout, entries)


def _entries(runs: Sequence[Run], metric: str, readout: str) -> list[ComparedRun]:
    """One metric of all runs, each tested against the first."""
    values = [run.over_seeds(metric, reading(metric, readout)) for run in runs]
    tests = [paired(values[0], others) for others in values[1:]]
    corrected = [None, *holm([test.t_p for test in tests])]
    chooser = _chooser(runs, metric)
    seen = [run.rounds.loc[run.rounds["trial"].isin(run.chosen), "round"] for run in runs]
    return [
        ComparedRun(
            run=name,
            method=run.method,
            metric=metric,
            trial=None if run.kind == "run" else run.best,
            rounds=int(rounds.max()) if len(rounds) else 0,
            values=own,
            summary=summarise(list(own.values())),
            best=summarise(list(run.at_best_of(metric, chooser, METRICS[metric].direction).values())),
            chooser=chooser,
            test=test,
            holm_p=holm_p,
        )
        for name, run, rounds, own, test, holm_p in zip(
            run_names(runs), runs, seen, values, [None, *tests], corrected, strict=True
        )
    ]


def _chooser(runs: Sequence[Run], metric: str) -> str:
    """By what best rounds are chosen: the metric on the validation share where all runs that know their best rounds
    have recorded it, as rounds of one table are chosen in one way; else the metric itself."""
    validation = twin(metric)
    if not validation.startswith("val_"):
        return metric
    curves = [run for run in runs if not run.only_at_end(metric)]
    measured = all(run.at_best_of(metric, validation, METRICS[metric].direction) for run in curves)
    return validation if measured else metric


def _how_chosen(choosers: Mapping[str, str]) -> list[str]:
    """What best rounds are, for choosers by metric."""
    optimistic = [metric for metric, chooser in choosers.items() if chooser == metric]
    notes = []
    if len(optimistic) < len(choosers):
        notes.append("Best round: each seed's own, chosen on the validation share; the value is that of the test data.")
    if optimistic:
        of = Labels()
        which = f" of {' and '.join(of.metric(m, unit=False) for m in optimistic)}" if notes else ""
        notes.append(
            f"Best round{which}: each seed's own, chosen on the same test curve, as many papers do: it is optimistic."
        )
    return notes


def _how_tested(first: str, entries: Sequence[ComparedRun]) -> list[str]:
    """What the paired tests against the run `first` are, and where there is none."""
    pairs = [e.test.n for e in entries if e.test is not None]
    if not pairs:
        return []
    notes = [
        f"Δ and p compare each run with {first} on the seeds both have; p-values are two-sided. Those called Holm are "
        "corrected for all runs tested by the same metric, the others are not."
    ]
    if min(pairs) < 2:
        notes.append("Where fewer than two seeds are common no paired test is possible.")
    elif min(pairs) < 6:
        notes.append(f"With {min(pairs)} pairs the Wilcoxon test cannot fall below p = {2.0 ** (1 - min(pairs)):.3g}.")
    if max(pairs) > 1:
        notes.append(
            "Seeds needed: with so many a paired t test at 0.05 would see a difference of this mean and spread in four "
            "of five repetitions."
        )
    return notes


def results_table(entries: Sequence[ComparedRun], readout: str, notes: Sequence[str]) -> Table:
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


def tests_table(entries: Sequence[ComparedRun], first: str, notes: Sequence[str]) -> Table | None:
    """One row per run and metric that was tested against the run `first`; None where none was."""
    rows = [entry.row() for entry in entries if entry.test is not None]
    columns = [
        Column("run", "run", right=False),
        Column("metric", "metric", right=False),
        Column("shift", "Δ ± std"),
        Column("pairs", "pairs"),
        Column("t_p", "p (paired t)", _p_text),
        Column("t_p_holm", "p (Holm)", _p_text),
        Column("wilcoxon_p", "p (Wilcoxon)", _p_text),
        Column("seeds_needed", "seeds needed"),
    ]
    return Table(columns, rows, f"Differences to {first}", notes) if rows else None


def _p_text(value: float | None) -> str:
    return "–" if value is None or value != value else f"{value:.3g}"
