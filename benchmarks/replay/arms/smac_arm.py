"""SMAC3: its multi-fidelity facade (`hyperband`), and its facade for noisy functions (`race`), which gives a challenger
more seeds for as long as it keeps up with the incumbent.

Settings are SMAC's own, with rounds as budgets from 1 to the whole federation (`hyperband`), and at most as many seeds
of a configuration as the table has, five at most (`race`; SMAC's own limit is three). `n_trials`, of which the initial
design is a quarter at most, is what a search of 40 federations comes to. A configuration whose budget grows goes on
from its checkpoint, which is cheaper than what SMAC itself would do. The winner is SMAC's incumbent."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from typing import Any

import numpy as np
from ConfigSpace import Categorical, ConfigurationSpace, EqualsCondition, Float, Integer
from smac import HyperparameterOptimizationFacade, MultiFidelityFacade, Scenario
from smac.runhistory.dataclasses import TrialInfo, TrialValue
from smac.runhistory.enumerations import StatusType

from benchmarks.replay.arms.serve import Start, on_step, serve
from benchmarks.replay.searcher import Floats, Job, Result, Verdict

#: SMAC's trials in a search of 40 federations: of one seed and all rounds, or of parts of them.
TRIALS = {"race": 40, "hyperband": 120}
#: Seeds of one configuration at most.
SEEDS = 5
#: The cost of a federation that diverged: worse than any accuracy.
WORST = 1.0


class Smac:
    """One search."""

    def __init__(self, start: Start) -> None:
        self.rounds, self.slots = start["rounds"], start["slots"]
        self._race = start["searcher"] == "race"
        self._folder = tempfile.mkdtemp(prefix="smac-")
        self._dimensions = start["dimensions"]
        more = {} if self._race else {"min_budget": 1, "max_budget": self.rounds}
        scenario = Scenario(
            space(self._dimensions),
            deterministic=not self._race,
            n_trials=TRIALS[start["searcher"]],
            seed=start["seed"],
            output_directory=self._folder,
            **more,
        )
        facade = HyperparameterOptimizationFacade if self._race else MultiFidelityFacade
        seeds = {"max_config_calls": min(SEEDS, start["seeds"])} if self._race else {}
        self._smac = facade(
            scenario,
            lambda config, seed=0, budget=None: 0.0,
            intensifier=facade.get_intensifier(scenario, **seeds),
            logging_level=False,
            overwrite=True,
        )
        self._numbers: dict[Any, int] = {}
        self._seeds: dict[int | None, int] = {}
        self._running: dict[tuple[int, int, int], TrialInfo] = {}
        #: Asked for while the same federation ran: budgets are rounded to rounds, and several slots ask side by side.
        self._later: list[TrialInfo] = []
        #: What each federation, of a trial and a seed, has measured so far.
        self._curves: dict[tuple[int, int], Floats] = {}

    def __del__(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def ask(self) -> Job | None:
        if len(self._running) >= self.slots:
            return None
        while (info := self._next()) is not None:
            number, seed = self._place(info)
            until = self.rounds if info.budget is None else max(1, round(info.budget))
            if self._is_busy(info):  # its rounds so far are being measured
                self._later.append(info)
                continue
            known = self._curves.get((number, seed), np.empty(0))
            if len(known) >= until:  # it has been that far before
                self._told(info, known[:until])
                continue
            self._running[number, seed, until] = info
            return Job(number, self._flat(info.config), (seed,), until)
        return None

    def _next(self) -> TrialInfo | None:
        """What SMAC asked for before, as soon as its federation has stopped, else what it asks for now."""
        ready = next((place for place, info in enumerate(self._later) if not self._is_busy(info)), None)
        return self._smac.ask() if ready is None else self._later.pop(ready)

    def _place(self, info: TrialInfo) -> tuple[int, int]:
        """The numbers of a configuration and of a seed."""
        number = self._numbers.setdefault(info.config, len(self._numbers))
        return number, self._seeds.setdefault(info.seed, len(self._seeds))

    def _is_busy(self, info: TrialInfo) -> bool:
        return self._place(info) in {(number, seed) for number, seed, _ in self._running}

    def tell(self, result: Result) -> None:
        job = result.job
        self._curves[job.trial, job.seeds[0]] = result.curves[0]
        self._told(self._running.pop((job.trial, job.seeds[0], job.until)), result.curves[0])

    def _told(self, info: TrialInfo, curve: Floats) -> None:
        good = bool(np.isfinite(curve[-1]))
        value = TrialValue(-float(curve[-1])) if good else TrialValue(WORST, status=StatusType.CRASHED)
        self._smac.tell(info, value, save=False)

    def winner(self) -> Verdict | None:
        incumbents = self._smac.intensifier.get_incumbents()
        if not incumbents:
            return None
        number = self._numbers[incumbents[0]]
        last = [curve for (trial, _), curve in self._curves.items() if trial == number]
        longest = max(len(curve) for curve in last)
        return Verdict(
            self._flat(incumbents[0]), float(np.mean([curve[-1] for curve in last if len(curve) == longest]))
        )

    def _flat(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Every dimension by its name; one that is not active has the lower end of its range."""
        found = dict(config)
        for d in self._dimensions:
            found.setdefault(d["name"], d["low"] if d["low"] is not None else (d["options"] or [False])[0])
            found[d["name"]] = on_step(d, found[d["name"]])
            if d["kind"] == "flag":
                found[d["name"]] = bool(found[d["name"]])
        return found


def space(dimensions: Any) -> ConfigurationSpace:
    """The dimensions as ConfigSpace declares them, with their conditions."""
    found = ConfigurationSpace()
    for d in dimensions:
        name = d["name"]
        if d["kind"] in ("choice", "flag"):
            found.add(Categorical(name, d["options"] or [False, True]))
        elif d["kind"] == "integer":
            found.add(Integer(name, (d["low"], d["high"]), log=d["log"]))
        else:
            found.add(Float(name, (d["low"], d["high"]), log=d["log"]))
        if d["when"] is not None:
            choice, option = d["when"]
            found.add(EqualsCondition(found[name], found[choice], option))
    return found


if __name__ == "__main__":
    serve(Smac)
