"""Syne Tune's ASHA with its random, KDE, BORE and conformal quantile regression searchers, one seed.

Rungs at 1, 3, 9 … rounds, as its documentation has them (grace period 1, reduction factor 3, one bracket). It has no
parameters under conditions: those of options that were not chosen are searched as if they mattered. The winner is the
trial with the highest value after all rounds."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import numpy as np
from syne_tune import config_space as domains
from syne_tune.backend.trial_status import Trial
from syne_tune.optimizer.scheduler import SchedulerDecision
from syne_tune.optimizer.schedulers.asha import AsynchronousSuccessiveHalving

from tests.benchmarks.replay.arms.serve import Start, serve
from tests.benchmarks.replay.searcher import Floats, Verdict
from tests.benchmarks.replay.trials import Trials, mean

METRIC, TIME = "value", "round"


class SyneTune(Trials):
    """One search."""

    def __init__(self, start: Start) -> None:
        super().__init__(start["rounds"], (0,), start["slots"])
        logging.disable(logging.WARNING)
        np.random.seed(start["seed"])  # brackets are drawn from numpy's global generator
        self._scheduler = AsynchronousSuccessiveHalving(
            config_space={d["name"]: domain(d) for d in start["dimensions"]},
            metric=METRIC,
            do_minimize=False,
            searcher=start["searcher"],
            time_attr=TIME,
            max_t=start["rounds"],
            grace_period=1,
            reduction_factor=3,
            random_seed=start["seed"],
        )
        self._trials: dict[int, Trial] = {}
        self._complete: list[tuple[float, Mapping[str, Any]]] = []

    def propose(self) -> tuple[int, Mapping[str, Any]] | None:
        suggestion = self._scheduler.suggest()
        if suggestion is None:
            return None
        trial = Trial(len(self._trials), suggestion.config, datetime(2026, 1, 1))
        self._trials[trial.trial_id] = trial
        self._scheduler.on_trial_add(trial)
        return trial.trial_id, trial.config

    def after_round(self, number: int, round_: int, curves: Floats) -> bool:
        trial, value = self._trials[number], mean(curves)
        if value != value:  # diverged
            self._scheduler.on_trial_error(trial)
            return False
        decision = self._scheduler.on_trial_result(trial, {METRIC: value, TIME: round_})
        if round_ >= self.rounds:
            self._complete.append((value, trial.config))
            return False
        return bool(decision == SchedulerDecision.CONTINUE)

    def winner(self) -> Verdict | None:
        if not self._complete:
            return None
        value, config = max(self._complete, key=lambda pair: pair[0])
        return Verdict(config, value)


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
    serve(SyneTune)
