"""One run directory in memory: what was searched, its trials, their rounds, and which trial is the best.

`analysis.runs.load` makes it. Names of files and fields are in `search_spaces.run_folder`.

A run whose space varies conditions of the experiment has a best configuration under each of them, and none in all:
`within` gives the part of it under one condition, which is a run like any other.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from analysis.estimate import Estimate, Standing, configuration, estimate, missed_target, standing
from analysis.runs import pareto
from analysis.runs.conditions import show
from analysis.runs.importance import importances
from analysis.runs.measured import Measured
from analysis.runs.requirements import Kept, kept
from analysis.runs.rounds import at_best_of, readout
from analysis.stopping import Audit, Grace, audit, grace
from search_spaces import run_folder
from search_spaces.metrics import METRICS, SHARES, is_unreached, waits
from search_spaces.requirements import Requirement, read_all, violation


@dataclass(frozen=True)
class Run(Measured):
    """One run directory in memory: what it describes, what its trials measured, and which of them is the best."""

    @cached_property
    def standing(self) -> Standing | None:
        """What a search for one metric knows of its configurations; None for other runs, those under several conditions
        among them, and before two federations ran to their end. Where it has requirements, only configurations that
        keep them may win, or, where none does, the one that misses them least."""
        if self.kind == "run" or len(self.metrics) != 1 or self.crossed:
            return None
        found = standing(self.frozen, 1.0 if self.maximise else -1.0, self._by_seed)
        if found is None or not self.requirements:
            return found
        missed = {number: self.missed(number) for number in found.ranked}
        least = min(missed.values())
        first = next(number for number in found.ranked if missed[number] == least)
        allowed = {number for number in missed if missed[number] == 0} or {first}
        seeds = [seeds if number in allowed else 0 for number, seeds in zip(found.numbers, found.seeds, strict=True)]
        return dataclasses.replace(found, seeds=tuple(seeds))

    @cached_property
    def requirements(self) -> tuple[Requirement, ...]:
        """What a configuration must keep to be selected."""
        return read_all(self.experiment.get("require") or (), str(self.path / run_folder.EXPERIMENT))

    def missed(self, number: int) -> float:
        """By how much the configuration of a completed trial misses the requirements; 0 where it keeps all."""
        if not self.requirements:
            return 0.0
        values = {one.metric: self._end(one.metric, number) for one in self.requirements}
        return violation(self.requirements, values)

    def _end(self, metric: str, number: int) -> float:
        """The metric's last value, mean over the federations of a trial's configuration that measured it; nan where
        none did, or one of them did not reach the target that the metric waits for."""
        values = [self.ends.get(one, {}).get(metric, math.nan) for one in self.federations(number)]
        if not METRICS[metric].to_target:
            values = [value for value in values if not math.isnan(value)]
        return sum(values) / len(values) if values else math.nan

    @cached_property
    def kept(self) -> list[Kept]:
        """Of the winner, every requirement: whether it is kept, and how likely."""
        if not self.requirements or self.best is None or self.kind == "run":
            return []  # without the rounds of all trials, which take seconds to read of a large run
        best = next(trial for trial in self.frozen if trial.number == self.best)
        found = []
        for one in self.requirements:
            values = {number: row.get(one.metric, math.nan) for number, row in self.ends.items()}
            own = self._end(one.metric, self.best)
            found.append(kept(one, self.frozen, values, best, own))
        return found

    @cached_property
    def audit(self) -> Audit | None:
        """What stopping trials cost, of a search that measures it (`--audit`)."""
        if self.kind == "run" or len(self.metrics) != 1 or self.crossed or not self.experiment.get("audit"):
            return None
        return audit(self.frozen, 1.0 if self.maximise else -1.0, self._by_seed)

    @cached_property
    def grace(self) -> Grace | None:
        """What is known of the grace, of a search that chooses it from its own trials (`--grace auto`)."""
        return grace(self.frozen) if self.experiment.get("grace") == "auto" and not self.crossed else None

    @cached_property
    def estimate(self) -> Estimate | None:
        """What the search says of its winner, where it has a `standing`."""
        return self.estimate_for(None)

    def estimate_for(self, fresh: int | None) -> Estimate | None:
        """The same, with the interval of the winner's mean over so many `fresh` seeds, which is wider than that over
        all seeds (None)."""
        if self.standing is None:
            return None
        ends = (0.0, 1.0) if self.metrics[0] in SHARES else (-math.inf, math.inf)
        paper = (trial.number for trial in self.frozen if self.origin(trial) == run_folder.PAPER)
        return estimate(self.standing, ends=ends, fresh=fresh, paper=next(paper, None))

    @cached_property
    def ranked(self) -> Sequence[int]:
        """The numbers of completed trials, best first, the earlier one first of a draw: of a search for one metric one
        of each configuration, by its estimate (`analysis.estimate.winner`); else, and before there is an estimate, by
        the value of the first metric, of several metrics after the knee of their front. Configurations that miss a
        requirement come after those that keep all, the one that misses least first, and those that did not reach the
        target that is the metric after those that did."""
        if self.standing is not None:
            kept = self.standing.ranked
            ended = [t for t in reversed(self.frozen) if t.state.name == "COMPLETE"]
            own = {configuration(t): t.number for t in ended if self.requirements or missed_target(t)}
            rest = [number for number in sorted(own.values()) if number not in kept]
            return [*kept, *sorted(rest, key=self.missed)]
        sign = -1.0 if self.maximise else 1.0
        done = [t for t in self.frozen if t.state.name == "COMPLETE" and t.values]
        # Of a target that was not reached there is no value; it comes last.
        order = {t.number: math.inf if is_unreached(t.values[0]) else sign * t.values[0] for t in done}
        numbers = sorted(order, key=lambda number: (self.missed(number), order[number], number))
        return numbers if self.knee is None else [self.knee, *(number for number in numbers if number != self.knee)]

    @property
    def best(self) -> int | None:
        """The winner's number, if there is one; None where trials are under several conditions, as one of them may
        just be easier than the others."""
        return self.ranked[0] if self.ranked and not self.crossed else None

    @cached_property
    def chosen(self) -> Sequence[int]:
        """The trials that stand for the run: a search's best one (of a race all its federations), all completed ones of
        a final run (one seed each)."""
        if self.kind == "run":
            return [trial.number for trial in self.frozen if trial.state.name == "COMPLETE"]
        return [] if self.best is None else self.federations(self.best)

    def over_seeds(self, metric: str, how: str = "last") -> dict[int, float]:
        """The chosen trials' value of the metric by seed: the last round's (`last`), or the best over rounds
        (`maximize`, `minimize`). Nothing of a metric whose target was not reached on one of them: the others alone
        would flatter."""
        found: dict[int, float] = {}
        for number in self.chosen:
            found |= (of_trial := readout(self.lines, number, metric, how))
            if waits(metric) and len(of_trial) < len({seed for _, seed in self.lines.get(number, {})}):
                return {}
        return dict(sorted(found.items()))

    def at_best_of(self, metric: str, chooser: str, direction: str) -> dict[int, float]:
        """The chosen trials' value of `metric` by seed, each seed's in the round that is best by `chooser`."""
        found: dict[int, float] = {}
        for number in self.chosen:
            found |= at_best_of(self.lines, number, metric, chooser, direction)
        return dict(sorted(found.items()))

    @cached_property
    def front(self) -> list[int]:
        """With several objectives: of the completed trials that keep the requirements, those that no other one beats in
        all of them; otherwise the best."""
        if len(self.directions) == 1:
            return [] if self.best is None else [self.best]
        if self.crossed:
            return []
        done = [t for t in self.frozen if t.state.name == "COMPLETE"]
        kept = [t for t in done if self.missed(t.number) == 0 and not missed_target(t)]
        return pareto.front_of_trials(kept, self.directions)

    @property
    def knee(self) -> int | None:
        """With several objectives: of the front, the trial that gives up least of one for what it gains in the others
        (`analysis.runs.pareto.knee`)."""
        if len(self.directions) == 1 or not self.front:
            return None
        values = [self.trial(number).values or () for number in self.front]
        return self.front[pareto.knee(pareto.signed(values, self.directions))]

    def value(self, key: str, default: Any = None) -> Any:
        """A setting such as `dataset` or `rounds`: of the best trial, else of the fixed values, else of the request. Of
        a condition that trials differ in, all its values, joined by commas."""
        several = dict.fromkeys(item[key] for item in self.conditions if key in item)
        if len(several) > 1:
            return ", ".join(show(value) for value in several)
        number = self.best if self.best is not None else (self.frozen[0].number if self.frozen else None)
        config = self.config(number) if number is not None else self.fixed
        return config.get(key, self.experiment.get(key, default))

    @cached_property
    def importances(self) -> tuple[dict[str, float], ...]:
        """For every objective, how much each searched parameter matters in the completed trials (0 to 1), largest
        first; several figures choose by it what they draw."""
        done = [t for t in self.frozen if t.state.name == "COMPLETE"]
        return tuple(importances(self.directions, done, target) for target in range(len(self.directions)))


def when(value: object) -> str:
    """A recorded moment as `2026-11-21 10:55`, in the recorder's own clock; empty where there is none."""
    try:
        return datetime.fromisoformat(str(value)).strftime("%Y-%m-%d %H:%M")
    except ValueError:
        return str(value or "")
