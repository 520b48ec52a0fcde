"""Ax's Client with the generation strategy that it chooses by default (the centre, Sobol, then BoTorch), and its early
stopping of what is below the median of the others at the same round; one seed.

Settings are Ax's own, but for early stopping's range, which is that of the federation's rounds: Ax would begin after
ten. Parameters of options that were not chosen are searched as if they mattered. The winner is the one that Ax names,
by its model's predictions where these serve."""

from __future__ import annotations

import logging
import random
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from ax.api.client import Client
from ax.api.configs import ChoiceParameterConfig, RangeParameterConfig
from ax.early_stopping.strategies import PercentileEarlyStoppingStrategy

from benchmarks.replay.arms.serve import Start, on_step, serve
from benchmarks.replay.searcher import Floats, Verdict
from benchmarks.replay.trials import Trials

METRIC = "value"


class Ax(Trials):
    """One search."""

    def __init__(self, start: Start) -> None:
        super().__init__(start["rounds"], (0,), start["slots"])
        logging.disable(logging.WARNING)
        warnings.simplefilter("ignore")
        random.seed(start["seed"])
        np.random.seed(start["seed"])
        torch.manual_seed(start["seed"])
        self._dimensions = start["dimensions"]
        self._client = Client(random_seed=start["seed"])
        self._client.configure_experiment([parameter(d) for d in self._dimensions])
        self._client.configure_optimization(METRIC)
        self._client.set_early_stopping_strategy(PercentileEarlyStoppingStrategy(min_progression=1))
        self._has_complete = False

    def propose(self) -> tuple[int, Mapping[str, Any]] | None:
        # Ax limits how many run at once before its first model.
        return next(((n, self._flat(values)) for n, values in self._client.get_next_trials(1).items()), None)

    def after_round(self, number: int, round_: int, curves: Floats) -> bool:
        value = float(curves[0, -1])
        if not np.isfinite(value):  # diverged; one that failed may be proposed again
            self._client.mark_trial_abandoned(number)
            return False
        if round_ >= self.rounds:
            self._client.complete_trial(number, {METRIC: value}, progression=round_)
            self._has_complete = True
            return False
        self._client.attach_data(number, {METRIC: value}, progression=round_)
        if self._client.should_stop_trial_early(number):
            self._client.mark_trial_early_stopped(number)
            return False
        return True

    def winner(self) -> Verdict | None:
        if not self._has_complete:
            return None
        values, outcome, *_ = self._client.get_best_parameterization()
        mean = outcome[METRIC]
        return Verdict(self._flat(values), float(mean[0] if isinstance(mean, tuple) else mean))

    def _flat(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {d["name"]: on_step(d, values[d["name"]]) for d in self._dimensions}


def parameter(d: Mapping[str, Any]) -> ChoiceParameterConfig | RangeParameterConfig:
    """A dimension as Ax declares it."""
    if d["kind"] in ("choice", "flag"):
        options = d["options"] or [False, True]
        return ChoiceParameterConfig(d["name"], options, type(options[0]).__name__, is_ordered=False)
    kind = "int" if d["kind"] == "integer" else "float"
    return RangeParameterConfig(d["name"], (d["low"], d["high"]), kind, scaling="log" if d["log"] else "linear")


if __name__ == "__main__":
    serve(Ax)
