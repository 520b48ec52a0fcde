"""The leaderboard of `fedtune auto`: one row per method, the leader first.

While fresh seeds are missing for a method that has a best configuration, methods are ranked by what the search says of
their best; when the first of them are there, by the mean over fresh seeds, which the search never saw. Methods that are
told from the leader get no further seeds, and stand below those that had more. Every other method is compared with the
leader on pairs (seed k is the same federation for all), and the p-values are corrected by Holm's method.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from analysis.runs import Run
from analysis.runs.rounds import count_lines, total_of
from analysis.stats import holm, paired, summarise
from analysis.tables.table import Column, Table
from search_spaces.metrics import METRICS, is_unreached, twin
from search_spaces.requirements import violation


@dataclass(frozen=True)
class LeaderboardRow:
    """One method. Values are of the metric that was selected by, after the last round."""

    method: str
    title: str
    #: Its best configuration: the trial's number in the method's search, and the searched values.
    trial: int | None
    configuration: Mapping[str, Any]
    #: What the search says of that configuration: its estimate, or before there is one its value.
    search: float
    #: Over fresh seeds: value by seed, mean, and the bounds of the 95 % t interval.
    fresh: Mapping[int, float]
    mean: float
    low: float
    high: float
    #: By how much the requirements are missed over fresh seeds, before these are there in the search; 0: it keeps all.
    missed: float
    #: The mean of the same metric on the test set.
    test: float
    #: The mean difference to the leader on the same seeds, and the p of the paired t test, corrected; nan for the
    #: leader and without a test.
    difference: float
    p: float
    #: Trials of the search by outcome.
    trials: int
    done: int
    stopped: int
    failed: int
    #: What the search spent: rounds of single federations, seconds of computing, bytes sent both ways.
    seed_rounds: int
    seconds: float
    bytes: float
    #: The expected best of as many trials as the method with the fewest has.
    expected: float
    #: By trial of the search that did not fail, its last value.
    ends: tuple[float, ...]

    def record(self) -> dict[str, Any]:
        """A row of the table; every searched value is written out in one text."""
        shown = ", ".join(f"{key}={_short(value)}" for key, value in self.configuration.items())
        return {key: getattr(self, key) for key in COLUMNS} | {"configuration": shown, "seeds": len(self.fresh)}


COLUMNS = ["method", "title", "trial", "search", "mean", "low", "high", "test", "difference", "p", "missed", "expected"]
COLUMNS += ["trials", "done", "stopped", "failed", "seed_rounds", "seconds", "bytes"]


def leaderboard_rows(
    searches: Mapping[str, Run], fresh: Mapping[str, Run], metric: str, readings: int
) -> list[LeaderboardRow]:
    """The leaderboard. readings: fresh seeds that a method has at least, where the budget was enough."""
    sign = 1.0 if METRICS[metric].direction == "maximize" else -1.0
    ends = {name: last_values(run) for name, run in searches.items()}
    fewest = min((len(values) for values in ends.values() if values), default=0)
    found = [_row(run, fresh.get(name), metric, ends[name], fewest, sign) for name, run in searches.items()]
    whole = bool(fresh) and all(_over(run, readings) for run in fresh.values())
    if not whole:  # some methods have no fresh seeds yet, so all are judged by the search
        found = [replace(row, missed=_missed_in_search(searches[row.method])) for row in found]
    order = sorted(found, key=lambda row: _better_first(row.mean if whole and row.fresh else row.search, sign))
    # Those that were told from the leader have fewer seeds than it, and their means are over other seeds than its.
    seeds = {name: len(run.frozen) if whole else 0 for name, run in fresh.items()}
    order.sort(key=lambda row: (row.trial is None, row.missed, -seeds.get(row.method, 0)))
    return _tested(order) if whole else order


def _missed_in_search(run: Run) -> float:
    return math.inf if run.best is None else run.missed(run.best)


def _missed(run: Run, fresh: Run | None) -> float:
    """Over fresh seeds; before there are any, in the search."""
    if fresh is None or not fresh.chosen:
        return _missed_in_search(run)
    means = {one.metric: summarise(list(fresh.over_seeds(one.metric).values())).mean for one in run.requirements}
    return violation(run.requirements, means)


def _better_first(value: float, sign: float) -> float:
    return math.inf if math.isnan(value) else -sign * value


def _over(run: Run, readings: int) -> bool:
    """Whether the fresh seeds of a method have ended by which methods are ranked: those that come first."""
    planned = min(readings, int(run.experiment["trials"]))
    return sum(trial.state.is_finished() for trial in run.frozen) >= planned


def _row(run: Run, fresh: Run | None, metric: str, ends: Sequence[float], fewest: int, sign: float) -> LeaderboardRow:
    best = run.best
    values = {} if fresh is None else fresh.over_seeds(metric)
    over = summarise(list(values.values()))
    test = {} if fresh is None else fresh.over_seeds(twin(metric))
    outcomes = Counter(trial.state.name for trial in run.frozen)
    return LeaderboardRow(
        method=run.method,
        title=run.method_title,
        trial=best,
        configuration={} if best is None else run.parameters(best),
        search=_said(run, best),
        fresh=values,
        mean=over.mean,
        low=over.low,
        high=over.high,
        missed=_missed(run, fresh),
        test=summarise(list(test.values())).mean,
        difference=math.nan,
        p=math.nan,
        trials=len(run.frozen),
        done=outcomes["COMPLETE"],
        stopped=outcomes["PRUNED"],
        failed=outcomes["FAIL"],
        seed_rounds=count_lines(run.lines),
        seconds=total_of(run.lines, "seconds"),
        bytes=total_of(run.lines, "bytes_up") + total_of(run.lines, "bytes_down"),
        expected=expected_best(ends, fewest, sign),
        ends=tuple(ends),
    )


def _said(run: Run, best: int | None) -> float:
    if best is None:
        return math.nan
    return run.estimate.mean if run.estimate is not None else _value(run, best)


def _value(run: Run, number: int) -> float:
    value = float(next(trial.values[0] for trial in run.frozen if trial.number == number))
    return math.nan if is_unreached(value) else value


def last_values(run: Run) -> list[float]:
    """By trial that measured the objective and did not fail, its last value; of a stopped one that of its last round.
    None of a trial that did not reach the target that is the objective."""
    found = []
    for trial in run.frozen:
        if trial.state.name == "COMPLETE" and trial.values:
            found.append(float(trial.values[0]))
        elif trial.state.name == "PRUNED" and trial.intermediate_values:
            found.append(float(trial.intermediate_values[max(trial.intermediate_values)]))
    return [value for value in found if np.isfinite(value) and not is_unreached(value)]


def _tested(order: Sequence[LeaderboardRow]) -> list[LeaderboardRow]:
    """The rows with the differences to the first one and corrected p-values."""
    leader, *others = order
    tests = [paired(leader.fresh, row.fresh) for row in others]
    corrected = holm([test.t_p for test in tests])
    compared = [
        replace(row, difference=test.difference, p=p) for row, test, p in zip(others, tests, corrected, strict=True)
    ]
    return [leader, *compared]


def leaderboard_table(
    listed: Sequence[LeaderboardRow], metric: str, notes: Sequence[str] = (), *, required: bool = False
) -> Table:
    """The leaderboard as a table for the terminal, the report, CSV and JSON; accuracies are shown in per cent, and
    fractions in files."""
    from analysis.labels import Labels, unit_in_files

    scale, unit = Labels().scale(metric), unit_in_files(metric)

    def value(number: Any) -> str:
        return "–" if number is None or math.isnan(number) else f"{scale * number:.2f}"

    def half(row_half: Any) -> str:
        return "–" if row_half is None or math.isnan(row_half) else f"{scale * row_half:.1f}"

    def p_value(p: Any) -> str:
        return "–" if p is None or math.isnan(p) else "<0.001" if p < 0.001 else f"{p:.3f}"

    records = [row.record() | {"half": (row.high - row.low) / 2} for row in listed]
    columns = [
        Column("method", "method", str, right=False),
        Column("mean", "fresh", value, unit=unit),
        Column("half", "±", half, unit=unit),
        Column("difference", "diff", value, unit=unit),
        Column("p", "p", p_value),
        *([Column("missed", "kept", lambda missed: "no" if missed else "yes")] if required else []),
        Column("test", "test", value, unit=unit),
        Column("search", "search", value, unit=unit),
        Column("trials", "trials", str),
        Column("seed_rounds", "rounds", str),
    ]
    return Table(columns, records, notes=notes)


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def expected_best(values: Sequence[float], k: int, sign: float = 1.0) -> float:
    """The expected best of `k` values drawn from `values` with replacement: Σ v_(i) [(i/n)^k - ((i-1)/n)^k] over the n
    values in rising order; nan where there are none. `sign`: 1 where more is better, -1 where less is.

    Source: Dodge et al., Show Your Work: Improved Reporting of Experimental Results, 2019, Sec. 3.1."""
    ordered = np.sort(sign * np.asarray(values, dtype=float))
    n = len(ordered)
    if n == 0:
        return float("nan")
    below = (np.arange(n + 1) / n) ** k
    return float(sign * (ordered * np.diff(below)).sum())
