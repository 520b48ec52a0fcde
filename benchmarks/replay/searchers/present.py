"""fedtune's own search, driven without Ray: its queue, sampler and early stopping, as they stand in
`fedtune.decisions` and `fedtune.execution`.

What is replaced is what a replay has no use for: the study's file on the disk (a study in memory), the processes that
simulate (the replay), and Ray, which only places trials. A trial ends as `trainables.tune.Trial` ends it."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.estimate import ahead, estimate, standing
from analysis.estimate.prior import flat
from analysis.estimate.winner import BySeed
from analysis.runs.trials import origin
from benchmarks.replay.searcher import LEVEL, Floats, Setting, Verdict
from benchmarks.replay.trials import Trials
from fedtune.decisions.early_stopping import Rule, default_grace
from fedtune.decisions.history import History, Part
from fedtune.decisions.initial_design import size
from fedtune.decisions.optuna_samplers import EI, usual
from fedtune.execution.queue import Queue
from fedtune.machine.resources import early, lag
from fedtune.options import FIXED_UP_TO
from fedtune.record.experiment import Experiment
from fedtune.record.journal import Direction, StudyFile, quiet_optuna
from search_spaces.parameter import Value
from search_spaces.run_folder import ARRIVAL, FIXED, PAPER
from search_spaces.space import Space
from trainables.worker.job import Ending
from trainables.worker.trial_values import TrialValues

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

    from fedtune.decisions.shared_budget import Allocation

#: A metric that is maximised; the replay's values are turned so that larger is better.
METRIC = "val_global_accuracy"


class StudyInMemory(StudyFile):
    """The study of a run, in memory."""

    def __init__(self, directions: Sequence[Direction] = ("maximize",)) -> None:
        import optuna

        self._trial_ids: dict[int, int] = {}
        self._storage: Any = optuna.storages.InMemoryStorage()
        with quiet_optuna():
            self.study = optuna.create_study(storage=self._storage, directions=directions, study_name="replay")
        self._id = self._storage.get_study_id_from_name("replay")

    def end(self, number: int, state: Any, values: Any) -> None:
        self.study.tell(number, values=values, state=state)

    def close(self) -> None:
        pass


def replayed(*runs: tuple[Experiment, Space], allocation: Allocation | None = None) -> Queue:
    """The queue of these runs, whose studies are in memory."""
    parts = [Part(Path(), made, space) for made, space in runs]
    return Queue(parts, allocation, [StudyInMemory(made.directions) for made, _ in runs])


class Present(Trials):
    """The search that `fedtune search --seeds K --no-race` runs, with its defaults: the sampler `ei` (TPE for several
    metrics) and asynchronous successive halving."""

    def __init__(self, setting: Setting, *, each: int, **changes: Any) -> None:
        setting.check_seeds(each)
        self.experiment = experiment(setting, each, **changes)
        super().__init__(setting.rounds, tuple(range(each)), setting.slots)
        self.queue = replayed((self.experiment, setting.space))
        self._fresh = setting.fresh
        self._rules: dict[int, Rule] = {}
        self._measured: dict[int, TrialValues] = {}
        #: Values by trial, seed and round.
        self._by_seed: dict[int, dict[int, dict[int, float]]] = {}

    def propose(self) -> tuple[int, Mapping[str, Value]] | None:
        found = self.queue.propose()
        if found is None:
            return None
        self._rules[found.number] = found.rule
        self._measured[found.number] = TrialValues(self.experiment.metric, self.experiment.signs)
        return found.number, found.values

    def after_round(self, number: int, round_: int, curves: Floats) -> bool:
        rows = [
            {"round": round_, "seed": seed} | self._row(curve[-1])
            for seed, curve in zip(self.seeds_of(number), curves, strict=True)
        ]
        curve_of = self._by_seed.setdefault(number, {})
        for row in rows:
            curve_of.setdefault(row["seed"], {})[round_] = row[self.experiment.metric[0]]
        measured = self._measured[number]
        measured.add(rows)
        self.queue.report(number, round_, measured.curve.get(round_))
        reason = self._reason(number, round_, rows)
        if reason is None:
            return True
        self.queue.finish(number, Ending(reason, round_, None, measured.curve))
        del self._rules[number], self._measured[number]
        return False

    def _row(self, values: Floats) -> dict[str, Any]:
        """A round's values by metric, in the metric's own direction."""
        e = self.experiment
        return {n: s * float(v) for n, s, v in zip(e.metric, e.signs, np.atleast_1d(values), strict=True)}

    def _reason(self, number: int, round_: int, rows: list[dict[str, Any]]) -> str | None:
        """Why the trial ends after this round, in the order in which a trial asks."""
        if self._measured[number].broken(rows) is not None:
            return "diverged"
        if round_ >= self.rounds:
            return "completed"
        return "scheduler" if self._rules[number].stops(round_, self._measured[number].signed) else None

    def winner(self) -> Verdict | None:
        by_seed = self._by_seed if len(self.seeds) > 1 else None
        known = recorded(self.queue.history, 0)
        return best_of(known, self.queue.parts[0].space, self.rounds, by_seed, self._fresh)


def recorded(history: History, place: int) -> list[FrozenTrial]:
    """The trials of a run as its study has them: those that run with the rounds they have."""
    trials = history.of(place)
    for number, curve in history.reported[place].items():
        trials[number] = copy.copy(trials[number])
        trials[number].intermediate_values = {round_: values[0] for round_, values in curve.items()}
    return trials


def best_of(
    trials: Sequence[FrozenTrial],
    space: Space,
    rounds: int,
    by_seed: BySeed | None = None,
    fresh: int | None = None,
) -> Verdict | None:
    """What `fedtune run` would train: the trial that is ahead, though it has not ended, or else the winner by estimate
    (`analysis.runs.Run.ahead` and `best`); before there is an estimate, the one with the highest last value, without an
    interval. `rounds`: of a whole trial. `by_seed`: values by trial, seed and round, where trials have several.
    `fresh`: as `Setting.fresh`. A search that holds the paper's values claims a gain where its report would
    (`Estimate.better`), which is one of trials that ended; and one without a winner by estimate claims none."""
    paper = next((trial.number for trial in trials if origin(trial) == PAPER), None)
    found = standing(trials, 1.0, by_seed, prior=flat(METRIC))
    if found is not None:
        said = estimate(found, LEVEL, fresh=fresh, paper=paper)
        claim = None if paper is None else estimate(found.ended, LEVEL, fresh=fresh, paper=paper).better
        return Verdict(space.values(trials[said.trial].params), said.mean, said.low, said.high, claim)
    last = {trial.number: trial.values[0] for trial in trials if trial.state.name == "COMPLETE"}
    if (number := ahead(trials, None, 1.0, rounds)) is not None:
        curve = trials[number].intermediate_values
        last = {number: curve[max(curve)]}
    if not last:
        return None
    best = max(last, key=lambda number: (last[number], -number))
    return Verdict(space.values(trials[best].params), float(last[best]), claim=None if paper is None else False)


def experiment(setting: Setting, each: int, **changes: Any) -> Experiment:
    """The frozen request of such a search, with more trials than any budget allows; the paper's values come first."""
    space: Space = setting.space
    paper = space.declared_point()
    fields: dict[str, Any] = {
        "name": "replay",
        "kind": "search",
        "method": space.method,
        "space": space.name,
        "profile": "small",
        "values": {},
        "metric": setting.metrics or (METRIC,),
        "select_on": "validation",
        "trials": 1_000_000,
        "rounds": setting.rounds,
        "seed": setting.seed,
        "seeds": tuple(range(each)),
        "sampler": usual(len(setting.metrics or (METRIC,))),
        "scheduler": "asha",
        "first": () if paper is None else ({"from": PAPER, "values": paper},),
    }
    fields |= {"reduction_factor": 3, "grace": default_grace(setting.rounds, 3)}
    made = fields | changes
    if each == 1 and made["sampler"] == EI and not made.get("part") and len(made.get("seeds", ())) < 2:
        fields |= {"initial": size(fields["trials"], setting.rounds, made["grace"], made["reduction_factor"])}
    if "lag" not in changes:
        order = ARRIVAL if setting.slots > FIXED_UP_TO else FIXED
        fields |= {"order": order, "lag": lag(setting.slots), "early": early(setting.slots)}
    return Experiment(**fields | changes)
