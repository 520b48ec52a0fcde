"""One run directory in memory: what was searched, its trials, their rounds, and which trial is the best.

`analysis.runs.load_run` makes it. Names of files and fields are in `search_spaces.run_folder`.

A run whose space varies conditions of the experiment has a best configuration under each of them, and none in all:
`within` gives the part of it under one condition, which is a run like any other.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from analysis.estimate import Estimate, Standing, ahead, configuration, estimate, missed_target, standing
from analysis.estimate.prior import flat
from analysis.estimate.winner import BySeed
from analysis.runs import pareto, race
from analysis.runs.conditions import conditions, holds, means, show
from analysis.runs.importance import importances
from analysis.runs.record import Record
from analysis.runs.requirements import Kept, kept
from analysis.runs.rounds import (
    Lines,
    at_best_of,
    curves_by_seed,
    curves_table,
    last_values,
    read_lines,
    readout,
    rounds_table,
)
from analysis.runs.trials import (
    origin,
    read_config,
    read_confusion,
    read_names,
    read_partition,
    searched_parameters,
    trials_table,
)
from search_spaces import run_folder
from search_spaces.errors import UserError
from search_spaces.metrics import METRICS, SHARES, is_unreached, twin, waits
from search_spaces.requirements import Requirement, read_all, violation

if TYPE_CHECKING:
    import pandas as pd
    from optuna.trial import FrozenTrial


@dataclass(frozen=True)
class Run:
    """One run directory: its record, its trials, what these measured round by round, and which of them is the best.

    The larger tables are read when first asked for, and pandas with them: what a listing says of a run needs none."""

    record: Record
    #: Optuna's direction per objective: "maximize" or "minimize".
    directions: tuple[str, ...]
    #: Names of the metrics trials were selected on, one per objective.
    metrics: tuple[str, ...]
    #: The trials as the study holds them.
    frozen: Sequence[FrozenTrial] = field(repr=False)

    # -- what stands in the record, by the same names ------------------------------------------------------------------

    @property
    def path(self) -> Path:
        return self.record.path

    @property
    def experiment(self) -> Mapping[str, Any]:
        return self.record.experiment

    @property
    def space(self) -> Mapping[str, Any]:
        return self.record.space

    @property
    def provenance(self) -> Mapping[str, Any]:
        return self.record.provenance

    @property
    def name(self) -> str:
        return self.record.name

    @property
    def shown(self) -> str:
        return self.record.shown

    @property
    def title(self) -> str:
        return self.record.title

    @property
    def method(self) -> str:
        return self.record.method

    @property
    def method_title(self) -> str:
        return self.record.method_title

    @property
    def heading(self) -> str:
        """The method and its space, whose own title may begin with the method's."""
        return self.title if self.title.startswith(self.method_title) else f"{self.method_title}: {self.title}"

    @property
    def kind(self) -> str:
        return self.record.kind

    @property
    def raced(self) -> bool:
        return self.record.raced

    @property
    def single(self) -> bool:
        return self.record.single

    @property
    def taken(self) -> int:
        return self.record.taken

    @property
    def varied(self) -> Sequence[Mapping[str, Any]]:
        return self.record.varied

    def computed(self, number: int) -> Mapping[str, Any]:
        return self.record.computed(number)

    # -- trials, and the conditions that they are under ----------------------------------------------------------------

    @cached_property
    def trials(self) -> pd.DataFrame:
        """One row per trial, sorted by `number`.

        number, state (COMPLETE, PRUNED, FAIL, RUNNING, WAITING), value (first objective; nan for a target that was not
        reached), values (tuple), stop_reason, rounds, seconds, error, origin (see `origin`), taken (whether the result
        is an earlier run's), start, end (datetimes), and each searched parameter under its key."""
        frame = trials_table(self.frozen, self.taken)
        unfinished = frame["rounds"].isna()
        if unfinished.any() and not self.rounds.empty:
            # A live trial has not told the study yet how far it is; its file has.
            frame.loc[unfinished, "rounds"] = frame.loc[unfinished, "number"].map(
                self.rounds.groupby("trial")["round"].max()
            )
        return frame

    def federations(self, number: int) -> list[int]:
        """Where trials are single federations the completed ones of the configuration of a trial; else the trial
        itself."""
        return race.federations(self.experiment, self.frozen, number)

    def origin(self, trial: FrozenTrial) -> str:
        """Where a trial's values come from, such as `the paper's values`; empty where the sampler proposed them."""
        return origin(trial)

    @cached_property
    def conditions(self) -> Sequence[Mapping[str, Any]]:
        """The conditions that trials were begun under, in the order of the space; one empty condition where nothing is
        varied."""
        return conditions(self.varied, self.frozen)

    @property
    def crossed(self) -> bool:
        """Whether there are trials under more than one condition."""
        return len(self.conditions) > 1

    def within(self, condition: Mapping[str, Any]) -> Self:
        """The part of the run that is under a condition: its trials, with the numbers they have."""
        kept = [trial for trial in self.frozen if holds(condition, trial.params)]
        return dataclasses.replace(self, frozen=kept)

    def check_fixed(self, asked: Mapping[str, str]) -> None:
        """Raises `UserError` where a run under one condition, or none, has not these values, given as text by key."""
        here = {**self.record.fixed, **self.conditions[0]}
        for key, text in asked.items():
            if key not in here or not means(text, here[key]):
                has = f"all of it is under {key}={show(here[key])}" if key in here else f"it has no condition {key}"
                raise UserError(f"{self.path} has nothing under {key}={text}: {has}. Leave --where {key} out.")

    def trial(self, number: int) -> FrozenTrial:
        """The trial of that number."""
        return self._by_number[number]

    @cached_property
    def _by_number(self) -> Mapping[int, FrozenTrial]:
        return {trial.number: trial for trial in self.frozen}

    @cached_property
    def searched(self) -> Sequence[Mapping[str, Any]]:
        """The searched parameters as space.json describes them (keys, symbols, bounds, grids)."""
        return searched_parameters(self.space.get("search") or [], self.varied, self.frozen)

    @cached_property
    def keys(self) -> Sequence[str]:
        """Keys of the searched parameters that occur in at least one trial, in the space's order."""
        present = {key for trial in self.frozen for key in trial.params}
        return [item["key"] for item in self.searched if item["key"] in present]

    @property
    def selects_on_test(self) -> bool:
        """True where trials were chosen by a metric of the test data."""
        return self.kind != "run" and any(not m.startswith("val_") and twin(m) != m for m in self.metrics)

    @property
    def maximise(self) -> bool:
        """Whether the first objective is better when larger."""
        return self.directions[0] == "maximize"

    def parameters(self, number: int) -> dict[str, Any]:
        """The searched values of a trial, and its condition, by key."""
        return dict(self.trial(number).params)

    def config(self, number: int) -> dict[str, Any]:
        """Every parameter of a trial, searched and fixed; from its config.yaml, the request and the study, of which the
        last two are believed, as a part of a config.yaml looks like a whole one."""
        known = read_config(self.path, number)
        searched = {name.rsplit(".", 1)[-1]: value for name, value in self.parameters(number).items()}
        values = self.experiment.get("values") or {}
        asked = {key: values[key] for key in values if key not in searched}
        return self.record.fixed | known | asked | searched

    def partition(self, number: int) -> dict[int, np.ndarray]:
        """Samples of every class at every client, (clients, classes), by seed; empty where it was not recorded."""
        return read_partition(self.path, number)

    def confusion(self, number: int) -> dict[int, dict[str, np.ndarray]]:
        """Samples of class i that the global model of a final run's trial takes for class j, (classes, classes), by
        seed and part of the data (`validation`, `test`); empty where it was not recorded."""
        return read_confusion(self.path, number)

    def names(self, number: int) -> tuple[list[str], list[str]]:
        """The names of a trial's classes and clients; empty where they have none."""
        return read_names(self.path, number)

    # -- what trials measured, round by round ------------------------------------------------------------------------

    @cached_property
    def lines(self) -> Lines:
        """What every trial measured, by round and seed."""
        return read_lines(self.path, [t.number for t in self.frozen])

    @cached_property
    def rounds(self) -> pd.DataFrame:
        """Tidy: one row per trial, round and seed, one column per metric (nan where not measured or not finite)."""
        return rounds_table(self.lines)

    @cached_property
    def ends(self) -> Mapping[int, Mapping[str, float]]:
        """By trial that measured any, every metric's last value, mean over seeds (`last_values`).

        Of a trial whose folder was lost only the objectives are known, which the study holds."""
        found = last_values(self.lines)
        lost = {
            t.number: dict(zip(self.metrics, t.values, strict=False))
            for t in self.frozen
            if t.values and t.number not in found
        }
        return dict(sorted((found | lost).items()))

    @cached_property
    def finals(self) -> pd.DataFrame:
        """The same as a table, a row per trial; nan where a metric was not measured."""
        import pandas as pd

        columns = list(dict.fromkeys(name for row in self.ends.values() for name in row))
        index = pd.Index(list(self.ends), name="trial", dtype="int64")
        return pd.DataFrame(list(self.ends.values()), index=index, columns=columns, dtype=float)

    @cached_property
    def first_trials(self) -> Sequence[int]:
        """The trials that stand for their configurations: all of them, or one of each where trials are federations
        (`race.first_trials`)."""
        return race.first_trials(self.frozen) if self.single else [trial.number for trial in self.frozen]

    @cached_property
    def levelled(self) -> pd.DataFrame:
        """`finals` as configurations may be compared: where trials are single federations a row per configuration that
        ran to its end, its mean without what a seed does to all of them alike (`race.level`)."""
        import pandas as pd

        if not self.single:
            return self.finals
        columns = {
            name: race.level(self.frozen, {number: row[name] for number, row in self.ends.items() if name in row})
            for name in self.finals.columns
        }
        return pd.DataFrame(columns, columns=self.finals.columns).rename_axis("trial").sort_index()

    def measured(self, *numbers: int) -> dict[str, float]:
        """The mean of these trials' rows of `finals` by metric, as far as all are finite; reads their rounds alone."""
        rows = list(last_values(read_lines(self.path, numbers)).values())
        means = {name: sum(row[name] for row in rows) / len(rows) for name in (rows[0] if rows else ())}
        return {name: mean for name, mean in means.items() if not math.isnan(mean)}

    def completed(self, number: int) -> int:
        """Rounds that a trial has on record; reads that trial's rounds alone."""
        mine = read_lines(self.path, [number]).get(number, {})
        return max((round_ for round_, _ in mine), default=0)

    @cached_property
    def curves(self) -> pd.DataFrame:
        """`rounds` averaged over seeds: trial, round, seeds (count), every metric, and `<metric>:std`."""
        return curves_table(self.rounds)

    @cached_property
    def _by_seed(self) -> BySeed | None:
        """The objective by trial, seed and round, of a search whose trials have several seeds each."""
        seeds = self.experiment.get("seeds")
        several = isinstance(seeds, list) and len(seeds) > 1 and not self.single
        return curves_by_seed(self.lines, self.metrics[0]) if several else None

    def only_at_end(self, metric: str) -> bool:
        """Whether the metric was measured only where a trial may end, so that there is no curve of it and no best round
        is known: one on the test set where `eval_test` is end."""
        return self.value("eval_test", "every") == "end" and not metric.startswith("val_") and twin(metric) != metric

    def last(self, number: int, metric: str) -> dict[int, float]:
        """A trial's last measured value of the metric by seed."""
        return readout(self.lines, number, metric, "last")

    # -- which of them is the best, and how sure that is -------------------------------------------------------------

    @cached_property
    def standing(self) -> Standing | None:
        """What a search for one metric knows of its configurations; None for other runs, those under several conditions
        among them, and before two federations ran to their end. Where it has requirements, only configurations that
        keep them may win, or, where none does, the one that misses them least."""
        if self._now is None:
            return None
        found = self._now.ended
        if not self.requirements:
            return found
        missed = {number: self.missed(number) for number in found.ranked}
        least = min(missed.values())
        first = next(number for number in found.ranked if missed[number] == least)
        allowed = {number for number in missed if missed[number] == 0} or {first}
        seeds = [seeds if number in allowed else 0 for number, seeds in zip(found.numbers, found.seeds, strict=True)]
        return dataclasses.replace(found, seeds=tuple(seeds))

    @cached_property
    def _now(self) -> Standing | None:
        """The same with the trials that go on, and without requirements."""
        return self.believed(()) if self._has_estimate else None

    @property
    def _has_estimate(self) -> bool:
        """Whether this is a search for one metric under one condition."""
        return self.kind != "run" and len(self.metrics) == 1 and not self.crossed

    def believed(self, candidates: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> Standing | None:
        """What the trials say, also of `candidates` (`analysis.estimate.standing`); requirements are no part of it."""
        sign, learnt = 1.0 if self.maximise else -1.0, self.record.learnt
        prior = flat(self.metrics[0]) if learnt is None else learnt.prior
        return standing(self.frozen, sign, self._by_seed, candidates, prior=prior)

    @cached_property
    def by_itself(self) -> Standing | None:
        """What the trials that ran here say, and nothing that was known from earlier searches; None where `standing`
        is."""
        if not self._has_estimate:
            return None
        sign, prior = 1.0 if self.maximise else -1.0, flat(self.metrics[0])
        found = standing(self.frozen[self.taken :], sign, self._by_seed, prior=prior)
        return None if found is None else found.ended

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
    def estimate(self) -> Estimate | None:
        """What the search says of its winner, where it has a `standing`."""
        return self.estimate_for(None)

    def estimate_for(self, fresh: int | None) -> Estimate | None:
        """The same, with the interval of the winner's mean over so many `fresh` seeds, which is wider than that over
        all seeds (None)."""
        return self._estimate(self.standing, fresh)

    def _estimate(self, found: Standing | None, fresh: int | None = None) -> Estimate | None:
        ends = (0.0, 1.0) if self.metrics[0] in SHARES else (-math.inf, math.inf)
        return None if found is None else estimate(found, ends=ends, fresh=fresh, paper=self.paper)

    @cached_property
    def ahead(self) -> int | None:
        """The trial that has not ended and leads all the same (`analysis.estimate.ahead`), of a search for one metric;
        None where none does, and where the search has requirements: whether it will keep them is not known."""
        if not self._has_estimate or self.requirements:
            return None
        sign, rounds = 1.0 if self.maximise else -1.0, int(self.experiment.get("rounds") or 0)
        return ahead(self.frozen, self._now, sign, rounds)

    @cached_property
    def ahead_estimate(self) -> Estimate | None:
        """What the search says of the trial that is `ahead`, once two federations ran to their end."""
        return None if self.ahead is None else self._estimate(self._now)

    def first(self, number: int) -> int:
        """The trial that stands for the configuration of this one: where the search has a `standing`, the first one of
        it that ran to its end."""
        place = None if self.standing is None else self.standing.place.get(number)
        return number if self.standing is None or place is None else self.standing.numbers[place]

    @cached_property
    def paper(self) -> int | None:
        """The trial that has the paper's values, where there is one: the one that was begun as that, or by which these
        ran to their end, else one that has all declared defaults, such as a cell of a grid."""
        begun = next((trial.number for trial in self.frozen if self.origin(trial) == run_folder.PAPER), None)
        if begun is not None or not self.searched:
            return None if begun is None else self.first(begun)
        known = {item["key"]: item.get("declared") for item in self.searched}
        declared = {key: one["default"] for key, one in known.items() if isinstance(one, Mapping) and "default" in one}
        varied = {item["key"] for item in self.varied}
        for trial in self.frozen:
            values = {key: value for key, value in trial.params.items() if key not in varied}
            if values and values == {key: declared.get(key) for key in values}:
                return trial.number
        return None

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
        would flatter; and no best one where it was measured only at the end."""
        found: dict[int, float] = {}
        if how != "last" and self.only_at_end(metric):
            return found
        for number in self.chosen:
            found |= (of_trial := readout(self.lines, number, metric, how))
            if waits(metric) and len(of_trial) < len({seed for _, seed in self.lines.get(number, {})}):
                return {}
        return dict(sorted(found.items()))

    def at_best_of(self, metric: str, chooser: str, direction: str) -> dict[int, float]:
        """The chosen trials' value of `metric` by seed, each seed's in the round that is best by `chooser`; nothing
        where it was measured only at the end."""
        found: dict[int, float] = {}
        if self.only_at_end(metric):
            return found
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
        config = self.config(number) if number is not None else self.record.fixed
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
