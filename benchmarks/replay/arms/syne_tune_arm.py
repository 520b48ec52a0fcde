"""Syne Tune's ASHA with its random, KDE, BORE and conformal quantile regression searchers, and for several objectives
its MOASHA, which halves by non-dominated sorting and draws configurations at random; one seed.

Rungs at 1, 3, 9 … rounds, as its documentation has them (grace period 1, reduction factor 3, one bracket). It has no
parameters under conditions: those of options that were not chosen are searched as if they mattered. The winner is the
trial with the highest value after all rounds; MOASHA's front is of the trials that ran all rounds."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import numpy as np
from sklearn import set_config
from sklearn._loss import loss
from syne_tune import config_space as domains
from syne_tune.backend.trial_status import Trial
from syne_tune.optimizer.scheduler import SchedulerDecision
from syne_tune.optimizer.schedulers.asha import AsynchronousSuccessiveHalving
from syne_tune.optimizer.schedulers.multiobjective.moasha import MOASHA
from syne_tune.optimizer.schedulers.searchers.bore import Bore

from analysis.runs import pareto
from benchmarks.replay.arms.percentile import weighted_percentile
from benchmarks.replay.arms.serve import Start, serve
from benchmarks.replay.searcher import Floats, Front, Verdict
from benchmarks.replay.trials import Trials

METRIC, TIME = "value", "round"
#: The name by which MOASHA is asked for.
MANY = "moasha"


class AtOnce(Bore):
    """BORE asks its classifier about 500 candidates one after the other. Here it asks about all of them at once, on the
    same draws: the same proposals in a fraction of the time."""

    _known: dict[bytes, Any]

    def _train_model(self, *data: Any) -> bool:
        self._known = {}
        return bool(super()._train_model(*data))

    def _loss(self, x: Any) -> Any:
        if x.tobytes() not in self._known:
            state = np.random.get_state()
            later = [self._hp_ranges.to_ndarray(self._get_random_config()) for _ in range(self.feval_acq)]
            np.random.set_state(state)
            points = [x, *later]
            losses = super()._loss(np.array(points))
            self._known |= {point.tobytes(): loss for point, loss in zip(points, losses, strict=True)}
        return [self._known[x.tobytes()]]


class SyneTune(Trials):
    """One search."""

    def __init__(self, start: Start) -> None:
        super().__init__(start["rounds"], (0,), start["slots"])
        logging.disable(logging.WARNING)
        # Brackets, and MOASHA's configurations, are drawn from numpy's global generator.
        np.random.seed(start["seed"])
        self._metrics: list[str] = start["metrics"] or [METRIC]
        common = {
            "config_space": {d["name"]: domain(d) for d in start["dimensions"]},
            "do_minimize": False,
            "time_attr": TIME,
            "max_t": start["rounds"],
            "grace_period": 1,
            "reduction_factor": 3,
            "random_seed": start["seed"],
        }
        self._scheduler: Any = (
            MOASHA(metrics=self._metrics, **common)
            if start["searcher"] == MANY
            else AsynchronousSuccessiveHalving(metric=METRIC, searcher=start["searcher"], **common)
        )
        if start["searcher"] == "bore":
            self._scheduler.searcher.searcher_cls = AtOnce
        self._trials: dict[int, Trial] = {}
        self._complete: list[tuple[Floats, Mapping[str, Any]]] = []

    def propose(self) -> tuple[int, Mapping[str, Any]] | None:
        suggestion = self._scheduler.suggest()
        if suggestion is None:
            return None
        trial = Trial(len(self._trials), suggestion.config, datetime(2026, 1, 1))
        self._trials[trial.trial_id] = trial
        self._scheduler.on_trial_add(trial)
        return trial.trial_id, trial.config

    def after_round(self, number: int, round_: int, curves: Floats) -> bool:
        trial, values = self._trials[number], np.atleast_1d(curves[0, -1])
        if not np.isfinite(values).all():  # diverged
            self._scheduler.on_trial_error(trial)
            return False
        result = dict(zip(self._metrics, values.tolist(), strict=True)) | {TIME: round_}
        decision = self._scheduler.on_trial_result(trial, result)
        if round_ >= self.rounds:
            self._complete.append((values, trial.config))
            return False
        return bool(decision == SchedulerDecision.CONTINUE)

    def winner(self) -> Verdict | Front | None:
        if not self._complete:
            return None
        if len(self._metrics) > 1:
            rows = pareto.front(np.array([values for values, _ in self._complete]))
            return Front(tuple(self._complete[row][1] for row in rows))
        (value,), config = max(self._complete, key=lambda pair: float(pair[0][0]))
        return Verdict(config, float(value))


def domain(d: Mapping[str, Any]) -> Any:
    """A dimension as Syne Tune declares it."""
    if d["kind"] == "flag":
        return domains.choice([False, True])
    if d["kind"] == "choice":
        return domains.choice(d["options"])
    if d["step"] is not None:
        size = round((d["high"] - d["low"]) / d["step"]) + 1
        return domains.finrange(d["low"], d["high"], size, cast_int=d["kind"] == "integer")
    if d["kind"] == "integer":
        return (domains.lograndint if d["log"] else domains.randint)(d["low"], d["high"])
    return (domains.loguniform if d["log"] else domains.uniform)(d["low"], d["high"])


if __name__ == "__main__":
    # The same proposals in half the time: trees by the thousand are fitted to a few values each.
    loss._weighted_percentile = weighted_percentile
    set_config(skip_parameter_validation=True, assume_finite=True)
    serve(SyneTune)
