"""One run directory in memory: what was searched, its trials, their rounds, and which trial is the best.

`analysis.runs.load` makes it. Names of files and fields are in `search_spaces.run_folder`.

A run whose space varies conditions of the experiment has a best configuration under each of them, and none in all:
`within` gives the part of it under one condition, which is a run like any other.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from analysis.estimate import Estimate, Standing, configuration, estimate, missed_target, standing
from analysis.runs import pareto, race
from analysis.runs.conditions import conditions, holds, show
from analysis.runs.kept import Kept, kept
from analysis.runs.mappings import read_json, read_yaml
from analysis.runs.rounds import at_best_of, by_seed, last_values, read_rounds, readout
from analysis.runs.shapes import each, is_plain, is_whole
from analysis.runs.study import in_memory
from analysis.stopping import AUDITED, Audit, Grace, audit, grace
from search_spaces import run_folder
from search_spaces.metrics import METRICS, SHARES, is_unreached, twin
from search_spaces.requirements import Requirement, read_all, violation

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial


#: Of `Run.trials`, before the searched parameters.
COLUMNS = ["number", "state", "value", "values", "stop_reason", "rounds", "seconds", "error", "origin", "taken"]
COLUMNS += ["audited", "start", "end"]


@dataclass(frozen=True)
class Run:
    """One run directory in memory; the larger tables are read when first asked for."""

    path: Path
    experiment: Mapping[str, Any]
    space: Mapping[str, Any]
    provenance: Mapping[str, Any]
    #: Optuna's direction per objective: "maximize" or "minimize".
    directions: tuple[str, ...]
    #: Names of the metrics trials were selected on, one per objective.
    metrics: tuple[str, ...]
    frozen: Sequence[FrozenTrial] = field(repr=False)
    #: A sentence for every file that is left out, as it is damaged.
    damaged: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The folder's name now (a copied run may be renamed)."""
        return self.path.name

    @property
    def shown(self) -> str:
        """The folder as a reader would type it: relative where it lies below the current one."""
        try:
            relative = os.path.relpath(self.path)
        except ValueError:  # another drive
            return str(self.path)
        return str(self.path) if relative.startswith("..") else relative

    @property
    def title(self) -> str:
        """The space's title, else the request's, else the folder's name."""
        return str(self.space.get("title") or self.experiment.get("title") or self.name)

    @property
    def method(self) -> str:
        return str(self.experiment.get("method") or self.space.get("method") or "")

    @property
    def method_title(self) -> str:
        """The method as people write it, such as FedMD-CG; its key where that was not recorded."""
        return str(self.provenance.get("method_title") or self.method)

    @property
    def kind(self) -> str:
        """`search` (trials are configurations) or `run` (final runs: trials are seeds of one configuration)."""
        return str(self.experiment.get("kind") or "search")

    @property
    def sampler(self) -> str:
        return str(self.experiment.get("sampler") or "")

    @property
    def raced(self) -> bool:
        """Whether trials are single federations, some of them further seeds of a configuration."""
        return race.races(self.experiment)

    def federations(self, number: int) -> list[int]:
        """In a race the completed trials of the configuration of a trial; else the trial itself."""
        return race.federations(self.experiment, self.frozen, number)

    @property
    def taken(self) -> int:
        """How many of the first trials were not run here: their results were taken from earlier runs."""
        found = self.experiment.get("taken")
        return found if isinstance(found, int) else 0

    def origin(self, trial: FrozenTrial) -> str:
        """Where a trial's values come from, such as `the paper's values`; empty where the sampler proposed them."""
        return " ".join(str(trial.user_attrs.get("from") or "").split())[:200]

    def computed(self, number: int) -> Mapping[str, Any]:
        """With what a trial was computed (`created`, `versions`, `git`, `machine`): the run's own provenance, or that
        of the earlier run whose result it is."""
        if number < self.taken:
            for part in self.provenance.get("taken") or []:
                if isinstance(part, Mapping) and number in (part.get("trials") or []):
                    return part
        return self.provenance

    @cached_property
    def varied(self) -> Sequence[Mapping[str, Any]]:
        """The conditions of the experiment as space.json describes them (keys, symbols, values)."""
        return [dict(item) for item in self.space.get("vary") or []]

    @cached_property
    def conditions(self) -> Sequence[Mapping[str, Any]]:
        """The conditions that trials were begun under, in the order of the space; one empty condition where nothing is
        varied."""
        return conditions(self.varied, self.frozen)

    @property
    def crossed(self) -> bool:
        """Whether there are trials under more than one condition."""
        return len(self.conditions) > 1

    def within(self, condition: Mapping[str, Any]) -> Run:
        """The part of the run that is under a condition: its trials, with the numbers they have."""
        kept = [trial for trial in self.frozen if holds(condition, trial.params)]
        return dataclasses.replace(self, frozen=kept)

    def trial(self, number: int) -> FrozenTrial:
        """The trial of that number."""
        return self._by_number[number]

    @cached_property
    def _by_number(self) -> Mapping[int, FrozenTrial]:
        return {trial.number: trial for trial in self.frozen}

    @cached_property
    def searched(self) -> Sequence[Mapping[str, Any]]:
        """The searched parameters as space.json describes them (keys, symbols, bounds, grids)."""
        listed = [dict(item) for item in self.space.get("search") or []]
        known = {item["key"] for item in (*listed, *self.varied)}
        # Children of a choice, or a study without its space.json: only the trials tell of these.
        for trial in self.frozen:
            for key, distribution in trial.distributions.items():
                if key not in known:
                    known.add(key)
                    listed.append(
                        {
                            "key": key,
                            "kind": "choice" if hasattr(distribution, "choices") else "real",
                            "log": getattr(distribution, "log", False),
                        }
                    )
        return listed

    @cached_property
    def keys(self) -> Sequence[str]:
        """Keys of the searched parameters that occur in at least one trial, in the space's order."""
        present = {key for trial in self.frozen for key in trial.params}
        return [item["key"] for item in self.searched if item["key"] in present]

    @property
    def fixed(self) -> dict[str, Any]:
        return dict(self.space.get("fixed") or self.space.get("fix") or {})

    @property
    def selects_on_test(self) -> bool:
        """True where trials were chosen by a metric of the test data."""
        return self.kind != "run" and any(not m.startswith("val_") and twin(m) != m for m in self.metrics)

    @property
    def maximise(self) -> bool:
        """Whether the first objective is better when larger."""
        return self.directions[0] == "maximize"

    @cached_property
    def trials(self) -> pd.DataFrame:
        """One row per trial, sorted by `number`.

        number, state (COMPLETE, PRUNED, FAIL, RUNNING, WAITING), value (first objective; nan for a target that was not
        reached), values (tuple), stop_reason, rounds, seconds, error, origin (see `origin`), taken (whether the result
        is an earlier run's), audited (of an audited trial, the round after which it would have been stopped; nan for
        others), start, end (datetimes), and each searched parameter under its key."""
        rows = []
        for t in self.frozen:
            attributes = t.user_attrs
            values = tuple(t.values) if t.values else ()
            row = {
                "number": t.number,
                "state": t.state.name,
                "value": float(values[0]) if values and not is_unreached(values[0]) else math.nan,
                "values": values,
                "stop_reason": attributes.get("stop_reason") or "",
                "rounds": attributes.get("rounds"),
                "seconds": attributes.get("seconds"),
                "error": attributes.get("error") or "",
                "origin": self.origin(t),
                "taken": t.number < self.taken,
                "audited": attributes.get(AUDITED),
                "start": t.datetime_start,
                "end": t.datetime_complete,
            }
            row |= t.params
            rows.append(row)
        frame = pd.DataFrame(rows, columns=None if rows else COLUMNS)
        for name in ("rounds", "seconds", "audited"):
            frame[name] = pd.to_numeric(frame[name], errors="coerce")
        unfinished = frame["rounds"].isna()
        if unfinished.any() and not self.rounds.empty:
            # A live trial has not told the study yet how far it is; its file has.
            frame.loc[unfinished, "rounds"] = frame.loc[unfinished, "number"].map(
                self.rounds.groupby("trial")["round"].max()
            )
        return frame

    @cached_property
    def rounds(self) -> pd.DataFrame:
        """Tidy: one row per trial, round and seed, one column per metric (nan where not measured or not finite)."""
        return read_rounds(self.path, [t.number for t in self.frozen])

    @cached_property
    def finals(self) -> pd.DataFrame:
        """Every metric's last value, mean over seeds, by trial number, for trials that measured any (`last_values`).

        Of a trial whose folder was lost only the objectives are known, which the study holds."""
        found = last_values(self.rounds)
        lost = {
            t.number: dict(zip(self.metrics, t.values, strict=False))
            for t in self.frozen
            if t.values and t.number not in found.index
        }
        return found if not lost else pd.concat([found, pd.DataFrame.from_dict(lost, orient="index")]).sort_index()

    def measured(self, *numbers: int) -> dict[str, float]:
        """The mean of these trials' rows of `finals` by metric, as far as all are finite; reads their rounds alone."""
        found = last_values(read_rounds(self.path, numbers))
        if not len(found):
            return {}
        return {str(name): float(value) for name, value in found.mean(skipna=False).dropna().items()}

    def completed(self, number: int) -> int:
        """Rounds that a trial has on record; reads that trial's rounds alone."""
        found = read_rounds(self.path, [number])
        return 0 if found.empty else int(found["round"].max())

    @cached_property
    def curves(self) -> pd.DataFrame:
        """`rounds` averaged over seeds: trial, round, seeds (count), every metric, and `<metric>:std`."""
        if self.rounds.empty:
            return pd.DataFrame(columns=["trial", "round", "seeds"])
        names = [c for c in self.rounds.columns if c not in ("trial", "round", "seed")]
        groups = self.rounds.groupby(["trial", "round"], sort=True)
        mean = groups[names].mean()
        spread = groups[names].std().add_suffix(":std")
        return pd.concat([groups.size().rename("seeds"), mean, spread], axis=1).reset_index()

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
        rows = self.finals.reindex(self.federations(number))
        values = {
            one.metric: float(rows[one.metric].mean(skipna=not METRICS[one.metric].to_target))
            for one in self.requirements
            if one.metric in rows
        }
        return violation(self.requirements, values, int(self.experiment.get("rounds") or 0))

    @cached_property
    def _by_seed(self) -> Mapping[int, Mapping[int, float]] | None:
        """The last values of the objective by trial and seed, of a search whose trials have several seeds each."""
        seeds = self.experiment.get("seeds")
        several = isinstance(seeds, list) and len(seeds) > 1 and not self.raced
        return by_seed(self.rounds, self.metrics[0]) if several else None

    @cached_property
    def kept(self) -> list[Kept]:
        """Of the winner, every requirement: whether it is kept, and how likely."""
        if self.best is None or self.kind == "run":
            return []
        finals, rounds = self.finals, int(self.experiment.get("rounds") or 0)
        best = next(trial for trial in self.frozen if trial.number == self.best)
        found = []
        for one in self.requirements:
            column = finals[one.metric] if one.metric in finals else pd.Series(dtype=float)
            own = float(column.reindex(self.federations(self.best)).mean(skipna=not METRICS[one.metric].to_target))
            values = dict(zip(map(int, column.index.tolist()), map(float, column.tolist()), strict=True))
            found.append(kept(one, self.frozen, values, best, own, rounds))
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
        if self.standing is None:
            return None
        return estimate(self.standing, ends=(0.0, 1.0)) if self.metrics[0] in SHARES else estimate(self.standing)

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
        valued = [t.number for t in self.frozen if t.state.name == "COMPLETE" and t.values]
        done = self.trials[self.trials["number"].isin(valued)]
        done = done.assign(missed=[self.missed(int(number)) for number in done["number"]])
        order = done.sort_values(["missed", "value", "number"], ascending=[True, not self.maximise, True])
        numbers = [int(number) for number in order["number"]]
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
            return [int(n) for n in self.trials.loc[self.trials["state"] == "COMPLETE", "number"]]
        return [] if self.best is None else self.federations(self.best)

    def over_seeds(self, metric: str, how: str = "last") -> dict[int, float]:
        """The chosen trials' value of the metric by seed: the last round's (`last`), or the best over rounds
        (`maximize`, `minimize`). Nothing of a metric whose target was not reached on one of them: the others alone
        would flatter."""
        found: dict[int, float] = {}
        waits = metric in METRICS and METRICS[metric].to_target
        for number in self.chosen:
            found |= (of_trial := readout(self.rounds, number, metric, how))
            if waits and len(of_trial) < self.rounds.loc[self.rounds["trial"] == number, "seed"].nunique():
                return {}
        return dict(sorted(found.items()))

    def at_best_of(self, metric: str, chooser: str, direction: str) -> dict[int, float]:
        """The chosen trials' value of `metric` by seed, each seed's in the round that is best by `chooser`."""
        found: dict[int, float] = {}
        for number in self.chosen:
            found |= at_best_of(self.rounds, number, metric, chooser, direction)
        return dict(sorted(found.items()))

    @cached_property
    def front(self) -> list[int]:
        """With several objectives: of the completed trials that keep the requirements, those that no other one beats in
        all of them; otherwise the best."""
        if len(self.directions) == 1:
            return [] if self.best is None else [self.best]
        if self.crossed:
            return []
        done = [
            (t.number, t.values)
            for t in self.frozen
            if t.state.name == "COMPLETE"
            and t.values
            and np.isfinite(t.values).all()
            and self.missed(t.number) == 0
            and not missed_target(t)
        ]
        rows = pareto.front(pareto.signed([values for _, values in done], self.directions))
        return [done[row][0] for row in rows]

    @property
    def knee(self) -> int | None:
        """With several objectives: of the front, the trial that gives up least of one for what it gains in the others
        (`analysis.runs.pareto.knee`)."""
        if len(self.directions) == 1 or not self.front:
            return None
        values = [self.trial(number).values or () for number in self.front]
        return self.front[pareto.knee(pareto.signed(values, self.directions))]

    def parameters(self, number: int) -> dict[str, Any]:
        """The searched values of a trial, and its condition, by key."""
        return dict(self.trial(number).params)

    def config(self, number: int) -> dict[str, Any]:
        """Every parameter of a trial, searched and fixed; from its config.yaml, the request and the study, of which the
        last two are believed, as a part of a config.yaml looks like a whole one."""
        stored = read_yaml(self.path / run_folder.trial_folder(number) / run_folder.CONFIG, missing={})
        inner = stored.get("values", stored) if isinstance(stored.get("values", stored), dict) else stored
        known = {key: value for key, value in inner.items() if isinstance(key, str) and is_plain(value)}
        searched = {name.rsplit(".", 1)[-1]: value for name, value in self.parameters(number).items()}
        values = self.experiment.get("values") or {}
        return self.fixed | known | {key: values[key] for key in values if key not in searched} | searched

    def partition(self, number: int) -> dict[int, np.ndarray]:
        """Samples of every class at every client, (clients, classes), by seed; empty where it was not recorded."""
        stored = read_json(self.path / run_folder.trial_folder(number) / run_folder.PARTITION, missing={})
        counts = {int(k): v for k, v in stored.items() if k.isascii() and k.lstrip("-").isdigit() and _is_table(v)}
        return {seed: np.asarray(rows, dtype=np.int64) for seed, rows in counts.items()}

    def value(self, key: str, default: Any = None) -> Any:
        """A setting such as `dataset` or `rounds`: of the best trial, else of the fixed values, else of the request. Of
        a condition that trials differ in, all its values, joined by commas."""
        several = dict.fromkeys(item[key] for item in self.conditions if key in item)
        if len(several) > 1:
            return ", ".join(show(value) for value in several)
        number = self.best if self.best is not None else (self.frozen[0].number if self.frozen else None)
        config = self.config(number) if number is not None else self.fixed
        return config.get(key, self.experiment.get(key, default))

    def study(self) -> Study:
        """The finished trials' parameters and values in memory, for Optuna's own evaluators."""
        return in_memory(self.directions, [t for t in self.frozen if t.state.is_finished()])

    def last(self, number: int, metric: str) -> dict[int, float]:
        """A trial's last measured value of the metric by seed."""
        return readout(self.rounds, number, metric, "last")

    def peak(self, number: int, metric: str, direction: str = "maximize") -> dict[int, float]:
        """A trial's best value of the metric over rounds by seed."""
        return readout(self.rounds, number, metric, direction)


#: Rows of equal length, of numbers of samples.
_rows = each(each(is_whole(0), 1), 1)


def _is_table(value: object) -> bool:
    return _rows(value) and isinstance(value, list) and len({len(row) for row in value}) == 1


def when(value: object) -> str:
    """A recorded moment as `2026-11-21 10:55`, in the recorder's own clock; empty where there is none."""
    try:
        return datetime.fromisoformat(str(value)).strftime("%Y-%m-%d %H:%M")
    except ValueError:
        return str(value or "")
