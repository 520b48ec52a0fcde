"""NePS's PriorBand on its Hyperband: configurations are drawn around the paper's values, around the best so far, or
uniformly; one seed.

Settings are NePS's own, with rounds as fidelity from 1 to the whole federation. The confidence in the paper's values is
NePS's default (`priorband`: `low`, a standard deviation of three quarters of the range), or the highest that it has
(`priorband-high`: a quarter, as wide as it draws around the best). Parameters of options that were not chosen are
searched as if they mattered. A configuration that is promoted goes on from its checkpoint. The winner is the trial with
the highest value after all rounds."""

from __future__ import annotations

import logging
import random
from collections.abc import Mapping
from typing import Any

import neps
import numpy as np
import torch

from benchmarks.replay.arms.serve import Start, on_step, serve
from benchmarks.replay.searcher import Job, Result, Verdict

FIDELITY = "rounds of the federation"
#: In the paper's values, by the searcher's name.
CONFIDENCES = {"priorband": "low", "priorband-high": "high"}


class PriorBand:
    """One search."""

    def __init__(self, start: Start) -> None:
        self.rounds, self.slots = start["rounds"], start["slots"]
        self._dimensions = start["dimensions"]
        logging.disable(logging.WARNING)
        # NePS draws from the global generators.
        random.seed(start["seed"])
        np.random.seed(start["seed"])
        torch.manual_seed(start["seed"])
        confidence = CONFIDENCES[start["searcher"]]
        space = {d["name"]: parameter(d, confidence) for d in self._dimensions}
        space[FIDELITY] = neps.HPOInteger(1, self.rounds, is_fidelity=True)
        self._neps = neps.AskAndTell(neps.algorithms.priorband(neps.SearchSpace(space)))
        self._running: dict[tuple[int, int], str] = {}
        self._complete: list[tuple[float, Mapping[str, Any]]] = []

    def ask(self) -> Job | None:
        if len(self._running) >= self.slots:
            return None
        trial = self._neps.ask()
        number, until = int(trial.id.partition("_")[0]), int(trial.config[FIDELITY])
        self._running[number, until] = trial.id
        return Job(number, self._flat(trial.config), (0,), until)

    def tell(self, result: Result) -> None:
        job, value = result.job, float(result.curves[0, -1])
        good = bool(np.isfinite(value))
        self._neps.tell(self._running.pop((job.trial, job.until)), -value if good else ArithmeticError("it diverged"))
        if good and job.until == self.rounds:
            self._complete.append((value, job.values))

    def winner(self) -> Verdict | None:
        if not self._complete:
            return None
        value, values = max(self._complete, key=lambda pair: pair[0])
        return Verdict(values, value)

    def _flat(self, config: Mapping[str, Any]) -> dict[str, Any]:
        return {d["name"]: on_step(d, config[d["name"]]) for d in self._dimensions}


def parameter(d: Mapping[str, Any], confidence: str) -> Any:
    """A dimension as NePS declares it."""
    prior = {"prior": d["paper"], "prior_confidence": confidence}
    if d["kind"] in ("choice", "flag"):
        return neps.HPOCategorical(d["options"] or [False, True], **prior)
    made = neps.HPOInteger if d["kind"] == "integer" else neps.HPOFloat
    return made(d["low"], d["high"], log=d["log"], **prior)


if __name__ == "__main__":
    serve(PriorBand)
